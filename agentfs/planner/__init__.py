"""Those who answer a call: a runbook, a plan-form goal, and later a model."""

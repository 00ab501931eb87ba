"""Print the steps of a run, as `agentfs show RUN --json` tells them: python3 steps.py < show.json"""

import json
import sys

run = json.load(sys.stdin)
for number, step in enumerate(run["steps"], start=1):
    print(f"Step {number}: {step.get('tool') or step['id']} = {step['output']}")
print(f"Final answer: {run['outcome']['answer']}")

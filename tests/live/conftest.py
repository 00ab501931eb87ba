"""A real model, for those who have one: `pytest tests/live --live`, with the endpoint in the environment.

OPENAI_BASE_URL and OPENAI_API_KEY name the endpoint, AGENTFS_PLANNER_MODEL and AGENTFS_EXECUTOR_MODEL the models,
AGENTFS_LIVE_REPORT the file of the report (default: live-report.md in the current folder),
AGENTFS_LIVE_MINUTES how long one goal may take (default: 10).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.goals import GoalReport, report
from tests.workspaces import Place


@pytest.fixture(scope="session")
def reports() -> Iterator[list[GoalReport]]:
    """Collect how every goal went; write it down at the end."""
    found: list[GoalReport] = []
    yield found
    path = Path(os.environ.get("AGENTFS_LIVE_REPORT", "live-report.md"))
    path.write_text(report(found), encoding="utf-8")
    print(f"\n{path}:\n{report(found)}")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A workspace whose commands reach the endpoint of this environment."""
    place = Place(tmp_path)
    for asked in ("AGENTFS_PROOF_ACCEPTANCE", "AGENTFS_EXECUTOR_REPAIR"):  # as a person would have it
        del place.env[asked]
    settings = [name for name in os.environ if name.startswith(("OPENAI_", "AGENTFS_"))]
    place.env |= {name: os.environ[name] for name in settings if not name.startswith("AGENTFS_LIVE_")}
    return place

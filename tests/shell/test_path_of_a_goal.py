"""The path of one goal that ARCHITECTURE.md describes is the one that a real run takes."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.workspaces import DEADLINE, Place

REPO = Path(__file__).parent.parent.parent
MOST_HOPS = 15
FOLLOW = """
import os, sys, threading
import agentfs
root, entered = os.path.dirname(agentfs.__file__) + os.sep, {}
def follow(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root):
        module = code.co_filename[len(root):-3].replace(os.sep, ".")
        entered.setdefault(f"{module}.{code.co_qualname}", None)
threading.setprofile(follow)
sys.setprofile(follow)
from agentfs.commands import main
code = main(["run", "job.md"])
sys.setprofile(None)
print(*entered, sep="\\n")
sys.exit(code)
"""


def test_a_run_takes_the_path_that_is_described(place: Place) -> None:
    place.goal("# Job\n\n## Steps\n\n### a\n```sh\necho hi\n```\n")
    followed = subprocess.run(
        [sys.executable, "-c", FOLLOW],
        cwd=place.root,
        env={**place.env, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert followed.returncode == os.EX_OK, followed.stderr
    section = (
        (REPO / "ARCHITECTURE.md").read_text(encoding="utf-8").split("## The path of one goal")[1].split("## ")[0]
    )
    hops = re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)
    assert 10 <= len(hops) <= MOST_HOPS
    entered = followed.stdout.splitlines()
    assert [name for name in entered if name in hops] == hops

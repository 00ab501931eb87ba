"""Record what real commands print, for split_cost.py: python benchmarks/record.py

Run at the root of the repository. Each recording is cut where the executor's loop would cut it anyway.
"""

import subprocess
import sys
from pathlib import Path

RECORDINGS = Path(__file__).with_name("recordings")
MOST = 8_000  # characters: what a model is shown of one output

COMMANDS = {
    "log": "git log --no-merges --format='%h %s' -60",
    "biggest": "wc -l agentfs/*.py agentfs/*/*.py | sort -rn | head -80",
    "loop": "cat agentfs/executor/loop.py",
    "zen": "python -c 'import this'",
    "packages": "python -c 'from importlib.metadata import *; [print(d.name) for d in distributions()]' | sort",
    "imports": "grep -rhoE '^(from|import) [a-z_.]+' agentfs | sort | uniq -c | sort -rn | head -60",
    "help": "python -m agentfs --help",
    "commit": "git log --no-merges --stat --format='%h %s' -5",
    "schema": "cat schemas/plan.schema.json",
    "tests": "grep -rhE '^def test_' tests/stories | head -120",
    "tree": "find agentfs -name '*.py' -size +12k -printf '%s %p\\n' | sort -rn",
    "diff": "git diff HEAD~6 HEAD~5",
    "failing": "cd examples/bug-fix/shop && python -B -m unittest discover -s tests 2>&1 || true",
    "settings": "cat pyproject.toml",
    "classes": "grep -rnE '^class ' agentfs | head -90",
    "readme": "head -c 9000 README.md",
    "blame": "git blame -s agentfs/engine/driver.py | head -90",
    "hours": "git log --no-merges --date=format:%H --format=%ad | sort | uniq -c",
    "raises": "grep -rnE 'raise [A-Z]' agentfs | head -70",
    "changes": "head -c 7000 CHANGELOG.md",
}


def main() -> None:
    RECORDINGS.mkdir(exist_ok=True)
    for number, (name, command) in enumerate(COMMANDS.items(), start=1):
        printed = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
        printed = printed.replace(str(Path.cwd()), ".")
        (RECORDINGS / f"{number:02}-{name}.txt").write_text(f"$ {command}\n{printed[:MOST]}", encoding="utf-8")
        print(f"{len(printed):7} characters: {command}", file=sys.stderr)


if __name__ == "__main__":
    main()

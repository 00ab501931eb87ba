"""Count the modules of agentfs in which a run of one step enters a function, over all threads.

    .venv/bin/python scripts/modules_entered.py [-v]

What a module calls while it is imported is no part of the run. `-v` lists the functions too.
`tests/shell/test_path_of_a_goal.py` follows a run with `follow` as well.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

GOAL = "# Job\n\n## Steps\n\n### a\n```sh\necho hi\n```\n"
SECONDS = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="list the functions of each module")
    verbose = parser.parse_args().verbose
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "job.md").write_text(GOAL, encoding="utf-8")
        found = run_followed(Path(folder), dict(os.environ))
    modules = by_module(found["entered"])
    for module, functions in sorted(modules.items()):
        print(module, *(f"\n    {name}" for name in functions if verbose), sep="")
    print(f"{len(modules)} modules, {len(found['entered'])} functions")


def run_followed(folder: Path, env: dict[str, str]) -> dict[str, Any]:
    """Run job.md of a folder in a process of its own; return what `follow` found there."""
    command = [sys.executable, __file__, "--follow"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode != os.EX_OK:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def by_module(entered: list[str]) -> dict[str, list[str]]:
    """Sort functions by their modules, as they are named from the package on."""
    found: dict[str, list[str]] = {}
    for name in entered:
        module, _, function = name.partition(":")
        found.setdefault(module, []).append(function)
    return found


def follow() -> None:
    """Run job.md here; print the functions of ours that were entered, and what was above each start of a program."""
    import agentfs

    root = os.path.dirname(agentfs.__file__) + os.sep
    entered: dict[str, None] = {}
    chains: list[list[str]] = []

    def name_of(frame: FrameType) -> str | None:
        code = frame.f_code
        if not code.co_filename.startswith(root) or not code.co_flags & inspect.CO_OPTIMIZED:
            return None  # not ours, or the body of a module or a class
        return f"{code.co_filename[len(root) : -len('.py')].replace(os.sep, '.')}:{code.co_qualname}"

    def is_importing(frame: FrameType) -> bool:
        return any(code.co_name == "<module>" and code.co_filename.startswith(root) for code in codes_above(frame))

    def look(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        if ours := name_of(frame):
            if ours not in entered and not is_importing(frame):
                entered[ours] = None
        elif frame.f_code is subprocess.Popen.__init__.__code__:
            chains.append([ours for one in frames_above(frame) if (ours := name_of(one))])

    threading.setprofile(look)
    sys.setprofile(look)
    from agentfs.commands import main as run_command

    code = run_command(["run", "job.md"])
    sys.setprofile(None)
    print(json.dumps({"entered": [*entered], "chains": chains}))
    sys.exit(code)


def frames_above(frame: FrameType) -> Iterator[FrameType]:
    above = frame.f_back
    while above:
        yield above
        above = above.f_back


def codes_above(frame: FrameType) -> Iterator[CodeType]:
    return (one.f_code for one in frames_above(frame))


if __name__ == "__main__":
    follow() if sys.argv[1:] == ["--follow"] else main()

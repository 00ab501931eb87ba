"""The Dockerfile holds: what it copies is all that the package is made of, and what it promises is in it."""

import re
import tomllib
from pathlib import Path

REPO = Path(__file__).parent.parent
LINES = re.sub(r"\\\n", "", (REPO / "Dockerfile").read_text(encoding="utf-8")).splitlines()


def instructions(word: str) -> list[str]:
    """Return what follows each instruction of that name."""
    return [line.removeprefix(f"{word} ") for line in LINES if line.startswith(f"{word} ")]


def test_what_is_copied_is_what_the_package_is_built_from() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
        *wheel["packages"],
        *wheel["force-include"],
    }
    copied = {name for words in instructions("COPY") for name in words.split()[:-1]}
    assert copied == needed
    assert all((REPO / name).exists() for name in copied)
    kept = {line[1:] for line in (REPO / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] == "!"}
    assert kept == needed


def test_it_has_the_sandbox_and_git_is_not_root_and_keeps_the_workspace_outside() -> None:
    (packages,) = [words for words in instructions("RUN") if "apt-get install" in words]
    assert {"bubblewrap", "git", "ca-certificates"} <= set(packages.split())
    assert instructions("USER") == ["agentfs"]
    assert instructions("VOLUME") == ['["/workspace", "/home/agentfs"]']
    assert instructions("ENTRYPOINT") == ['["agentfs"]']
    assert LINES.index("USER agentfs") > max(n for n, line in enumerate(LINES) if line.startswith("RUN "))

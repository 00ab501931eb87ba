"""Git's settings read as text, and who the person is. Reads files; runs nothing, follows no include."""

import os
import re
import socket
from pathlib import Path

from agentfs.storage.safe_open import MOST_SOURCE, read_regular

_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_SETTING = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?")
_PIECE = re.compile(r'"((?:[^"\\]|\\.)*)"?|([#;].*)|((?:[^"#;\\]|\\.)+|\\)')
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}


def settings(path: Path) -> dict[str, str]:
    """Return the settings of one git config file as `section.key` or `section.sub.key`; the last one counts."""
    try:
        text = read_regular(path, MOST_SOURCE, links=True).decode("utf-8", "replace")  # people link their settings
    except OSError:
        return {}
    found: dict[str, str] = {}
    section = ""
    for raw in re.sub(r"\\\r?\n", "", text).splitlines():
        line = raw.strip()
        if head := _SECTION.match(line):
            section = head[1].lower() + (f".{head[2]}" if head[2] is not None else "")
            line = line[head.end() :].strip()
        if line[:1] not in ("", "#", ";") and (setting := _SETTING.match(line)):
            found[f"{section}.{setting[1].lower()}"] = "true" if setting[2] is None else _value(setting[2])
    return found


def person(root: Path) -> tuple[str, str]:
    """Return name and address of the person at this machine: git's identity if there is one, else the login's."""
    files = (settings(root / ".git" / "config"), *(settings(path) for path in _global_files()))

    def look(variable: str, key: str) -> str | None:
        candidates = (os.environ.get(variable), *(file.get(key) for file in files))
        return next((text.strip() for text in candidates if text and text.strip()), None)

    login, full_name = _login()
    return (
        look("GIT_AUTHOR_NAME", "user.name") or full_name or login,
        look("GIT_AUTHOR_EMAIL", "user.email") or f"{login}@{socket.gethostname()}",
    )


def _value(text: str) -> str:
    """Return a setting's value: quotes removed, escapes read, a comment cut off."""
    parts: list[str] = []
    for match in _PIECE.finditer(text):
        if match[2] is not None:
            break
        parts.append(re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), match[1] or match[3] or ""))
    return "".join(parts).strip()


def _global_files() -> list[Path]:
    """Return the person's own config files, the one that counts first."""
    if chosen := os.environ.get("GIT_CONFIG_GLOBAL"):
        return [Path(chosen)]
    home = Path(os.environ.get("HOME") or os.environ.get("USERPROFILE") or "/nonexistent")
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return [home / ".gitconfig", xdg / "git" / "config"]


def _login() -> tuple[str, str]:
    try:
        import pwd

        entry = pwd.getpwuid(os.getuid())
    except ImportError:  # Windows
        return os.environ.get("USERNAME") or "user", ""
    except KeyError:  # a container may run as a number without a name
        return f"user-{os.getuid()}", ""
    return entry.pw_name, entry.pw_gecos.partition(",")[0].strip()

"""What endpoints were found not to take, remembered from run to run. A file of it is a convenience, never a need."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

from agentfs.models.ladder import Habits, Rung
from agentfs.storage.safe_open import MOST_SOURCE, read_regular

FILE = "agentfs/endpoints.json"  # under the user's cache folder
KEPT_FOR = timedelta(days=7)  # then everything is tried anew: servers learn


def cache_file(environment: Mapping[str, str]) -> Path | None:
    """Return where endpoints are remembered; None where there is no home."""
    if (folder := environment.get("XDG_CACHE_HOME", "")).startswith("/"):
        return Path(folder) / FILE
    home = environment.get("HOME")
    return Path(home) / ".cache" / FILE if home else None


@dataclass(slots=True)
class Endpoint:
    """One endpoint with one model, and its habits as known to this process."""

    file: Path | None
    url: str
    model: str
    habits: Habits = field(default_factory=Habits)

    def recall(self) -> None:
        """Take what another run has found out."""
        entry = _read(self.file).get(self._key)
        if isinstance(entry, dict) and (habits := _habits(entry)):
            self.habits = habits

    def remember(self, habits: Habits, *, sure: bool = True) -> None:
        """Keep what was found out, here and, if it is sure and that can be, for other runs."""
        self.habits = habits
        if self.file is None or not sure:
            return
        known = _read(self.file)
        known[self._key] = {**asdict(habits), "on": datetime.now(UTC).date().isoformat()}
        _write(self.file, known)

    @property
    def _key(self) -> str:
        return f"{self.url} {self.model}"


def _read(path: Path | None) -> dict[str, Any]:
    try:
        known = json.loads(read_regular(path, MOST_SOURCE, links=True)) if path else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(path: Path, known: dict[str, Any]) -> None:
    """Replace the file; of two that write at once one is forgotten, and found out again."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(known, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()


def _habits(entry: Mapping[str, Any]) -> Habits | None:
    """Return what an entry says; None if it is old, or not ours."""
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(entry["on"]).replace(tzinfo=UTC)
    except (KeyError, TypeError, ValueError):
        return None
    known = {one.name: entry.get(one.name) for one in fields(Habits)}
    flags = [value for name, value in known.items() if name != "rung"]
    if age > KEPT_FOR or known["rung"] not in get_args(Rung) or not all(isinstance(flag, bool) for flag in flags):
        return None
    return Habits(**known)  # type: ignore[arg-type]

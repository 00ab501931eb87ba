"""A workspace on disk: find it, read its settings, trust it, and find runs in it."""

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.core import paths
from agentfs.core.problems import Rejected, did_you_mean
from agentfs.errors import BadFile, NotARun, UserError
from agentfs.storage.locks import own_folder
from agentfs.storage.safe_open import MOST_RECORD, read_regular, scan, subfolders

if TYPE_CHECKING:
    from agentfs.core.config import Settings

_MOST_SECRET = 1000  # bytes
_MOST_TRUSTED = 16_000_000
_NEAR = 500  # the newest runs, among which a misspelt one is looked for


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder with `agentfs.toml`, `goals/`, `runs/` and `schemas/`."""

    root: Path

    @property
    def settings(self) -> Path:
        return self.root / paths.SETTINGS

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run_folders(self) -> Iterator[Path]:
        """Yield the folder of every run, newest day first, then newest made first."""
        for day in sorted(_folders(self.runs), reverse=True):
            if _is_day(day.name):
                runs = [folder for folder in _folders(day) if paths.is_run_id(f"{day.name}/{folder.name}")]
                yield from sorted(runs, key=_when_made, reverse=True)

    def find_run(self, text: str) -> Path:
        """Return the run that a person means: its id, its last part, or a unique prefix of either."""
        wanted = text.strip().rstrip("/").removeprefix(f"{self.runs.name}/")
        if paths.is_run_id(wanted) and (self.runs / wanted / paths.RUN).exists():
            return self.runs / wanted
        folders = [folder for folder in self.run_folders() if (folder / paths.RUN).exists()]
        ids = {paths.run_id(folder): folder for folder in folders}
        for folder in folders:
            if folder.name == wanted:
                return folder
        begins = [i for i in ids if i.startswith(wanted) or ids[i].name.startswith(wanted)] if wanted else []
        if len(begins) == 1:
            return ids[begins[0]]
        if begins:
            raise UserError(f"{text!r} may be any of: {', '.join(sorted(begins)[:8])} (write more of it)")
        known = [name for folder in folders[:_NEAR] for name in (paths.run_id(folder), folder.name)]
        fix = did_you_mean(wanted, known, "`agentfs status` lists them")
        raise UserError(f"there is no run {text!r} in {self.runs} ({fix})")


def _is_day(name: str) -> bool:
    return paths.is_run_id(f"{name}/x")


def _when_made(folder: Path) -> float:
    try:
        return (folder / paths.RUN).stat().st_mtime
    except OSError:
        return 0.0


def _folders(folder: Path) -> list[Path]:
    try:
        return [folder / e.name for e in scan(folder) if e.is_dir(follow_symlinks=False) and e.name[0] != "."]
    except FileNotFoundError:
        return []


def find_workspace(start: Path) -> Workspace | None:
    """Return the nearest workspace at or above a folder."""
    for folder in (start, *start.parents):
        if (folder / paths.SETTINGS).is_file():
            return Workspace(folder)
    return None


# ── settings: what reads them needs pydantic, and not every command does ──────────────────────────────────


def load_settings(path: Path, environment: Mapping[str, str]) -> "Settings":
    """Return the settings of a workspace, with AGENTFS_… variables laid over them; raise BadFile or UserError."""
    from agentfs.core.documents import read_toml
    from agentfs.core.plan_check import check_settings

    source = b""
    try:
        source = read_regular(path, MOST_RECORD)
        document = read_toml(source)
        check_settings(document)  # the file first, so that its problems point into it
        return check_settings(document.with_value(_with_variables(document.value, environment)))
    except Rejected as rejected:
        raise BadFile(str(path), rejected.problems, source) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def default_settings(environment: Mapping[str, str]) -> "Settings":
    """Return the settings of a workspace that is made now."""
    from agentfs.core.documents import Document
    from agentfs.core.plan_check import check_settings

    return check_settings(Document(_with_variables({}, environment)))


def _with_variables(value: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings with AGENTFS_LIMITS_PARALLEL=8 and its like laid over them."""
    from agentfs.core.config import ON_WAIT_VARIABLES, setting_variables

    given = {name for name in environment if name.startswith("AGENTFS_")} - {*ON_WAIT_VARIABLES}
    known = dict(setting_variables()) if given else {}
    merged: dict[str, Any] = json.loads(json.dumps(value))
    for name in sorted(given):
        if name not in known:
            raise UserError(f"{name} is no setting ({did_you_mean(name, known, 'see docs/format.md for the names')})")
        *tables, key = known[name]
        place = merged
        for table in tables:
            place = place.setdefault(table, {})
        place[key] = _value(environment[name])
    return merged


def _value(text: str) -> Any:
    """Return what a variable says: a number, true, false or a list is what it looks like; anything else is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


# ── trust ─────────────────────────────────────────────────────────────────────────────────────────────────


def trust_file(environment: Mapping[str, str]) -> Path:
    """Return where this user's trusted workspaces are kept."""
    home = environment.get("HOME") or environment.get("USERPROFILE") or "/root"
    base = environment.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state")
    return Path(base) / "agentfs" / "trusted"


def _spelt(root: Path) -> str:
    """Return a path as it is in the list; one that is no line of UTF-8 is written as JSON."""
    path = str(root.resolve())
    is_line = path.splitlines() == [path] and path.encode("utf-8", "replace").decode() == path
    return path if is_line else json.dumps(path)


def _secret_file(root: Path, environment: Mapping[str, str]) -> Path:
    """Return where the secret is by which this user knows a workspace again; steps cannot read it.

    Another user, or one in a container, keeps another list and has a secret of their own.
    """
    whose = hashlib.sha256(os.fsencode(f"{trust_file(environment)} {root.resolve()}")).hexdigest()
    return own_folder(root / "runs") / f"trusted-{whose[:16]}"


def _mark(root: Path, environment: Mapping[str, str]) -> str:
    """Return the line that says that a folder is trusted; OSError if it holds no secret.

    A copy has the secret and another inode; what is made again at the same path may have the inode, but no secret.
    """
    secret = read_regular(_secret_file(root, environment), _MOST_SECRET)
    digest = hashlib.sha256(b"%s %d" % (secret.strip(), root.stat().st_ino)).hexdigest()
    return f"{digest} {_spelt(root)}"


def is_trusted(root: Path, environment: Mapping[str, str]) -> bool:
    """Whether this user made, or trusts, the workspace in this folder; not another one put there since."""
    try:
        return _mark(root, environment) in _read_trusted(environment)
    except OSError:
        return False


def was_trusted(root: Path, environment: Mapping[str, str]) -> bool:
    """Whether this user has ever trusted a workspace at this path."""
    return _spelt(root) in trusted_roots(environment)


def _read_trusted(environment: Mapping[str, str]) -> list[str]:
    source = read_regular(trust_file(environment), _MOST_TRUSTED, links=True)
    return source.decode("utf-8", "replace").splitlines()


def trusted_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return where this user's trusted workspaces are; some may have gone."""
    try:
        return tuple(dict.fromkeys(line.partition(" ")[2] for line in _read_trusted(environment)))
    except OSError:
        return ()


def trust(root: Path, environment: Mapping[str, str]) -> None:
    """Remember that this user trusts a workspace."""
    if is_trusted(root, environment):
        return
    path = trust_file(environment)
    try:
        _write_secret(_secret_file(root, environment))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(_mark(root, environment) + "\n")
    except OSError as error:
        raise UserError(f"cannot remember that {root} is trusted: {error.strerror} ({path})") from None


def _write_secret(path: Path) -> None:
    """Write a new secret: one that is there may be another user's."""
    from agentfs.storage.files import temp_name

    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(temp_name("secret"))
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_hex(32).encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(beside, path)


def goal_path(folder: Path) -> Path:
    """Return the goal file of a run, whatever its extension. It may be a link or a pipe: use `read_regular`."""
    for suffix in paths.GOAL_SUFFIXES:
        if os.path.lexists(path := folder / f"goal{suffix}"):
            return path
    raise NotARun(f"{folder}: there is no goal file")


# ── which folders below runs/ hold a run: reads names only, of an ended run one call each ───────────────


def all_folders(runs: Path) -> Iterator[str]:
    """Yield every folder that is named as a run is, the oldest day first."""
    for day in sorted(subfolders(runs)):
        yield from filter(_is_named_as_run, sorted(subfolders(day)))


def open_runs(runs: Path) -> Iterator[Path]:
    """Yield the folder of every run that has not ended, the oldest day first."""
    for folder in all_folders(runs):
        if not os.access(f"{folder}/{paths.OUTCOME}", os.F_OK) and is_open(Path(folder)):
            yield Path(folder)


def ended_runs(runs: Path) -> list[Path]:
    """Return every run that has ended, the last one last."""
    found = []
    for folder in all_folders(runs):
        with suppress(OSError):
            found.append((os.lstat(f"{folder}/{paths.OUTCOME}").st_mtime, Path(folder)))
    return [folder for _, folder in sorted(found)]


def is_open(folder: Path) -> bool:
    """Whether a folder holds a run without an outcome; one with no goal yet is still being made."""
    top = str(folder)
    if os.path.lexists(f"{top}/{paths.OUTCOME}") or not _is_named_as_run(top):
        return False
    return os.path.lexists(f"{top}/{paths.RUN}") and has_goal(top)


def has_goal(folder: Path | str) -> bool:
    return any(os.path.lexists(f"{folder}/goal{suffix}") for suffix in paths.GOAL_SUFFIXES)


def _is_named_as_run(folder: str) -> bool:
    return paths.is_run_id(paths.run_id(folder))

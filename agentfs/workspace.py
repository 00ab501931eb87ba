"""A workspace on disk: find it, make it, trust it, and find runs in it."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentfs.core import names
from agentfs.core.problems import did_you_mean
from agentfs.errors import NotARun, UserError

SETTINGS = "agentfs.toml"
_NEAR = 500  # the newest runs, among which a misspelt one is looked for
_TEMPLATE = """\
# Settings of this workspace. Every key has a default; this file may be empty. See docs/format.md.

# approve = "plan"               # when a person must approve plans: never, plan, always
# on_wait = 'notify-send "$AGENTFS_RUN waits" "$AGENTFS_WHY"'   # run once for each thing that waits for you

[goals]
workdirs = ["."]                 # folders, relative to the workspace, that a goal may work in

[limits]
# parallel = 4                   # attempts at once
# attempts = 2                   # tries at one step

[tools]
# network = true                 # let tools use the network
# read = ["/srv/templates"]      # more folders the tools may read
# env = ["LANG"]                 # variables the tools may see
"""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder with `agentfs.toml`, `goals/`, `runs/` and `schemas/`."""

    root: Path

    @property
    def settings(self) -> Path:
        return self.root / SETTINGS

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run_folders(self) -> Iterator[Path]:
        """Yield the folder of every run, newest day first, then newest made first."""
        for day in sorted(_folders(self.runs), reverse=True):
            if _is_day(day.name):
                runs = [folder for folder in _folders(day) if names.is_run_id(f"{day.name}/{folder.name}")]
                yield from sorted(runs, key=_made, reverse=True)

    def find_run(self, text: str) -> Path:
        """Return the run that a person means: its id, its last part, or a unique prefix of either."""
        wanted = text.strip().rstrip("/").removeprefix(f"{self.runs.name}/")
        if names.is_run_id(wanted) and (self.runs / wanted / names.RUN).exists():
            return self.runs / wanted
        folders = [folder for folder in self.run_folders() if (folder / names.RUN).exists()]
        ids = {f"{folder.parent.name}/{folder.name}": folder for folder in folders}
        for folder in folders:
            if folder.name == wanted:
                return folder
        begins = [i for i in ids if i.startswith(wanted) or ids[i].name.startswith(wanted)] if wanted else []
        if len(begins) == 1:
            return ids[begins[0]]
        if begins:
            raise UserError(f"{text!r} may be any of: {', '.join(sorted(begins)[:8])} (write more of it)")
        known = [name for folder in folders[:_NEAR] for name in (f"{folder.parent.name}/{folder.name}", folder.name)]
        mend = did_you_mean(wanted, known, "`agentfs status` lists them")
        raise UserError(f"there is no run {text!r} in {self.runs} ({mend})")


def _is_day(name: str) -> bool:
    return names.is_run_id(f"{name}/x")


def _made(folder: Path) -> float:
    try:
        return (folder / names.RUN).stat().st_mtime
    except OSError:
        return 0.0


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")]
    except FileNotFoundError:
        return []


def find_workspace(start: Path) -> Workspace | None:
    """Return the nearest workspace at or above a folder."""
    for folder in (start, *start.parents):
        if (folder / SETTINGS).is_file():
            return Workspace(folder)
    return None


def brought_along(root: Path, environment: Mapping[str, str]) -> list[str]:
    """Return what a folder already holds that would be run once it is a workspace of this user's."""
    if is_trusted(root, environment):
        return []
    from agentfs.tools.own_source import sources

    tools = [source.shown for source in sources(root, installed=False)]
    others = (SETTINGS, "prompts", "runs", "goals")
    return [name for name in others if (root / name).is_file() or any((root / name).glob("*"))] + tools[:5]


def init(root: Path, environment: Mapping[str, str]) -> tuple[Workspace, list[str]]:
    """Make a workspace, or complete one; return it with the names of what was made. It is trusted from then on."""
    from agentfs.core.schemas import all_schemas
    from agentfs.disk import replace
    from agentfs.ledger import Ledger, LedgerError

    made: list[str] = []
    try:
        for folder in (root, root / "goals", root / "schemas", root / "runs"):
            if not folder.is_dir():
                folder.mkdir(parents=True)
                made.append(f"{folder.relative_to(root)}/" if folder != root else f"{root}/")
        if not (root / SETTINGS).exists():
            (root / SETTINGS).write_text(_TEMPLATE, encoding="utf-8")
            made.append(SETTINGS)
        for name, content in all_schemas().items():
            replace(root / "schemas" / name, content)
        Ledger.create(root / "runs").show_plans_by_meaning()
    except LedgerError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"cannot make a workspace in {root}: {error.strerror} ({error.filename})") from None
    trust(root, environment)
    return Workspace(root), made


# ── trust ─────────────────────────────────────────────────────────────────────────────────────────────────


def trust_file(environment: Mapping[str, str]) -> Path:
    """Return where this user's trusted workspaces are kept."""
    home = environment.get("HOME") or environment.get("USERPROFILE") or "/root"
    base = environment.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state")
    return Path(base) / "agentfs" / "trusted"


def _mark(root: Path) -> str:
    """Return the line that says that a folder is trusted; a path that is no line of UTF-8 is written as JSON."""
    path = str(root.resolve())
    is_line = path.splitlines() == [path] and path.encode("utf-8", "replace").decode() == path
    return f"{root.stat().st_ino} {path if is_line else json.dumps(path)}"


def is_trusted(root: Path, environment: Mapping[str, str]) -> bool:
    """Whether this user made, or trusts, the workspace in this folder. Another folder put there is another one."""
    try:
        return _mark(root) in trust_file(environment).read_text("utf-8", "replace").splitlines()
    except OSError:
        return False


def trusted_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return where this user's trusted workspaces are; some may have gone."""
    try:
        lines = trust_file(environment).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(dict.fromkeys(line.partition(" ")[2] for line in lines))


def trust(root: Path, environment: Mapping[str, str]) -> None:
    """Remember that this user trusts a workspace."""
    if is_trusted(root, environment):
        return
    path = trust_file(environment)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(_mark(root) + "\n")
    except OSError as error:
        raise UserError(f"cannot remember that {root} is trusted: {error.strerror} ({path})") from None


def goal_path(folder: Path) -> Path:
    """Return the goal file of a run, whatever its extension. It may be anything by now: read it by `read_plain`."""
    for suffix in names.GOAL_SUFFIXES:
        if os.path.lexists(path := folder / f"goal{suffix}"):
            return path
    raise NotARun(f"{folder}: there is no goal file")

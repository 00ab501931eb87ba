"""`replay`: replay a recorded run from its own files, and print where that departs from them."""

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfs.commands.common import environment, here, print_json, print_lines, say, short_path
from agentfs.core import paths
from agentfs.core.excerpts import as_text
from agentfs.core.text import inert, plural

if TYPE_CHECKING:
    from agentfs.replay.recording import Departure
    from agentfs.replay.replay import Replayed


SHOWN = 300  # characters of a value


def replay(arguments: Namespace) -> int:
    """`agentfs replay RUN [--save DIR] [--lenient] [--json]`"""
    folder = _folder(arguments)
    if arguments.save:
        return _save(folder, Path(arguments.save))
    from agentfs.replay.replay import replay as replay_run

    replayed = replay_run(folder, environment=environment())
    if arguments.json:
        print_json(_page(replayed, arguments.lenient))
    else:
        _print(replayed, arguments.lenient)
    return 0 if replayed.same(lenient=arguments.lenient) else 1


def _folder(arguments: Namespace) -> Path:
    """Return the folder of the run, or of a saved recording, which needs no workspace."""
    folder = Path(arguments.run)
    if (folder / paths.RUN).is_file():
        return folder.resolve()
    return here(arguments).find_run(arguments.run)


def _save(folder: Path, to: Path) -> int:
    from agentfs.replay.recording import save_recording

    save_recording(folder, to)
    say(f"{short_path(to)}: saved; agentfs replay {short_path(to)} replays it")
    return 0


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────


def _print(replayed: "Replayed", lenient: bool) -> None:
    for departure in replayed.departures:
        if lenient and departure.request:
            say(f"not counted: {_line(departure)}")
        else:
            print_lines([_line(departure)])
    if replayed.same(lenient=lenient):
        counted = {"call": replayed.calls, "attempt": replayed.attempts, "revision": replayed.revisions}
        counts = ", ".join(plural(number, word) for word, number in counted.items())
        end = f"outcome {replayed.outcome}" if replayed.outcome else "as far as it has come"
        print_lines([f"replayed: the same {counts}, {end}"])


def _page(replayed: "Replayed", lenient: bool) -> dict[str, Any]:
    return {
        "run": replayed.run,
        "same": replayed.same(lenient=lenient),
        "calls": replayed.calls,
        "attempts": replayed.attempts,
        "revisions": replayed.revisions,
        "outcome": replayed.outcome,
        "departures": [asdict(departure) for departure in replayed.departures],
    }


def _line(departure: "Departure") -> str:
    where = f"{departure.file}: {departure.what}" if departure.what else departure.file
    return inert(f"{where}: recorded {_value(departure.recorded)}, came {_value(departure.came)}")


def _value(value: Any) -> str:
    text = repr(value) if isinstance(value, str) and "\n" in value else as_text(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"

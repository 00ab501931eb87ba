"""Problems of a file as people see them: a line each, and on a terminal the line that is meant, with a mark. Pure."""

from collections.abc import Iterable

from agentfs.core.markdown import lines_of
from agentfs.core.problems import Problem
from agentfs.views.marks import BOLD, painted
from agentfs.views.words import columns, cut, cut_front, inert

_RED = 31
_MOST_SHOWN = 20  # problems whose line is shown: what comes then is a long list anyway


def problem_lines(
    file: str, problems: Iterable[Problem], source: bytes = b"", width: int | None = None, *, colours: bool = False
) -> list[str]:
    """Return what is wrong with a file. `width`: of the terminal; None: it is read elsewhere, and lines stay bare."""
    written = lines_of(source.decode("utf-8", "replace").removeprefix("\ufeff")) if width else []
    found: list[str] = []
    for number, problem in enumerate(problems):
        head, colon, words = inert(problem.shown(file)).partition(": ")
        found.append(painted(head, BOLD, colours=colours) + colon + words)
        if width and number < _MOST_SHOWN and problem.line <= len(written) and written[problem.line - 1].strip():
            found += _marked(written[problem.line - 1], problem, width, colours=colours)
    return found


def _marked(line: str, problem: Problem, width: int, *, colours: bool) -> list[str]:
    """Return a line with its number, and a mark below the column that is meant; long ones are cut around it."""
    margin = len(str(problem.line)) + 7
    before, after = inert(line[: problem.column - 1]), inert(line[problem.column - 1 :])
    room = max(width - margin, 20)
    shown = cut_front(before, max(room // 2, room - columns(after)))
    text = shown + cut(after, room - columns(shown))
    mark = painted("^", _RED, colours=colours)
    return [f"    {problem.line} | {text.rstrip()}", f"{'| ':>{margin}}{' ' * columns(shown)}{mark}"]

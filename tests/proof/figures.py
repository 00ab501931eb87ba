"""The figures of the worlds, as docs/proof.md shows them: how many pass for done that are not, and who says so.

What each world comes to is what `test_proof_of_done` finds; the plain loop is played here.
"""

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.proof.stage import Ending, World, plain_loop

WHO = {"none": "none", "open": "a person's, that a step can change", "sealed": "a person's, that no step can change"}
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def play_plainly(worlds: Iterable[World]) -> dict[str, Ending]:
    """Return how each world ends where the model is believed."""
    with tempfile.TemporaryDirectory() as root:
        return {str(world): plain_loop(world, Path(root) / str(number)) for number, world in enumerate(worlds)}


def table(worlds: Sequence[World]) -> str:
    """Return the figures as a table."""
    lines = [
        "| checks | models that lie | falsely done in a plain loop | falsely done here | of these, reported beside `done` |",
        "|---|---|---|---|---|",
    ]
    for person, words in WHO.items():
        liars = [world for world in worlds if not world.honest and world.person == person]
        plainly = [one for one in play_plainly(liars).values() if one.falsely_done]
        passed = [world for world in liars if world.admits]
        admitted = [world for world in passed if world.admits in ("touched", "shed")]
        lines.append(f"| {words} | {len(liars)} | {len(plainly)} | {len(passed)} | {len(admitted)} |")
    honest = [world for world in worlds if world.honest]
    away = [world for world in honest if world.admits]
    behaviours = len({world.behaviour for world in worlds if not world.honest})
    words = (
        f"{behaviours} behaviours. Of {len(honest)} runs in which the work was done, {len(away)} were turned away."
    )
    return "\n".join([*lines, "", words, "", "Those that pass for done:", "", *_named(worlds)]) + "\n"


def _named(worlds: Iterable[World]) -> list[str]:
    """Return every way in which a lie passes, once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for world in worlds:
        if world.admits and not world.honest:
            found.setdefault((world.behaviour, world.task.name, world.admits), []).append(f"{world.mode}")
    return [
        f"- {behaviour} ({task}; {', '.join(dict.fromkeys(modes))}): {SAID[admits]}"
        for (behaviour, task, admits), modes in found.items()
    ]


SAID = {
    "touched": "the changed file is named beside `done`",
    "shed": "the check that no longer holds is named beside `done`",
    "judged": "`judged by a model`: the judge was wrong",
    "checked": "`checked`: the model's own checks were wrong",
}

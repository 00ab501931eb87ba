"""What the loop itself says to a model: fixed sentences, so that the same conversation reads the same again."""

from collections.abc import Iterable

from agentfs.executor.repeats import FAIL_AT

PROSE = "That was text, and no tool was called. Call a tool, or `finish` if the step is done."
NOTHING_RUN = "Nothing was run. Reply with one block and no other words."
NOTHING_RUN_OR_DONE = f"{NOTHING_RUN} If the step is done, reply DONE: and the answer."
IN_WORDS = "(it makes no native calls: the conversation begins again, in words)"  # for the log alone
NEXT = "If the step is done, reply DONE: and the answer. If not, reply with the next block."
NEXT_FAILED = "Reply with another block."
CUT = "Your reply was cut short because it was too long, and nothing was run. Say less in one reply."
ALONE = "Refused: you have not seen yet what the other calls of this reply brought. Look at it, then end the step."
MANY = "Nothing was run: too many calls in one reply."
NOTHING_DONE = "Refused: no tool has done anything yet. Do the step first; if it truly needs no tool, end it again."
CONTRADICTION = (
    "Refused: `ok` is true, and `blocked` says why the step cannot be done. Only one can be so: set ok to false, "
    "or blocked to null."
)
PLAN_FIRST = (
    "Refused: first write your plan, by this tool with your own steps: "
    '{"tool": "write_file", "path": "PLAN.md", "content": "- [ ] first step"}. Then other calls are taken.'
)
LAST_TURN = "One turn is left: end the step now, with what you have."
UNCONFINED = (
    "Refused: there is no sandbox here (bubblewrap), and a model may run programs only inside one. "
    'A person can install bubblewrap, or set sandbox = "off" under [tools] in agentfs.toml.'
)


def not_accepted(wrong: Iterable[str]) -> str:
    """Say that a claim does not hold: what kind of check failed and what it printed, never how to satisfy it."""
    listed = "\n".join(f"- {one}" for one in wrong)
    return f"Not done yet. The result was checked, and this is not as the goal wants it:\n{listed}\nGo on working."


def unknown(name: str, known: Iterable[str]) -> str:
    return f"There is no tool {name!r}. The tools of this step are: {', '.join(known)}."


def wrong_arguments(problems: Iterable[str]) -> str:
    return f"Nothing was run: the arguments do not fit. {'; '.join(problems)}"


def not_json(problem: str) -> str:
    return f"Nothing was run: the arguments are not a JSON object ({problem})."


def repeated(name: str, count: int) -> str:
    what = f"called `{name}` with these arguments" if name else "said this"
    return (
        f"You have {what} {count} times, and nothing changed. Do something else, or end the step and say what is "
        f"in the way. At the {FAIL_AT}th time the step is taken from you."
    )


def plan_note(plan: str) -> str:
    """Return the note that holds PLAN.md as it stands."""
    return f"{PLAN_NOTE}\n\n{plan}"


PLAN_NOTE = "Your PLAN.md, as it stands now:"

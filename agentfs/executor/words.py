"""What the loop itself says to a model: fixed sentences, so that the same conversation reads the same again."""

from collections.abc import Iterable

from agentfs.executor.repeats import FAIL_AT

PROSE = (
    "That was text, and no tool was called. A step ends only by the tool `finish`. "
    "Call a tool now: one that gets the step done, or `finish`."
)
CUT = (
    "Your reply was cut short because it was too long, and no tool was called. "
    "Say less in one reply: call one tool, with shorter arguments."
)
CUT_CALL = "Nothing was run: your reply was cut short because it was too long. Call one tool, with shorter arguments."
ALONE = (
    "Refused: this call ends the step, so it must be the only one in a reply. "
    "Look at what the other calls gave back, then call it alone."
)
MANY = "Nothing was run: too many calls in one reply."
CONTRADICTION = (
    "Refused: `ok` is true, and `blocked` says why the step cannot be done. Only one can be so: set ok to false, "
    "or blocked to null."
)
PLAN_FIRST = "Refused: first write your plan, with `write_file` to the path PLAN.md. Then this call will be taken."
LAST_TURN = "One turn is left: call `finish` now, alone, with what you have."
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
        f"You have {what} {count} times, and nothing changed. Do something else, or call `finish` with ok set to "
        f"false and say what is in the way. At the {FAIL_AT}th time the step is taken from you."
    )


def plan_note(plan: str) -> str:
    """Return the note that holds PLAN.md as it stands."""
    return f"{PLAN_NOTE}\n\n{plan}"


PLAN_NOTE = "Your PLAN.md, as it stands now:"

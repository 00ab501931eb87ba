"""Words that several views share. Pure but for what they are given."""

from agentfs.core.decide import Wait
from agentfs.engine import Driver


def duration(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def waiting_words(driver: Driver, rest: Wait | None) -> list[str]:
    """Return what a person has to know when a run rests, and exactly what to do."""
    outcome, name = driver.facts.outcome, driver.folder.name
    if outcome is not None:
        lines = [f"{driver.facts.run.run}: {outcome.status}, {outcome.summary}"]
        if outcome.status == "failed":
            lines.append(f"see what happened: agentfs show {name}")
        return lines
    if rest is None:
        return []
    return [f"{driver.facts.run.run} waits: {rest.why}", *_what_to_do(driver), f"then: agentfs run --resume {name}"]


def _what_to_do(driver: Driver) -> list[str]:
    """Return the files that wait for a reply, with the words that count."""
    lines = []
    for view in driver.state.moving("person"):
        gate = view.status == "gated"
        words = "approve or reject" if gate else "again, done or failed"
        number = view.next if gate else view.attempt
        lines.append(f"  read {driver.folder}/steps/{view.id}.{number}.question.md")
        lines.append(f"  answer in {driver.folder}/steps/{view.id}.{number}.reply.md: {words}, on its first line")
    if (one := driver.state.unapplied) and one.asked:
        lines.append(f"  read {driver.folder}/planning/{one.number}.question.md")
        lines.append(
            f"  answer in {driver.folder}/planning/{one.number}.reply.md: approve or reject, on its first line"
        )
    plan = driver.facts.plan
    if plan is not None and plan.status in ("draft", "paused"):
        lines.append(f'  look at {driver.folder}/plan.json; set "status" to "approved" to go on')
    return lines

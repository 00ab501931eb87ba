"""Every reader of an agent's stream, over streams that were recorded from the real one: what each attempt comes to.

    .venv/bin/python -m tests.recordings.record_agents codex        records them again

The model behind them is scripted (tests/agent_models.py): it writes a file and says so; says so without doing anything
(claim); answers in prose; refuses; is out of reach (401, 429); runs the same command without end; is killed.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentfs.agents.presets import PRESETS, configure_agents, fill
from agentfs.agents.running import END, EVENT, Attempted, replay_attempt, runs_in, text_of, usage_of
from agentfs.agents.story import End, Ended, Event, Narrator, Runs, Said, Story, last_object, verdict
from agentfs.agents.streams import READERS
from agentfs.core.config import AgentSettings
from agentfs.core.records import Failure
from agentfs.executor.conversation import fits_finish
from tests.agent_models import ANSWER

RECORDINGS = Path(__file__).parent.parent / "recordings" / "agents"
AGENTS = [*PRESETS]


@dataclass(frozen=True)
class Recording:
    """One attempt as it was logged."""

    entries: list[dict[str, Any]]
    made: bool  # the file that the work was about


def recording(name: str, case: str) -> Recording:
    path = RECORDINGS / f"{name}-{PRESETS[name].tested}" / f"{case}.jsonl"
    end, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    made = end.pop("made")
    return Recording([*({"event": EVENT, "raw": one} for one in lines), {"event": END, **end}], made)


def attempted(name: str, case: str) -> Attempted:
    found = replay_attempt(PRESETS[name].speaks, recording(name, case).entries)
    assert found is not None
    return found


def judged(name: str, case: str) -> Any:
    found = attempted(name, case)
    return verdict(PRESETS[name], found.end, found.story, fits_finish, lambda: "9.9.9")


@pytest.mark.parametrize("name", AGENTS)
def test_done_is_done(name: str) -> None:
    assert recording(name, "ok").made
    assert judged(name, "ok") == ANSWER
    story = attempted(name, "ok").story
    assert story.turns >= 2
    assert story.unknown == []
    used = usage_of(story, PRESETS[name])
    # Anthropic does not count what it had already among what it was sent; the scripted model says 100 and 40 to all.
    assert (used.cached_tokens / used.input_tokens, used.output_tokens) == (
        40 / (140 if name == "claude" else 100),
        14,
    )
    assert (used.cost_usd is not None) == (name in ("claude", "opencode"))
    ran = [
        (one.what.count("out.txt"), one.output.strip(), one.ok)
        for one in runs_in(name, recording(name, "ok").entries)
    ]
    assert ran == [(1, "written", True)]


@pytest.mark.parametrize("name", AGENTS)
def test_what_a_person_sees_of_it(name: str) -> None:
    """What it runs without the shell around it, and of its answer what it says; harmless notices of an unknown model aside."""
    reader, narrator = READERS[PRESETS[name].speaks](), Narrator()
    lines = [text_of(one["raw"]) for one in recording(name, "ok").entries if one["event"] == EVENT]
    shown = [words for line in lines for words in narrator.tell(reader.take(line)) if "Model metadata" not in words]
    assert shown == ["runs: echo hello > out.txt; echo written", "answers: it is fixed"]


def test_a_message_in_pieces_is_shown_line_by_line() -> None:
    narrator = Narrator()
    pieces = ("I lo", "ok.\nThen", " I fix", " it.\n\n", '{"ok": false, ', '"output": "no"}')
    events: list[Event] = [*(Said(text, part=True) for text in pieces), Runs("make"), Said("Done.\nReally."), Ended()]
    lines = [[*narrator.tell([event])] for event in events]
    expected = [[], ["says: I look."], [], ["says: Then I fix it."], [], [], ["gives up: no", "runs: make"]]
    assert lines == [*expected, ["says: Done. Really."], []]


@pytest.mark.parametrize("name", AGENTS)
def test_a_claim_looks_like_success(name: str) -> None:
    """Which is why it is evidence, and the step's checks are the verdict."""
    assert not recording(name, "claim").made
    assert judged(name, "claim") == ANSWER


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("case", ["prose", "refusal", "401", "429", "loop", "killed"])
def test_what_is_not_done_is_not_taken_for_it(name: str, case: str) -> None:
    failure = judged(name, case)
    assert isinstance(failure, Failure), failure
    kinds = {
        "prose": {"agent"},
        "refusal": {"agent", "exit"},
        "401": {"exit", "agent"},
        "429": {"exit", "agent", "timeout"},
    }
    kinds |= {"loop": {"agent", "exit", "limit"}, "killed": {"interrupted"}}
    assert failure.kind in kinds[case]
    assert "Traceback" not in failure.message


@pytest.mark.parametrize("name", AGENTS)
def test_a_missing_key_is_reported_with_how_to_give_one(name: str) -> None:
    failure = judged(name, "401")
    assert failure.hint is not None
    assert failure.hint.startswith("it needs a key: set ")


@pytest.mark.parametrize("name", AGENTS)
def test_an_unknown_event_is_passed_over(name: str) -> None:
    entries = recording(name, "ok").entries
    entries.insert(1, {"event": EVENT, "raw": {"type": "telepathy", "message": {"content": "hm"}}})
    found = replay_attempt(PRESETS[name].speaks, entries)
    assert found is not None
    assert found.story.unknown == ["telepathy"]
    assert verdict(PRESETS[name], found.end, found.story, fits_finish, lambda: None) == ANSWER


TERMINAL = {
    "codex": "turn.completed",
    "claude": "result",
    "opencode": "step_finish",
    "gemini": "result",
    "goose": "complete",
}


@pytest.mark.parametrize("name", AGENTS)
def test_a_terminal_event_that_is_not_as_it_was_names_the_version(name: str) -> None:
    entries = recording(name, "ok").entries
    for entry in entries:
        if entry["event"] == EVENT and entry["raw"]["type"] == TERMINAL[name]:
            entry["raw"] = {"type": TERMINAL[name], "verdict": "fine"}
    found = replay_attempt(PRESETS[name].speaks, entries)
    assert found is not None
    failure = verdict(PRESETS[name], found.end, found.story, fits_finish, lambda: "9.9.9")
    assert failure.message.startswith(f"{name} 9.9.9 cannot be read: its event {TERMINAL[name]!r} is not as it was")
    assert failure.hint == f"install {name} {PRESETS[name].tested}, or a newer agentfs"


@pytest.mark.parametrize("name", AGENTS)
def test_an_end_without_terminal_event_is_none(name: str) -> None:
    entries = [one for one in recording(name, "ok").entries if one.get("raw", {}).get("type") != TERMINAL[name]]
    found = replay_attempt(PRESETS[name].speaks, entries)
    assert found is not None
    failure = verdict(PRESETS[name], found.end, found.story, fits_finish, lambda: None)
    assert failure.kind == "agent"
    assert failure.message.startswith("it ended without saying how: there is no terminal event")


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("junk", ["", "banner", "[1, 2]", "{", '{"type": null}', '{"type": "message"}', "{}", "null"])
def test_a_reader_takes_anything(name: str, junk: str) -> None:
    story = Story()
    for event in READERS[name]().take(junk):
        story.take(event)
    assert story.ended is None


# ── any other program ─────────────────────────────────────────────────────────────────────────────────────


def test_text_is_one_message_and_its_last_object_the_answer() -> None:
    lines = ["thinking {1, 2}", "", "done:", "```json", '{"ok": true,', '"output": "x"}', "```"]
    found = replay_attempt(
        "text", [*({"event": EVENT, "raw": line} for line in lines), {"event": END, "exit_code": 0}]
    )
    assert found is not None
    answer = verdict(
        configure_agents({"mine": AgentSettings()})["mine"], found.end, found.story, fits_finish, lambda: None
    )
    assert answer == {"ok": True, "output": "x"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no object", None),
        ('{"a": 1} and {"b": 2} .', {"b": 2}),
        ('{"a": {"b": 2}}', {"a": {"b": 2}}),
        ('{"a": 1} {broken', {"a": 1}),
        ("{" * 2000, None),
    ],
)
def test_the_last_object_of_a_text(text: str, found: Any) -> None:
    assert last_object(text) == found


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_place_without_a_value_goes_with_its_flag() -> None:
    words = ["x", "-m", "{model}", "--dir={workdir}", "--turns={max_turns}", "-", "{schema}"]
    assert fill(words, {"workdir": "/w", "schema": "/s"}) == ["x", "--dir=/w", "-", "/s"]
    assert fill(words, {"workdir": "/w", "model": "m", "max_turns": "3"}) == ["x", "-m", "m", "--dir=/w", "--turns=3"]


def test_a_section_overrides_its_preset_and_keeps_the_rest() -> None:
    agents = configure_agents(
        {"codex": AgentSettings(env=("A",), idle_s=5), "mine": AgentSettings(command=("mine", "-"))}
    )
    assert (agents["codex"].env, agents["codex"].idle_s, agents["codex"].speaks) == (("A",), 5, "codex")
    assert (agents["mine"].command, agents["mine"].speaks, agents["mine"].env) == (("mine", "-"), "text", ())
    assert agents["claude"] == PRESETS["claude"]


@pytest.mark.parametrize("name", AGENTS)
def test_no_preset_has_the_order_in_its_command(name: str) -> None:
    values = {
        "workdir": "/w",
        "schema": "/s",
        "schema_text": "{}",
        "model": "m",
        "max_turns": "3",
        "max_cost_usd": "1",
    }
    assert not any("{" in word.replace("{}", "") for word in fill(PRESETS[name].command, values))


def test_an_agent_that_we_stopped_is_interrupted_and_one_that_is_silent_failed() -> None:
    agent = configure_agents({"codex": AgentSettings(idle_s=3)})["codex"]
    stopped = verdict(agent, End(0, "stop"), Story(), fits_finish, lambda: None)
    silent = verdict(agent, End(143, "idle"), Story(), fits_finish, lambda: None)
    late = verdict(
        agent,
        End(143, "timeout", "it took longer than 600 s"),
        Story(trouble="no network"),
        fits_finish,
        lambda: None,
    )
    assert (stopped.kind, silent.kind, late.kind) == ("interrupted", "timeout", "timeout")
    assert late.message == "it took longer than 600 s (the last it reported: no network)"
    assert (silent.message, silent.hint) == (
        "it printed nothing new for 3 s and was killed",
        "raise idle_s under [agents.codex]",
    )

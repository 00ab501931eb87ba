"""Parts of a page by themselves: what is folded, where ticks are, how a log, a question and a difference read."""

import json
import re
from html import unescape

from agentfs.core.excerpts import with_output
from agentfs.web.changes import difference_el, effects_el
from agentfs.web.graph import MOST, Node, drawable, fold_nodes
from agentfs.web.html import Html
from agentfs.web.log_lines import log_els
from agentfs.web.sections import prose
from agentfs.web.timeline import _tick_places, make_axis


def text(html: Html) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def output(words: str, stream: str = "stdout", at: str = "2026-11-18T05:00:00.000000Z") -> dict[str, str]:
    return {"event": "output", "at": at, "stream": stream, "text": words}


def log(*entries: dict[str, str]) -> list[Html]:
    return log_els("".join(json.dumps(entry) + "\n" for entry in entries).encode())


def test_what_a_program_prints_in_pieces_is_one_line() -> None:
    pieces = (output(one, "stderr") for one in ("\x1b", "[", "3", "1", "mline 3 is", " bad\x1b[0m\nnext\n"))
    found = log({"event": "claim", "at": "2026-11-18T05:00:00.000000Z"}, *pieces, output("out\n"))
    assert [text(one) for one in found] == [
        "05:00:00 claim",
        "05:00:00 line 3 is bad",
        "05:00:00 next",
        "05:00:00 out",
    ]
    assert found[1].count('class="c1"') == 1


def test_colours_are_no_words_of_an_error() -> None:
    assert with_output("exit code 1", "\x1b[1m\x1b[31mno such file\x1b[0m\n") == "exit code 1: no such file"


def test_a_question_reads_as_prose_and_its_blocks_stay_as_they_are() -> None:
    asked = "# pay failed: a \\*b\\*\n\nIt would run (`sh`):\n\n~~~\necho \\*a\\* `b`\n\n ~~~\n~~~\n\nWhy: x"
    assert prose(asked) == (
        "<p><strong>pay failed: a *b*</strong></p><p>It would run (<code>sh</code>):</p>"
        '<pre class="question" tabindex="0">echo \\*a\\* `b`\n\n ~~~</pre><p>Why: x</p>'
    )


def test_shards_of_many_steps_become_one_node_and_the_failure_stays_visible() -> None:
    needs: dict[str, tuple[str, ...]] = {"prepare": ()}
    for shard in range(8):
        needs[f"read-{shard}"] = ("prepare",)
        parts = tuple(f"part-{shard}-{n}" for n in range(17))
        needs |= dict.fromkeys(parts, (f"read-{shard}",))
        needs[f"close-{shard}"] = parts
    needs["swap"] = tuple(f"close-{shard}" for shard in range(8))
    words = {"close-7": "failed", "swap": "waiting"}
    nodes, _ = fold_nodes({name: Node(name, words.get(name, "done")) for name in needs}, needs)
    seen = [(node.title, node.word) for node in nodes.values()]
    assert seen == [
        ("prepare", "done"), ("133 steps", "done"), ("18 steps", "done"), ("close-7", "failed"), ("swap", "waiting")
    ]  # fmt: skip


def test_what_is_drawn_of_a_large_plan_is_what_is_nearest_to_the_failure() -> None:
    """Three hundred chains of two, so that nothing folds: the failure, what it needs and what needs it come first."""
    needs: dict[str, tuple[str, ...]] = {}
    for n in range(300):
        needs |= {f"a-{n}": (), f"b-{n}": (f"a-{n}",)}
    needs["last"] = ("b-250", "b-251")
    nodes = {name: Node(name, "failed" if name == "b-250" else "done") for name in needs}
    shown, edges, left_out = drawable(nodes, needs)
    assert {"a-250", "b-250", "last", "b-251", "a-251"} <= set(shown)
    assert (len(shown), left_out) == (MOST, 601 - MOST)
    assert (edges["last"], edges["b-250"]) == (("b-250", "b-251"), ("a-250",))
    assert list(shown) == [name for name in needs if name in shown]  # in the plan's order


def test_ticks_are_at_round_moments_and_not_in_what_is_folded() -> None:
    assert [round(moment, 3) for moment, _ in _tick_places(make_axis([(0.0, 1.7)], 820.0))] == [0, 0.5, 1, 1.5]
    asked = make_axis([(0.0, 4.0), (1000.0, 1004.0)], 820.0)  # a person took a quarter of an hour
    assert [moment for moment, _ in _tick_places(asked)] == [0, 2, 4, 1000, 1002, 1004]
    day = make_axis([(7200.0 * 3 + 100, 7200.0 * 3 + 4000)], 820.0)
    assert [moment % 600 for moment, _ in _tick_places(day)] == [0] * 6  # of the day, not since the beginning


def test_a_difference_marks_whole_words() -> None:
    fields = [
        {
            "field": "input.command",
            "old": "echo sent to team@example.org and Ada",
            "new": "echo sent to all@example.org and Ada",
        }
    ]
    shown = difference_el({"plan": fields, "steps": []})
    assert re.findall(r"<mark>(.*?)</mark>", shown) == ["team@example.org", "all@example.org"]
    longer = difference_el({"plan": [{**fields[0], "new": f"{fields[0]['old']} and everybody else"}], "steps": []})
    assert re.findall(r"<mark>(.*?)</mark>", longer) == [" and everybody else"]
    short = difference_el({"plan": [{"field": "status", "old": "draft", "new": "approved"}], "steps": []})
    assert text(short) == "status draft → approved"


def test_consequences_are_listed_and_drawn() -> None:
    effects = [
        {"step": "a", "fate": "again", "why": "changed"},
        *({"step": f"s{n}", "fate": "kept", "why": ""} for n in range(3)),
    ]
    shown = effects_el(effects)
    assert text(shown).startswith("reruns 1 step , keeps 3 runs again a changed kept s0 s1 s2")
    assert re.findall(r'x="([\d.]+)" width="([\d.]+)" height="6" class="bar (good|person)"', shown) == [
        ("0.0", "75.0", "good"), ("75.0", "25.0", "person")
    ]  # fmt: skip

"""What a goal's `context` may name: it is sent to a model's endpoint.

A dropped goal is held to [goals] workdirs and never shows what is the workspace's own; `check` says what `watch` says.
Reading without the rule, or judging at intake only, makes these fail (each was tried).
"""

import json
import os
from pathlib import Path

import pytest

from agentfs.planner.surroundings import look_around
from agentfs.testing import ScriptedServer
from tests.builders import a_run
from tests.daemons import Watching
from tests.workspaces import Place, wait_for

SECRET = "sk-in-a-file-4711"
KEPT = {
    ".env": "files hold keys",
    ".env.local": "files hold keys",
    "work/.env": "files hold keys",
    "work/.envs/prod": "files hold keys",
    "runs/2026-11-16/other/outcome.json": "runs belongs to the workspace",
    "runs/.git/config": "runs belongs to the workspace",
    "agentfs.toml": "agentfs.toml belongs to the workspace",
    "goals/other.md": "goals belongs to the workspace",
    "tools/mine.py": "tools belongs to the workspace",
    ".mcp.json": ".mcp.json belongs to the workspace",
    "work/inner/runs/x": "runs belongs to the workspace",
    "work/way-in": "files hold keys",
}
OUTSIDE = (
    "/etc/passwd",
    "../home/secret",
    "work/../../home/secret",
    "work/way-out",
    "private.txt",
    "work/up/private.txt",
)


def workspace(tmp_path: Path, workdirs: str = '"."') -> Place:
    """A workspace with something private in every place."""
    place = Place(tmp_path)
    place.agentfs("init")
    (place.root / "agentfs.toml").write_text(f"[goals]\nworkdirs = [{workdirs}]\n")
    (place.home / "secret").write_text(SECRET)
    for name in (*KEPT, "private.txt", "work/inner/agentfs.toml"):
        path = place.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name != "agentfs.toml" and name not in ("work/way-in", "goals/other.md", "runs/.git/config"):
            path.write_text(SECRET)
    (place.root / "work/inner/agentfs.toml").touch()
    (place.root / "work/way-in").symlink_to("../.env")
    (place.root / "work/way-out").symlink_to(place.home / "secret")
    (place.root / "work/up").symlink_to("..")
    (place.root / "work/notes.md").write_text("the style is terse")
    return place


def goal(*items: str, front: str = "") -> str:
    return f"---\ncontext: {json.dumps(items)}\n{front}---\nTidy the invoices\n"


def test_a_dropped_goal_shows_no_model_what_is_not_its_own(tmp_path: Path) -> None:
    """Each is rejected with its reason, and `agentfs check` gives the same one; no request is ever made."""
    place = workspace(tmp_path, '"work"')
    with ScriptedServer() as server:
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-for-tests"}
        wanted = {**KEPT, **dict.fromkeys(OUTSIDE, "it lies outside the folders a goal may work in")}
        with Watching(place) as daemon:
            names = {f"goal-{n}.md": item for n, item in enumerate(wanted)}
            for name, item in names.items():
                daemon.drop(name, goal("be kind to people", item))
            reasons = {item: daemon.rejected(name) for name, item in names.items()}
        for name, item in names.items():
            message = f"context: {item!r} may not be read: "
            assert message in reasons[item]
            code, out, _ = place.looks("check", f"goals/rejected/{name}", env=place.env)
            assert (code, message in out) == (2, True), out
        outside = "it lies outside the folders a goal may work in"
        for item, words in wanted.items():
            assert words in reasons[item] or outside in reasons[item], reasons[item]
        assert server.requests == []
    assert not any(place.runs.glob("????-??-??/goal-*"))


@pytest.mark.parametrize("workdirs", ['"."', '"work"'])
def test_what_it_may_name_is_sent(tmp_path: Path, workdirs: str) -> None:
    place = workspace(tmp_path, workdirs)
    with ScriptedServer() as server:
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-for-tests"}
        server.plan(
            {
                "steps": [
                    {"id": "a", "description": "x", "success_condition": "x", "tool": "note", "input": {"text": "x"}}
                ]
            }
        )
        with Watching(place) as daemon:
            daemon.drop(
                "words.md", goal("work/notes.md", "urgent", "no-such.md", "plain words", front="mode: split\n")
            )
            daemon.folder("words")
            wait_for(lambda: bool(server.requests), "the planner to be asked")
        sent = json.dumps(server.requests)
    assert "the style is terse" in sent
    assert SECRET not in sent


def test_the_folder_rule_may_name_a_part_of_the_workspace(tmp_path: Path) -> None:
    place = workspace(tmp_path, '"tools"')
    (place.root / "goals/x.md").write_text(goal("tools/mine.py"))
    code, out, _ = place.looks("check", "goals/x.md")
    assert (code, "context" in out) == (4, False), "only a model is missing"


def test_a_file_swapped_after_the_goal_was_judged_is_not_sent(tmp_path: Path) -> None:
    """What is read is held to the rule once more: a step may have put a link there since."""
    place = workspace(tmp_path)
    folder = place.runs / "2026-11-16/job"
    (folder / "files").mkdir(parents=True)
    run = a_run().model_copy(update={"context_from": (".",)})
    for name in ("work/later", "work/linked"):
        os.symlink("../.env", place.root / name)
    items = ("work/later", "work/linked", "work/notes.md", *KEPT, *OUTSIDE[:4])
    shown = dict(look_around(folder, run, place.root, items)[0].context)
    assert shown["The file work/notes.md"] == "the style is terse"
    assert SECRET not in "".join(shown.values())


def test_a_persons_own_goal_names_any_file_of_the_workspace_but_keys(tmp_path: Path) -> None:
    place = workspace(tmp_path, '"work"')
    with ScriptedServer() as server:
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-for-tests"}
        server.plan(
            {
                "steps": [
                    {"id": "a", "description": "x", "success_condition": "x", "tool": "note", "input": {"text": "x"}}
                ]
            }
        )
        mine = place.goal(goal("private.txt", "runs/2026-11-16/other/outcome.json", front="mode: split\n"), "mine.md")
        place.agentfs("plan", mine, code=None)
        assert json.dumps(server.requests).count(SECRET) >= 2
        count = len(server.requests)
        for item in (".env", "work/way-in", "/etc/passwd"):
            refused = place.agentfs("run", place.goal(goal(item), "keys.md"), code=2)
            assert f"context: {item!r} may not be read: " in refused.stderr
        assert len(server.requests) == count
    note = place.looks("check", "mine.md", env=place.env)[2]
    assert "mine.md: ok for `run`; dropped into goals/ it is refused: context: 'private.txt' may not be read" in note

"""`agentfs verify`: every kind of tampering is found and named; what was not tampered with raises no alarm.

That they can fail was tried: without the comparison with what was committed 12 of 19 that edit or delete files do,
without the walk through history all 11 that rewrite it unseen, amend, merge or commit by hand.
"""

import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agentfs.core.agreement import Disagreement
from agentfs.ledger.verify import Verification
from agentfs.storage.workspace import Workspace
from tests.ledgers import git
from tests.workspaces import Place, end, wait_for

BOOK = """\
### list
```sh
echo one; echo two
```

### total
```sh
echo 41
```

### send
gate
```sh
false
```
retries: 1

### post
instead of: send
```sh
echo posted
```
"""
pytestmark = pytest.mark.tampers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a run of three revisions, a gate, two attempts and an alternative; one more; and an open one."""
    place = Place(tmp_path_factory.mktemp("model"))
    place.agentfs("run", place.runbook(BOOK), code=3)
    for attempt in (1, 2):
        (place.run_folder() / "steps" / f"send.{attempt}.reply.md").write_text("approve\n")
        plan = place.run_folder() / "plan.json"
        if attempt == 1:
            plan.write_text(plan.read_text().replace("echo 41", "echo 42"))
        place.agentfs("run", "--resume", "job", code=3 if attempt == 1 else 0)
    assert [path.name for path in sorted((place.run_folder() / "revisions").glob("?.json"))] == [
        "1.json",
        "2.json",
        "3.json",
    ]
    place.agentfs("run", place.runbook("### list\n```sh\necho other\n```\n", name="other.md"))
    place.agentfs("plan", place.runbook("### list\n```sh\necho open\n```\n", name="open.md"))
    return place.root


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    """A copy of it to tamper with."""
    return Path(shutil.copytree(model, tmp_path / "work", symlinks=True))


def job(root: Path, name: str = "job") -> Path:
    (found,) = (root / "runs").glob(f"*/{name}")
    return found


def wrong(root: Path, run: str | None = None) -> list[Disagreement]:
    """Return what is found to be wrong."""
    workspace = Workspace(root)
    work = Verification(workspace, workspace.find_run(run) if run else None, patience=0)
    return [one for one in work.disagreements() if one.grade == "wrong"]


def shown(root: Path, run: str | None = None) -> list[tuple[str, str]]:
    day = job(root).parent.name if any((root / "runs").glob("*/job")) else "????-??-??"
    return [(one.file.removeprefix(f"{day}/"), one.what) for one in wrong(root, run)]


def test_nothing_was_tampered_with(copy: Path) -> None:
    assert wrong(copy) == []
    assert wrong(copy, "job") == wrong(copy, "other") == wrong(copy, "open") == []


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────


def changed(path: str, old: str, new: str) -> Callable[[Path], object]:
    def act(run: Path) -> None:
        text = (run / path).read_text()
        assert old in text, text
        (run / path).write_text(text.replace(old, new, 1))

    return act


def removed(*paths: str) -> Callable[[Path], object]:
    def act(run: Path) -> None:
        for path in paths:
            (run / path).unlink()

    return act


def swapped(one: str, other: str) -> Callable[[Path], object]:
    def act(run: Path) -> None:
        first, second = (run / one).read_bytes(), (run / other).read_bytes()
        (run / one).write_bytes(second)
        (run / other).write_bytes(first)

    return act


def linked(path: str) -> Callable[[Path], object]:
    def act(run: Path) -> None:
        os.rename(run / path, run.parent / "elsewhere")
        (run / path).symlink_to(run.parent / "elsewhere")

    return act


def forged(run: Path) -> None:
    text = (run / "steps" / "post.1.result.json").read_text()
    (run / "steps" / "post.2.result.json").write_text(text.replace('"attempt": 1', '"attempt": 2'))


def of_another_run(run: Path) -> None:
    shutil.copy(run.parent / "other" / "steps" / "list.1.result.json", run / "steps" / "list.1.result.json")


def consistently(run: Path) -> None:
    """The plan of a revision and the hash in its record, and in the one after."""
    import hashlib

    plan, record, after = (run / "revisions" / name for name in ("2.plan.json", "2.json", "3.json"))
    old = hashlib.sha256(plan.read_bytes()).hexdigest()
    plan.write_text(plan.read_text().replace("echo 42", "echo 43"))
    for path in (record, after):
        path.write_text(path.read_text().replace(old, hashlib.sha256(plan.read_bytes()).hexdigest()))


NOT = "is not what was committed"
GONE = "is gone, and the ledger has it"
FILES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a result is edited": (changed("steps/total.2.result.json", "42", "43"), [f"steps/total.2.result.json: {NOT}"]),
    "two results are swapped": (
        swapped("steps/list.1.result.json", "steps/post.1.result.json"),
        ["steps/list.1.result.json: is of attempt 1 of post", "steps/post.1.result.json: is of attempt 1 of list"],
    ),
    "two attempts are swapped": (
        swapped("steps/send.1.result.json", "steps/send.2.result.json"),
        ["steps/send.1.result.json: is of attempt 2 of send", f"steps/send.2.result.json: {NOT}"],
    ),
    "a result of another run": (of_another_run, [f"steps/list.1.result.json: {NOT}"]),
    "a result is deleted": (removed("steps/list.1.result.json"), [f"steps/list.1.result.json: {GONE}"]),
    "a result is forged": (forged, ["steps/post.2.result.json: came after the run had ended"]),
    "a result becomes a link": (linked("steps/list.1.result.json"), [f"steps/list.1.result.json: {GONE}"]),
    "an order is edited": (changed("steps/list.1.json", "echo two", "echo six"), [f"steps/list.1.json: {NOT}"]),
    "an order is deleted": (removed("steps/list.1.json"), [f"steps/list.1.json: {GONE}"]),
    "an attempt is deleted": (
        removed("steps/total.1.json", "steps/total.1.result.json", "steps/total.1.log.jsonl"),
        ["steps/total.1.result.json: is missing, with all of its attempt"],
    ),
    "the last revision is deleted": (removed("revisions/3.json"), [f"revisions/3.json: {GONE}"]),
    "a revision in the middle is deleted": (
        removed("revisions/2.json", "revisions/2.plan.json"),
        ["revisions/2.json: is missing, and later revisions are there"],
    ),
    "a revision's plan is deleted": (removed("revisions/1.plan.json"), ["revisions/1.plan.json: is missing"]),
    "a revision's plan is edited": (
        changed("revisions/1.plan.json", "echo 41", "echo 40"),
        ["revisions/1.plan.json: is not the plan that revisions/1.json names (plan_sha256)"],
    ),
    "a plan and its hashes are edited": (consistently, [f"revisions/2.json: {NOT}", f"revisions/2.plan.json: {NOT}"]),
    "a revision has another author": (changed("revisions/2.json", '"person"', '"planner"'), [f"revisions/2.json: {NOT}"]),
    "a revision has another base": (
        changed("revisions/3.json", '"base_sha256": "', '"base_sha256": "' + "0" * 64 + '", "was": "'),
        ["revisions/3.json: does not read"],
    ),
    "a revision loses its base": (
        lambda run: (run / "revisions" / "3.json").write_text(
            json.dumps({**json.loads((run / "revisions" / "3.json").read_text()), "base_sha256": "0" * 64})
        ),
        ["revisions/3.json: does not follow on revision 2 (base_sha256)"],
    ),
    "revisions are swapped": (
        swapped("revisions/1.json", "revisions/2.json"),
        ["revisions/1.json: says it is revision 2", "revisions/2.json: says it is revision 1"],
    ),
    "a call has another trigger": (
        changed("planning/2.json", "repeated_failure", "unexpected_state"),
        ["revisions/3.json: says something else than planning/2.json", f"planning/2.json: {NOT}"],
    ),
    "a call is deleted": (removed("planning/2.json"), ["planning/2.json: is missing, and revision 3 came of it"]),
    "an answer is edited": (changed("planning/2.result.json", "posted", "pasted"), [f"planning/2.result.json: {NOT}"]),
    "what was to be put in place is edited": (
        changed("planning/1.plan.1.json", "echo 41", "echo 40"),
        ["revisions/1.plan.json: is no plan that call 1 put in place", f"planning/1.plan.1.json: {NOT}"],
    ),
    "a question is edited": (changed("steps/send.1.question.md", "send", "sent"), [f"steps/send.1.question.md: {NOT}"]),
    "a reply is edited": (changed("steps/send.1.reply.md", "approve", "reject"), [f"steps/send.1.reply.md: {NOT}"]),
    "a reply is deleted": (removed("steps/send.2.reply.md"), [f"steps/send.2.reply.md: {GONE}"]),
    "the settings of the run are edited": (changed("run.json", '"network": false', '"network": true'), [f"run.json: {NOT}"]),
    "the goal is deleted": (removed("goal.md"), ["goal.md: is missing"]),
    "the outcome is edited": (
        changed("outcome.json", "posted", "pasted"),
        ["outcome.json: is not the outcome that was committed"],
    ),
    "the outcome counts something else": (
        changed("outcome.json", '"revisions": 3', '"revisions": 2'),
        ["outcome.json: counts 2 revisions, and 3 are there"],
    ),
    "a file does not read": (changed("steps/list.1.result.json", "{", "["), ["steps/list.1.result.json: does not read"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_files_that_were_tampered_with(copy: Path, kind: str) -> None:
    act, named = FILES[kind]
    act(job(copy))
    found = wrong(copy)
    lines = [f"{one.file.partition('/job/')[2]}: {one.what}" for one in found]
    for words in named:
        assert any(line.startswith(words) for line in lines), (words, lines)
    assert all(one.fix and "/job/" in one.file for one in found)
    assert wrong(copy, "job") == found


def test_a_whole_run_is_deleted(copy: Path) -> None:
    shutil.rmtree(job(copy, "other"))
    assert shown(copy) == [("other", "its folder is gone, and the ledger has it")]
    git(copy / "runs", "rm", "-rq", "--cached", "--", str(job(copy).parent.name) + "/other")
    git(copy / "runs", "commit", "-qm", "let it go")
    assert shown(copy) == []


def test_what_a_person_edits_is_reported_and_is_no_alarm(copy: Path) -> None:
    (job(copy) / "goal.md").write_text((job(copy) / "goal.md").read_text() + "\nAnd more.\n")
    changed("plan.json", "echo 42", "echo 44")(job(copy))
    (job(copy) / "steps" / "notes.txt").write_text("mine\n")
    (copy / "runs" / "mine.md").write_text("mine\n")
    git(copy / "runs", "add", "mine.md")
    git(copy / "runs", "commit", "-qm", "a file of mine")
    found = list(Verification(Workspace(copy), patience=0).disagreements())
    assert [(one.grade, one.file.rpartition("/")[2]) for one in found] == [("note", "plan.json"), ("note", "goal.md")]


# ── the ledger ────────────────────────────────────────────────────────────────────────────────────────────

OURS = {"GIT_COMMITTER_NAME": "agentfs", "GIT_COMMITTER_EMAIL": "agentfs@localhost"}


def commit_like(runs: Path, commit: str, *, tree: str = "", parent: str = "", **changes: str) -> str:
    """Make a commit again, with its committer's name and times, and something changed; return its name."""
    content = subprocess.check_output(["git", "cat-file", "commit", commit], cwd=runs, text=True)
    for old, new in changes.items():
        assert old.replace("_", " ") in content, content
        content = content.replace(old.replace("_", " "), new)
    if tree:
        content = f"tree {tree}\n" + content.partition("\n")[2]
    if parent:
        content = content.replace(content.split("\n")[1], f"parent {parent}", 1)
    return git(runs, "hash-object", "-t", "commit", "-w", "--stdin", given=content)


def rewritten_tip(**changes: str) -> Callable[[Path], object]:
    return lambda runs: git(runs, "update-ref", "refs/heads/main", commit_like(runs, "main", **changes))


def with_git(*words: str) -> Callable[[Path], object]:
    return lambda runs: git(runs, *words)


def commit_of(runs: Path, subject: str) -> str:
    return git(runs, "log", "--format=%H", "--fixed-strings", "--grep", subject, "main").splitlines()[0]


def dropped(subject: str) -> Callable[[Path], object]:
    """Leave a commit out, as `git rebase --onto` does."""

    def act(runs: Path) -> None:
        git(runs, "reset", "-q", "--hard")
        gone = commit_of(runs, subject)
        git(runs, "rebase", "-q", "-X", "theirs", "--onto", f"{gone}^", gone, "main")

    return act


def dropped_unseen(subject: str) -> Callable[[Path], object]:
    """Leave a commit out, and give those after it the names and times they had."""

    def act(runs: Path) -> None:
        gone = commit_of(runs, subject)
        tip = git(runs, "rev-parse", f"{gone}^")
        for sha in git(runs, "rev-list", "--reverse", f"{gone}..main").split():
            tip = commit_like(runs, sha, parent=tip)
        git(runs, "update-ref", "refs/heads/main", tip)

    return act


def damaged(spec: str, content: bytes | None) -> Callable[[Path], object]:
    def act(runs: Path) -> None:
        sha = git(runs, "rev-parse", spec.replace("JOB", f"main:{job(runs.parent).parent.name}/job"))
        path = runs / ".git" / "objects" / sha[:2] / sha[2:]
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        path.write_bytes(content) if content is not None else path.unlink()

    return act


def committed_by_hand(path: str, text: str | None) -> Callable[[Path], object]:
    """A person changes a file, and commits that: files and tree agree, and the history tells."""

    def act(runs: Path) -> None:
        file = job(runs.parent) / path
        file.unlink() if text is None else file.write_text(text)
        git(runs, "add", "-f", "--", str(file))
        git(runs, "commit", "-qm", "tidied up")

    return act


def squashed(runs: Path) -> None:
    one = git(runs, "commit-tree", "main^{tree}", "-m", "all of it")
    git(runs, "update-ref", "refs/heads/main", one)


def merged(runs: Path) -> None:
    side = git(runs, "commit-tree", "main~2^{tree}", "-p", "main~2", "-m", "beside")
    both = git(runs, "commit-tree", "main^{tree}", "-p", "main", "-p", side, "-m", "merged")
    git(runs, "update-ref", "refs/heads/main", both)


def claims_a_revision(runs: Path) -> None:
    last, numbers = (
        commit_of(runs, "job: revision 3"),
        {"revision_3": "revision 4", "Agentfs-Revision:_3": "Agentfs-Revision: 4"},
    )
    sha = commit_like(runs, last, parent=git(runs, "rev-parse", "main"), **numbers)
    git(runs, "update-ref", "refs/heads/main", sha)


def other_plan(runs: Path) -> None:
    """The last commit of a revision shows another plan.json than the revision's copy."""
    sha = commit_of(runs, "open: revision 1")
    assert sha == git(runs, "rev-parse", "main")
    git(runs, "read-tree", "main")
    blob = git(runs, "hash-object", "-w", "--stdin", given="{}")
    git(runs, "update-index", "--cacheinfo", f"100644,{blob},{job(runs.parent).parent.name}/open/plan.json")
    git(runs, "update-ref", "refs/heads/main", commit_like(runs, sha, tree=git(runs, "write-tree")))


def recommitted(runs: Path) -> None:
    git(runs, "reset", "-q", "--hard")
    git(runs, "rebase", "-q", "--root", "--force-rebase")


def graft(runs: Path) -> None:
    (runs / ".git" / "info" / "grafts").write_text(git(runs, "rev-parse", "main") + "\n")


LEDGER: dict[str, tuple[Callable[[Path], object], str]] = {
    "the author of the last commit is amended": (
        with_git("commit", "-q", "--amend", "--no-edit", "--allow-empty", "--author", "Eve <eve@example.org>"),
        "was made again by Ada <ada@example.org>: rebased, amended or forged (open: revision 1, the first plan)",
    ),
    "its author, unseen": (
        rewritten_tip(**{"author_agentfs_<agentfs@localhost>": "author Eve <eve@example.org>"}),
        "has another author than its record (Eve eve@example.org",
    ),
    "its message, unseen": (
        rewritten_tip(the_first_plan="the second plan"),
        "says something else than its record (open: revision 1, the second plan)",
    ),
    "its trailers, unseen": (rewritten_tip(**{"Agentfs-Trigger:_first": "Agentfs-Trigger: asked"}), "says something else"),
    "its headers, unseen": (
        rewritten_tip(**{"\n\n": "\nencoding UTF-8\nnote anything\n\n"}),
        "has a header that agentfs does not write: encoding, note",
    ),
    "its time": (
        lambda runs: git(runs, "update-ref", "refs/heads/main", _later(runs)),
        "has another author than its record (agentfs agentfs@localhost",
    ),
    "every commit is made again": (recommitted, "was made again by Ada"),
    "a revision's commit is dropped": (dropped("job: revision 2"), "was made again by Ada <ada@example.org>: rebased"),
    "a revision's commit is dropped, unseen": (dropped_unseen("job: revision 2"), "brings revision 2 of "),
    "the outcome's commit is dropped, unseen": (dropped_unseen("other: done"), "brings the outcome of "),
    "the last commit is dropped": (with_git("update-ref", "refs/heads/main", "main~1"), "has no commit, and nobody drives"),
    "the branch is deleted": (with_git("update-ref", "-d", "refs/heads/main"), "has no commit, and nobody drives the run"),
    "all commits become one": (squashed, "which has no commit of its own (by Ada)"),
    "an object is truncated": (damaged("JOB/plan.json", b"x\x9c"), "error: "),
    "an object is empty": (damaged("JOB/steps/list.1.result.json", b""), "error: "),
    "an object is deleted": (damaged("JOB/steps/list.1.result.json", None), "missing blob "),
    "a tree is deleted": (damaged("JOB/steps", None), "missing tree "),
    "a commit is deleted": (damaged("main~1", None), "missing commit "),
    "another object stands in for one": (with_git("replace", "main", "main~1"), "makes git show another object"),
    "a commit is given other parents": (graft, "gives commits other parents"),
    "history is cut off": (lambda runs: (runs / ".git" / "shallow").touch(), "cuts the history off"),
    "a person changes a result and commits that": (
        committed_by_hand("steps/list.1.result.json", "{}"), "/steps/list.1.result.json, which is written once (by Ada)",
    ),
    "a person deletes a result and commits that": (
        committed_by_hand("steps/list.1.json", None), "was taken out of the ledger by commit ",
    ),
    "a person changes a reply and commits that": (
        committed_by_hand("steps/send.1.reply.md", "reject\n"), "/steps/send.1.reply.md, which had been acted upon",
    ),
    "a merge": (merged, "is a merge, by Ada: the history is not a line any more"),
    "a commit claims a revision": (claims_a_revision, "does not bring revision 4 of "),
    "a commit shows another plan": (other_plan, "has another plan.json than "),
}  # fmt: skip


def _later(runs: Path) -> str:
    at = git(runs, "log", "-1", "--format=%at", "main")
    return commit_like(runs, "main", **{at: str(int(at) + 60)})


@pytest.mark.parametrize("kind", LEDGER)
def test_a_ledger_that_was_tampered_with(copy: Path, kind: str) -> None:
    act, words = LEDGER[kind]
    act(copy / "runs")
    found = wrong(copy)
    assert any(words in one.what for one in found), found
    assert all(one.fix for one in found)


def test_what_is_committed_with_a_later_revision_is_noticed_too(copy: Path) -> None:
    """A result is edited in a run that goes on: its next commit holds the edited one."""
    place = Place.__new__(Place)
    place.root, place.env = copy, _environment(copy)
    place.agentfs("trust", ".")
    place.agentfs("retry", "job", "post")
    changed("steps/total.2.result.json", "42", "43")(job(copy))
    changed("plan.json", "echo posted", "echo sent")(job(copy))
    place.agentfs("run", "--resume", "job")
    (line,) = shown(copy)
    assert line[1].endswith(
        "job/steps/total.2.result.json, which is written once (by " + line[1].rpartition("(by ")[2]
    )


def _environment(copy: Path) -> dict[str, str]:
    return {
        "HOME": str(copy.parent),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "LANG": "C.UTF-8",
    }


def test_nothing_that_was_planted_in_the_repository_runs(copy: Path) -> None:
    trap, runs = copy.parent / "trap", copy / "runs"
    trap.write_text(f"#!/bin/sh\necho >> {copy.parent}/sprung\ncat\n")
    trap.chmod(0o755)
    programs = ("core.fsmonitor", "core.pager", "gpg.program", "diff.external", "diff.x.textconv", "diff.x.command",
                "core.alternateRefsCommand", "core.sshCommand", "gc.recentObjectsHook", "filter.x.smudge")  # fmt: skip
    for key in programs:
        git(runs, "config", key, str(trap))
    for name in ("rev-list", "diff-tree", "cat-file", "fsck"):
        git(runs, "config", f"alias.{name}", f"!{trap}")
    git(runs, "config", "log.showSignature", "true")
    (runs / ".git" / "info" / "attributes").write_text("* diff=x filter=x\n")
    assert wrong(copy) == wrong(copy, "job") == []
    assert not (copy.parent / "sprung").exists()


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_says_it_in_lines_and_in_json(place: Place) -> None:
    place.agentfs("run", place.runbook("### a\n```sh\necho x\n```\n"))
    good = place.agentfs("verify")
    tip = place.git("rev-parse", "main").strip()
    assert (good.stdout, good.stderr) == (
        "",
        f"1 run, 1 revision, 2 commits, main at {tip}: files and ledger agree\n",
    )
    before = {path: path.stat().st_mtime_ns for path in place.root.rglob("*")}
    changed("steps/a.1.result.json", '"x"', '"y"')(place.run_folder())
    run = f"{place.run_folder().parent.name}/job"
    fix = f"take it back: git -C runs checkout main -- {run}/steps/a.1.result.json"
    bad = place.agentfs("verify", "job", code=2)
    assert bad.stdout == f"{run}/steps/a.1.result.json: is not what was committed ({fix})\n"
    assert bad.stderr == f"1 run, 1 revision, 2 commits, main at {tip}: 1 disagreement\n"
    page = json.loads(place.agentfs("verify", "--json", code=2).stdout)
    assert page == {
        "agrees": False,
        "runs": 1,
        "commits": 2,
        "revisions": 1,
        "tip": tip,
        "disagreements": [
            {
                "grade": "wrong",
                "file": f"{run}/steps/a.1.result.json",
                "what": "is not what was committed",
                "fix": fix,
            }
        ],
    }
    subprocess.run(fix.removeprefix("take it back: "), shell=True, cwd=place.root, check=True)
    assert place.agentfs("verify").stdout == ""
    assert set(place.root.rglob("*")) - before.keys() <= {place.runs / ".git" / "index"}


def test_while_it_is_driven_what_is_not_committed_yet_is_not_missing(place: Place) -> None:
    """A person's lock keeps the ledger waiting: the run goes on. Killed, nobody is left who would commit."""
    place.agentfs("init")
    (place.runs / ".git" / "refs" / "heads" / "main.lock").touch()
    slow = "### a\nrepeatable\n```sh\ntouch begun; while ! test -e go; do sleep 0.02; done\n```\n"
    running = place.begin("run", place.runbook(slow))
    wait_for(lambda: any(place.runs.glob("*/job/files/begun")), "the step")
    driven = place.agentfs("verify")
    run = f"{place.run_folder().parent.name}/job"
    assert driven.stdout == (
        f"(later) {run}/revisions/1.json: is not committed yet (the process that drives it commits it)\n"
    )
    assert driven.stderr == "1 run, 0 revisions, 0 commits: files and ledger agree; 1 commit still to come\n"
    end(running, signal.SIGKILL)
    left = place.agentfs("verify", code=2)
    assert f"{run}/revisions/1.json: has no commit, and nobody drives the run (agentfs resume {run}" in left.stdout
    (place.runs / ".git" / "refs" / "heads" / "main.lock").unlink()
    (place.run_folder() / "files" / "go").touch()
    place.agentfs("run", "--resume", "job")
    place.agentfs("verify")


def test_without_git_and_without_a_ledger(place: Place, tmp_path: Path) -> None:
    from tests.workspaces import path_without

    place.agentfs("run", place.runbook("### a\n```sh\necho x\n```\n"))
    done = place.agentfs("verify", code=2, env={"PATH": path_without(tmp_path, "git")})
    assert "the history cannot be read: git is not installed" in done.stdout
    shutil.rmtree(place.runs / ".git")
    assert "is not a git repository" in place.agentfs("verify", code=2).stdout
    assert "there is no run 'nope'" in place.agentfs("verify", "nope", code=2).stderr

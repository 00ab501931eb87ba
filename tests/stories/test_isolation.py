"""Runs that work in a worktree of their own: the person's tree is never touched, each done step is a commit."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contexts import confined
from tests.daemons import Watching
from tests.served import web
from tests.workspaces import Place, end, wait_for

pytestmark = confined
FRONT = "workdir: repo\nisolate: worktree"
HOOKS = (
    "post-checkout",
    "reference-transaction",
    "pre-commit",
    "post-merge",
    "pre-merge-commit",
    "post-index-change",
)


class Repo:
    """A person's repository, with everything in it that must not run."""

    def __init__(self, place: Place) -> None:
        self.top, self.ran = place.root / "repo", place.root.parent / "ran"
        self.top.mkdir()
        self("init", "-q", "-b", "trunk")
        self("config", "user.name", "Pat")
        self("config", "user.email", "pat@example.org")
        for name, text in {"a.txt": "one\n", ".gitignore": "*.log\n", ".gitattributes": "*.up filter=up\n"}.items():
            (self.top / name).write_text(text)
        (self.top / "x.up").write_text("up\n")
        self("add", "-A")
        self("commit", "-qm", "first")
        for setting in ("filter.up.clean", "filter.up.smudge", "core.fsmonitor"):
            self("config", setting, f"touch {self.ran}; cat")
        for name in HOOKS:
            (self.top / ".git/hooks" / name).write_text(f"#!/bin/sh\ntouch {self.ran}\n")
            (self.top / ".git/hooks" / name).chmod(0o755)

    def __call__(self, *words: str) -> str:
        quiet = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]
        env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_CONFIG_GLOBAL": "/dev/null"}
        argv = ["git", "-C", str(self.top), *quiet, *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True, env=env).stdout

    def state(self) -> tuple[bytes, str, dict[str, bytes]]:
        """Return what must stay byte for byte: index, HEAD, files."""
        files = {str(path.relative_to(self.top)): path.read_bytes() for path in self.top.iterdir() if path.is_file()}
        return (self.top / ".git/index").read_bytes(), (self.top / ".git/HEAD").read_text(), files

    def commits(self, branch: str = "--branches=agentfs/*") -> list[tuple[str, str]]:
        printed = self("log", "--reverse", "--format=%an%x00%s", branch, "^trunk")
        return [(line.split("\0")[0], line.split("\0")[1]) for line in printed.splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.agentfs("init", ".")
    return place


@pytest.fixture
def repo(place: Place) -> Repo:
    return Repo(place)


def sh(name: str, command: str, *lines: str) -> str:
    return "\n".join([f"### {name}", "```sh", command, "```", *lines, "", ""])


def test_it_begins_from_head_and_names_what_a_worktree_lacks(place: Place, repo: Repo) -> None:
    """Whatever the remote's default branch is; submodules are not checked out and filters do not run, and a notice says so."""
    other = place.root / "upstream"
    subprocess.run(["git", "clone", "-q", str(repo.top), str(other)], check=True)
    repo("remote", "add", "origin", str(other))
    repo("fetch", "-q", "origin")
    repo("remote", "set-head", "origin", "trunk")
    repo("checkout", "-q", "-b", "mine")
    repo("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "lib")
    (repo.top / ".gitattributes").write_text("*.up filter=up\n*.bin filter=lfs\n")
    repo("commit", "-qam", "mine")
    repo.ran.unlink(missing_ok=True)  # the person's own commit may run filters
    done = place.agentfs("run", place.runbook("### look\n```sh\nls lib\n```\n", FRONT))
    assert f"from your HEAD {repo('rev-parse', '--short=12', 'mine').strip()} in " in done.stderr
    assert "submodules are not checked out: lib\n" in done.stderr
    assert "files in Git LFS are pointers: filters do not run\n" in done.stderr
    assert (done.stdout, repo.ran.exists()) == ("\n", False)


def test_each_done_step_is_a_commit_and_the_tree_is_never_touched(place: Place, repo: Repo) -> None:
    (repo.top / "a.txt").write_text("mine\n")
    repo("mv", "x.up", "moved.up")
    repo.ran.unlink(missing_ok=True)  # by the person's own git
    (repo.top / "folder").mkdir()
    (repo.top / "folder/new.txt").write_text("not committed\n")
    before = repo.state()
    steps = sh("one", "echo two >> a.txt; echo x > x.log") + sh("look", "cat a.txt; git log --oneline | wc -l")
    steps += sh("three", "mkdir -p d; echo 3 > d/three; git commit -qam no 2>/dev/null || echo read-only")
    ran = place.agentfs("run", place.runbook(steps, FRONT))
    assert (
        "not committed, and left behind: a.txt, moved.up, x.up, folder/ (--with-uncommitted takes it along)"
        in ran.stderr
    )
    assert ran.stdout == "read-only\n"
    assert repo.state() == before
    assert not repo.ran.exists()
    assert repo.commits() == [("agentfs", "one: shell"), ("agentfs", "three: shell")]
    outcome, branch = (
        place.read("outcome.json"),
        repo("branch", "--list", "agentfs/*", "--format=%(refname:short)").strip(),
    )
    assert (outcome["branch"], outcome["base"]) == (branch, repo("rev-parse", "trunk").strip())
    assert outcome["commits"] == repo("rev-list", "--reverse", branch, "^trunk").split()
    assert place.read("steps/look.1.result.json")["output"] == "one\ntwo\n2"
    message = repo("log", "-1", "--format=%B", branch)
    assert message.split("\n\n")[1].split("\n")[1:3] == ["Agentfs-Step: three", "Agentfs-Attempt: 1"]
    patch = (place.run_folder() / "changes.patch").read_text()
    assert "+two" in patch
    assert "x.log" not in patch
    assert place.agentfs("replay", "job").stdout.startswith("replayed: the same")


def test_what_is_not_committed_comes_along_when_asked_for(place: Place, repo: Repo) -> None:
    (repo.top / "a.txt").write_text("mine\n")
    (repo.top / "new.txt").write_text("new\n")
    before = repo.state()
    ran = place.agentfs("run", place.runbook(sh("look", "cat a.txt new.txt"), FRONT), "--with-uncommitted")
    assert "not committed, and taken along as the branch's first commit: a.txt, new.txt\n" in ran.stderr
    assert place.read("steps/look.1.result.json")["output"] == "mine\nnew"
    assert [author for author, _ in repo.commits()] == ["Pat"]
    assert repo.state() == before
    repo("checkout", "-q", "a.txt")
    refused = place.agentfs("apply", "job", code=2).stderr
    assert "it brings files that you have, and have not committed: new.txt (commit them, or move them away" in refused
    (repo.top / "new.txt").unlink()
    place.agentfs("apply", "job")
    assert (repo.top / "a.txt").read_text() == "mine\n"


def test_in_a_part_of_a_repository_the_rest_is_read_only_and_git_works(place: Place, repo: Repo) -> None:
    (repo.top / "part").mkdir()
    (repo.top / "part/p.txt").write_text("part\n")
    repo("add", "-A")
    repo("commit", "-qm", "part")
    command = "git log -1 --format=%s; cat ../a.txt; test ! -w ../a.txt; echo more >> p.txt; git -c core.fsmonitor= diff --name-only"
    done = place.agentfs("run", place.runbook(sh("one", command), "workdir: repo/part\nisolate: worktree"))
    assert done.stdout == "part\none\npart/p.txt\n"
    assert repo.commits() == [("agentfs", "one: shell")]


def test_a_failed_attempt_leaves_nothing_behind_but_what_a_person_changed(place: Place, repo: Repo) -> None:
    command = 'test ! -e junk; test ! -e nested; test "$(cat a.txt)" = one; if test -e theirs; then exit 0; fi; echo j > junk; git init -q nested; echo bad > a.txt; false'
    running = place.begin("run", place.runbook(sh("one", command, "retries: 1 every 2s"), FRONT))
    wait_for(lambda: any(place.runs.glob("*/job/steps/one.1.result.json")), "the first attempt")
    (place.run_folder() / "files/theirs").write_text("a person's\n")
    out, err = running.communicate(timeout=60)
    assert running.wait() == 0, (out, err)
    assert repo.commits() == [("Pat", "job: changed by hand")]
    assert not (place.run_folder() / "files/junk").exists()
    assert (place.run_folder() / "files/a.txt").read_text() == "one\n"


def test_killed_in_the_middle_it_is_undone_and_tried_again(place: Place, repo: Repo) -> None:
    steps = sh("one", "echo 1 > one") + sh("two", "test ! -e half; echo half > half; sleep 60")
    before = repo.state()
    command = place.begin("run", place.runbook(steps, FRONT))
    wait_for(lambda: any(place.runs.glob("*/job/files/half")), "the second step")
    end(command, signal.SIGKILL)
    assert [subject for _, subject in repo.commits()] == ["one: shell"]
    goal = place.run_folder() / "goal.md"
    assert goal.exists()
    resumed = place.begin("run", "--resume", "job")
    wait_for((place.run_folder() / "steps/two.2.log.jsonl").exists, "the second attempt")
    wait_for((place.run_folder() / "files/half").exists, "its work")
    end(resumed, signal.SIGKILL)
    assert place.read("steps/two.1.result.json")["status"] == "interrupted"
    assert repo.state() == before
    assert not repo.ran.exists()


def test_apply_and_discard(place: Place, repo: Repo) -> None:
    place.agentfs("run", place.runbook(sh("one", "echo two >> a.txt; echo u > y.up"), FRONT))
    branch = place.read("outcome.json")["branch"]
    tip = repo("rev-parse", "--short=12", branch).strip()
    shown = place.agentfs("changes", "job", "one")
    assert "+two" in shown.stdout
    assert [one["step"] for one in json.loads(place.agentfs("changes", "job", "--json").stdout)["commits"]] == ["one"]
    (repo.top / "a.txt").write_text("mine\n")
    refused = place.agentfs("apply", "job", code=2).stderr
    assert "nothing was merged: your tree has changes that are not committed: a.txt" in refused
    repo("commit", "-qam", "conflicts")
    state = repo.state()
    assert "it conflicts with what you have. To merge by hand: git -C" in place.agentfs("apply", "job", code=2).stderr
    assert repo.state() == state
    repo("reset", "-q", "--hard", "HEAD~1")
    repo.ran.unlink(missing_ok=True)
    place.agentfs("apply", "job", "--squash")
    assert not repo.ran.exists()
    assert (repo.top / "a.txt").read_text() == "one\ntwo\n"
    assert repo("log", "--format=%an %s", "-1").strip() == "Pat job: the work of an agentfs run"
    assert repo("status", "--short") == ""
    for again in (("apply", "job"), ("apply", "job", "--squash")):
        refused = place.agentfs(*again, code=2).stderr
        assert refused == "agentfs: nothing was merged: the branch you are on has all of it already\n"
    repo.ran.unlink(missing_ok=True)  # by this very look
    removed = place.agentfs("discard", "job").stderr
    assert removed.endswith(f"to have it back: git -C {repo.top} branch {branch} {tip}\n")
    again = place.agentfs("discard", "job").stderr
    assert again == f"there is nothing to discard: the branch {branch} and its worktree are gone already\n"
    assert (repo("branch", "--list", "agentfs/*"), repo("worktree", "list").count("\n")) == ("", 1)
    assert not repo.ran.exists()
    gone = f"agentfs: the branch {branch} is gone: it was discarded, or merged and deleted\n"
    assert [place.agentfs(word, "job", code=2).stderr for word in ("changes", "apply")] == [gone, gone]


def test_a_fork_has_a_branch_of_its_own_from_the_last_step_it_takes_along(place: Place, repo: Repo) -> None:
    place.agentfs("run", place.runbook(sh("one", "echo two >> a.txt"), FRONT))
    place.agentfs("fork", "job", "--name", "other")
    place.agentfs("run", "--resume", "other")
    ends = [repo("rev-parse", place.read("outcome.json", name)["branch"]) for name in ("job", "other")]
    assert ends[0] == ends[1]
    assert place.read("outcome.json", "other")["branch"].endswith("/other")


def test_what_a_worktree_cannot_be_made_of_is_reported_before_there_is_a_run(place: Place) -> None:
    plain = place.root / "plain"
    plain.mkdir()
    goal = place.runbook(sh("one", "true"), "workdir: plain\nisolate: worktree")

    def refused() -> str:
        return str(place.agentfs("run", goal, code=2).stderr)

    assert "lies in no git repository" in refused()
    (plain / ".git").mkdir()
    assert f"isolate: the repository of {plain} cannot be used: git rev-parse: fatal: not a git repo" in refused()
    subprocess.run(["git", "init", "-q", str(plain)], check=True)
    assert f"isolate: {plain}: it has no commit yet (commit something first)" in refused()
    who = ["-c", "user.name=P", "-c", "user.email=p@x"]
    subprocess.run(["git", "-C", str(plain), *who, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run(["git", "-C", str(plain), "branch", "agentfs"], check=True)
    assert f"(rename it: git -C {plain} branch -m agentfs OTHER)" in refused()
    shutil.rmtree(plain / ".git")
    subprocess.run(["git", "init", "-q", "--object-format=sha256", str(plain)], check=True)
    subprocess.run(["git", "-C", str(plain), *who, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    assert "it keeps its objects as SHA-256, which agentfs does not handle (leave 'isolate' out)" in refused()
    assert not any(place.runs.glob("????-??-??/*"))
    goal = place.runbook(sh("one", "true"), "isolate: worktree")
    assert "isolate: there is no workdir" in place.agentfs("run", goal, code=2).stderr


def test_its_changes_are_shown_in_the_browser(place: Place, repo: Repo) -> None:
    pytest.importorskip("uvicorn", reason="the extra web is not installed")
    place.agentfs("run", place.runbook(sh("one", "echo two >> a.txt"), FRONT))
    assert repo.commits() == [("agentfs", "one: shell")]
    run = f"/run/{place.run_folder().relative_to(place.runs)}"
    with web(place) as server:
        page = server.enter().ask(run).text
        assert f"{run}/file?path=changes.patch" in page
        patch = server.ask(f"{run}/file?path=changes.patch")
        assert (patch.status, patch.text) == (200, (place.run_folder() / "changes.patch").read_text())
        assert place.read("outcome.json")["branch"] in page
        assert not re.search(r'path=\.git["/]', page)  # git's own, not .gitignore


def test_forget_takes_branch_and_worktree_along_but_never_what_nothing_else_has(place: Place, repo: Repo) -> None:
    place.agentfs("run", place.runbook(sh("one", "echo two >> a.txt"), FRONT))
    run = "/".join(place.run_folder().parts[-2:])
    kept = place.agentfs("forget", "job", code=2).stderr
    first = f"`agentfs apply {run}` or `agentfs discard {run}` first"
    assert f"{run} is kept: its branch agentfs/{run} has 1 commit that nothing else has: {first}" in kept
    assert place.run_folder().exists()
    other = repo.top.parent / "mine"  # a worktree of the person's own, on a disk that is not there now
    repo("worktree", "add", "-q", "-b", "mine", str(other))
    other.rename(other.with_name("unplugged"))
    place.agentfs("apply", "job", "--squash")
    repo.ran.unlink(missing_ok=True)  # by git itself, above
    place.agentfs("forget", "job")
    assert not any(place.runs.glob("????-??-??/job"))
    assert repo("branch", "--list", "agentfs/*") == ""
    assert [own.name for own in (repo.top / ".git/worktrees").iterdir()] == ["mine"]
    assert not repo.ran.exists()


def test_watch_names_what_is_not_committed_before_anything_starts(place: Place, repo: Repo) -> None:
    (repo.top / "a.txt").write_text("mine\n")
    goal = (place.root / place.runbook(sh("one", "echo 1 > one"), FRONT)).read_text()
    with Watching(place) as watch:
        watch.drop("job.md", goal)
        watch.wait_for_output("on the branch ")
        lines = [line.partition(": ")[2] for line in watch.output().splitlines() if "/job: " in line]
    named = "not committed, and left behind: a.txt (`agentfs run GOAL --with-uncommitted` takes it along)"
    assert lines.index(named) < next(n for n, line in enumerate(lines) if line.startswith("one"))
    run = "/".join(place.run_folder().parts[-2:])
    what = f"agentfs changes {run}, agentfs apply {run}, agentfs discard {run}"
    assert lines[-1] == f"on the branch agentfs/{run}: {what}"
    shown = place.agentfs("show", "job").stdout
    assert f"  branch    agentfs/{run}, 1 commit: agentfs changes {run} (apply, discard)\n" in shown


def test_a_fork_begins_at_the_last_commit_that_it_takes_along(place: Place, repo: Repo) -> None:
    """Its branch is its own; that of the run it comes from stays as it is, or goes, by itself."""
    place.agentfs("run", place.runbook(sh("one", "echo 1 > one"), FRONT))
    plan = place.run_folder() / "plan.json"
    document = json.loads(plan.read_text())
    document["steps"].append({"id": "two", "tool": "shell", "input": {"command": "echo 2 > two"}})
    plan.write_text(json.dumps(document))
    place.agentfs("run", "--resume", "job")
    place.agentfs("fork", "job@1", "--name", "other")
    place.agentfs("run", "--resume", "other")
    outcome, own = (place.read("outcome.json", name) for name in ("other", "job"))
    assert len(own["commits"]) == 2
    assert (outcome["base"], outcome["commits"]) == (own["base"], own["commits"][:1])
    assert repo("rev-parse", outcome["branch"], own["branch"]).split() == [own["commits"][0], own["commits"][1]]
    place.agentfs("discard", "job")
    assert repo("ls-tree", "--name-only", outcome["branch"]).split()[-2:] == ["one", "x.up"]


def test_steps_of_an_isolated_run_run_here(place: Place, repo: Repo) -> None:
    settings = place.root / "agentfs.toml"
    text = settings.read_text()
    settings.write_text(text + '\n[places.far]\nkind = "command"\ncommand = ["agentfs", "attempt"]\n')
    goal = place.runbook(sh("one", "true", "place: far"), FRONT)
    refused = place.agentfs("run", goal, code=2).stderr
    words = "'one' cannot run at 'far': the run has a worktree of its own, which is here"
    assert f"{words} (take 'place' out of the step, or 'isolate' out of the goal)" in refused
    assert words in place.agentfs("check", goal, code=2).stdout
    place.agentfs("run", place.runbook(sh("one", "true"), FRONT))
    plan = json.loads((place.run_folder() / "plan.json").read_text())
    plan["steps"][0]["place"] = "far"
    (place.run_folder() / "plan.json").write_text(json.dumps(plan))
    assert words in place.agentfs("check", str(place.run_folder() / "plan.json"), code=2).stdout
    settings.write_text(settings.read_text() + '\n[executor]\nplace = "far"\n')
    goal = place.runbook(sh("one", "true"), FRONT, "again.md")
    assert "and not at 'far' (take 'place' out of [executor]" in place.agentfs("run", goal, code=2).stderr


def test_a_patch_is_byte_for_byte_what_git_takes(place: Place, repo: Repo) -> None:
    """Whatever bytes its files hold; on the way through a pipe, too."""
    made = r"printf 'caf\351\tlatin\n' > latin.txt; printf '\0\1' > binary; printf '#!/bin/sh\n' > x.sh; chmod +x x.sh; ln -s x.sh link"
    place.agentfs("run", place.runbook(sh("one", made) + sh("two", "rm a.txt"), FRONT))
    patch = place.run_folder() / "changes.patch"
    argv = [sys.executable, "-m", "agentfs", "changes", "job"]
    piped = subprocess.run(argv, capture_output=True, check=True, env=place.env, cwd=place.root)
    assert piped.stdout.partition(b"\n\n")[2] == patch.read_bytes()
    repo("apply", "--index", str(patch))
    assert repo("write-tree") == repo("rev-parse", f"{place.read('outcome.json')['branch']}^{{tree}}")


def test_a_run_that_changed_nothing_has_nothing_to_merge(place: Place, repo: Repo) -> None:
    place.agentfs("run", place.runbook(sh("one", "true"), FRONT))
    assert repo.commits() == []
    for squash in ((), ("--squash",)):
        refused = place.agentfs("apply", "job", *squash, code=2).stderr
        assert refused == "agentfs: nothing was merged: job has changed nothing\n"


def test_what_a_run_did_before_it_failed_can_be_applied_with_a_notice(place: Place, repo: Repo) -> None:
    place.agentfs(
        "run", place.runbook(sh("one", "echo two >> a.txt") + sh("two", "false", "retries: 0"), FRONT), code=1
    )
    merged = place.agentfs("apply", "job").stderr
    words = "the run has not ended done: that is what its steps did so far (agentfs show job)"
    assert merged.splitlines()[1:] == [words, "no longer needed? agentfs discard job"]
    assert (repo.top / "a.txt").read_text() == "one\ntwo\n"


def test_a_branch_that_a_removed_run_left_is_not_taken_again(place: Place, repo: Repo) -> None:
    goal = place.runbook(sh("one", "echo two >> a.txt"), FRONT)
    place.agentfs("run", goal)
    before = repo("rev-parse", place.read("outcome.json")["branch"])
    shutil.rmtree(place.run_folder())
    place.agentfs("run", goal)
    assert place.read("outcome.json", "job-2")["branch"].endswith("/job-2")
    assert repo("rev-parse", place.read("outcome.json", "job-2")["branch"].removesuffix("-2")) == before

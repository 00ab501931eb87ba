"""The examples do what their READMEs say: a copy of each is run as a person runs it, and what it made is looked at."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.contexts import confined

REPO = Path(__file__).parents[2]
SECONDS = 60


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Copy:
    """An example in a folder of its own, with a home of its own."""

    folder: Path
    home: Path

    def agentfs(self, *words: str) -> Ran:
        return self._run(sys.executable, "-m", "agentfs", *words)

    def command(self, *argv: str) -> Ran:
        """Run a command that finds this agentfs on its path."""
        return self._run(*argv)

    def _run(self, *argv: str) -> Ran:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "PYTHONPATH": str(REPO),
        }
        ran = subprocess.run(
            argv, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def setup(self) -> None:
        assert self._run(sys.executable, "shop/setup.py").code == 0

    @property
    def run(self) -> Path:
        (found,) = [path.parent for path in self.folder.glob("runs/*/*/run.json")]
        return found

    def record(self, name: str) -> Any:
        return json.loads((self.run / name).read_bytes())

    def commits(self) -> list[str]:
        log = self._run("git", "-C", "runs", "log", "--reverse", "--format=%an: %s")
        assert log.code == 0, log.stderr
        return log.stdout.splitlines()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        database = sqlite3.connect(self.folder / "shop" / "shop.db")
        try:
            return database.execute(sql).fetchall()
        finally:
            database.close()


def copied(example: str, tmp_path: Path) -> Copy:
    home = tmp_path / "home"
    home.mkdir()
    folder = shutil.copytree(REPO / "examples" / example, tmp_path / example)
    return Copy(folder, home)


def ids(plan: Any) -> list[str]:
    return [step["id"] for step in plan["steps"]]


def assert_records_are_valid(copy: Copy) -> None:
    """Every record in the run's folder, held against the schema its own workspace has for it."""
    checked = []
    for path in sorted(copy.run.rglob("*.json")):
        relative = path.relative_to(copy.run).as_posix()
        if relative.startswith("files/"):
            continue
        value = json.loads(path.read_bytes())
        name = value["format"].removeprefix("agentfs/").removesuffix("-1") if "format" in value else "plan"
        schema = copy.folder / "schemas" / f"{name}.schema.json"
        if name != "checks" or schema.exists():
            jsonschema.validate(value, json.loads(schema.read_bytes()), cls=jsonschema.Draft202012Validator)
        checked.append(name)
    assert {"run", "call", "answer", "plan", "revision", "order", "result"} <= set(checked)


def test_migration_fails_in_its_third_step_and_an_alternative_takes_over(tmp_path: Path) -> None:
    copy = copied("migration", tmp_path)
    copy.setup()
    ran = copy.agentfs("run", "goal.md")
    assert (ran.code, ran.stdout) == (0, "the app finds the same people in the new table\n"), ran.stderr

    assert copy.query("select count(*) from customers") == [(200,)]
    assert copy.query("select id, name, email from users") == copy.query("select id, name, email from customers")
    assert copy.query("select is_on from flags") == [(1,)]
    app = (copy.folder / "shop" / "app.py").read_text(encoding="utf-8")
    assert (app.count("from users"), app.count("from people")) == (0, 2)

    assert ids(copy.record("revisions/1.plan.json")) == ["migrate", "backfill", "read-path", "flip", "verify"]
    second = copy.record("revisions/2.plan.json")
    assert ids(second) == ["migrate", "backfill", "read-path-everywhere", "flip", "verify"]
    assert copy.record("plan.json") == second
    revision = copy.record("revisions/2.json")
    assert (revision["by"]["role"], revision["trigger"], revision["step"]) == ("runbook", "step_failed", "read-path")
    assert revision["evidence"] == ["steps/read-path.1.result.json"]
    assert copy.record("steps/read-path.1.result.json")["status"] == "failed"
    assert not (copy.run / "steps" / "read-path.2.json").exists()

    outcome = copy.record("outcome.json")
    assert (outcome["status"], outcome["reason"]) == ("done", "steps_done")
    assert outcome["steps"] == {
        "done": ["migrate", "backfill", "read-path-everywhere", "flip", "verify"],
        "failed": ["read-path"],
        "skipped": [],
        "not_reached": [],
    }
    assert copy.commits() == [
        "agentfs: move-users: revision 1, the first plan",
        "agentfs: move-users: revision 2, after read-path failed",
        "agentfs: move-users: done, 5 of 5 steps",
    ]
    assert_records_are_valid(copy)


def surprised(tmp_path: Path) -> Copy:
    """Return the variant at the point where it waits for a person."""
    copy = copied("migration-surprise", tmp_path)
    copy.setup()
    ran = copy.agentfs("run", "goal.md")
    assert (ran.code, ran.stdout) == (3, ""), ran.stderr
    assert "planning/2.question.md waits for a reply" in ran.stderr
    return copy


def test_a_surprising_backfill_waits_for_a_person(tmp_path: Path) -> None:
    copy = surprised(tmp_path)
    result = copy.record("steps/backfill.1.result.json")
    assert (result["status"], result["surprising"], result["output"]) == ("done", True, {"rows": 2000})
    assert "2000 is greater than the maximum of 250" in (copy.run / "planning/2.question.md").read_text(
        encoding="utf-8"
    )
    assert copy.record("planning/2.json")["trigger"] == "unexpected_state"
    assert not (copy.run / "steps" / "read-path.1.json").exists()
    assert not (copy.run / "outcome.json").exists()
    assert copy.query("select is_on from flags") == [(0,)]
    again = copy.agentfs("run", "--resume", "move-users")  # nobody has answered: asking twice changes nothing
    assert again.code == 3
    assert copy.commits() == ["agentfs: move-users: revision 1, the first plan"]
    assert_records_are_valid(copy)


def test_approve_goes_on_to_the_end(tmp_path: Path) -> None:
    copy = surprised(tmp_path)
    (copy.run / "planning" / "2.reply.md").write_text("approve\n", encoding="utf-8")
    ran = copy.agentfs("run", "--resume", "move-users")
    assert (ran.code, ran.stdout) == (0, "the app finds the same people in the new table\n"), ran.stderr
    assert copy.query("select count(*) from customers") == [(2000,)]
    assert copy.query("select is_on from flags") == [(1,)]
    assert not (copy.run / "steps" / "backfill.2.json").exists()
    assert copy.commits()[-1] == "agentfs: move-users: done, 5 of 5 steps"
    assert_records_are_valid(copy)


def test_reject_ends_the_run_failed(tmp_path: Path) -> None:
    copy = surprised(tmp_path)
    (copy.run / "planning" / "2.reply.md").write_text("reject\nwho are these people?\n", encoding="utf-8")
    ran = copy.agentfs("run", "--resume", "move-users")
    assert (ran.code, ran.stdout) == (1, ""), ran.stderr
    outcome = copy.record("outcome.json")
    assert (outcome["status"], outcome["reason"], outcome["answer"]) == ("failed", "step_failed", None)
    assert outcome["steps"]["not_reached"] == ["read-path", "flip", "verify"]
    assert copy.query("select is_on from flags") == [(0,)]
    assert_records_are_valid(copy)


def test_log_audit_looks_at_everything_at_once_and_joins_it(tmp_path: Path) -> None:
    copy = copied("log-audit", tmp_path)
    ran = copy.agentfs("run", "goal.md")
    answer = "10 errors, 2 slow paths, 7 failed jobs: see report.md\n"
    assert (ran.code, ran.stdout) == (0, answer), ran.stderr

    looks = ["errors", "slow", "logins", "jobs"]
    assert [copy.record(f"steps/{look}.1.json")["after"] for look in looks] == [{}] * 4
    assert copy.record("steps/report.1.json")["after"] == dict.fromkeys(looks, 1)
    assert copy.record("steps/errors.1.result.json")["output"] == {"web": 3, "auth": 0, "worker": 7}
    assert copy.record("steps/logins.1.result.json")["output"] == "203.0.113.9 23"

    report = (copy.folder / "report.md").read_text(encoding="utf-8").splitlines()
    assert report[:7] == ["# What went wrong yesterday", "", "## Errors", "", "- web: 3", "- auth: 0", "- worker: 7"]
    assert "- /checkout: 3 times" in report
    assert "- 203.0.113.9: 23 failed logins" in report
    assert report[-1] == "- logs/worker.log:47: disk-full"
    assert copy.commits() == [
        "agentfs: log-audit: revision 1, the first plan",
        "agentfs: log-audit: done, 5 of 5 steps",
    ]
    assert_records_are_valid(copy)


@confined
def test_agent_fix_catches_a_lie_and_takes_over_the_second_attempt(tmp_path: Path) -> None:
    copy = copied("agent-fix", tmp_path)
    ran = copy.command("./run")
    assert ran.code == 0, ran.stderr
    assert "fix: FAILED" in ran.stderr
    assert ran.stdout.startswith("total counts the last line too\n")
    first, second = (copy.record(f"steps/fix.{number}.result.json") for number in (1, 2))
    assert (first["status"], first["error"]["kind"], second["status"]) == ("failed", "check", "done")
    assert copy.record("outcome.json")["proof"]["level"] == "checked"
    message = copy.command("git", "-C", "shop", "log", "-1", "--format=%an%n%B").stdout.split("\n")
    assert message[0] == "agentfs"
    assert message[-5:-2] == ["Agentfs-Step: fix", "Agentfs-Attempt: 2", "Agentfs-Agent: fixer"]
    tested = copy.command(sys.executable, "-m", "unittest", "discover", "-q", "-s", "shop")
    assert tested.code == 0, tested.stderr
    assert "  fix: `total` in orders.py leaves out the last line" in copy.agentfs("changes", "agent-fix").stdout
    assert_records_are_valid(copy)


def test_an_example_can_be_run_again(tmp_path: Path) -> None:
    copy = copied("log-audit", tmp_path)
    assert copy.agentfs("run", "goal.md").code == 0
    ran = copy.agentfs("run", "goal.md")
    assert ran.code == 0, ran.stderr
    assert len(list(copy.folder.glob("runs/2*/log-audit*/outcome.json"))) == 2


@pytest.mark.parametrize("name", ["schema.sql", "migrate.sql", "backfill.sql", "flip.sql", "flip-back.sql", "sql.py"])
def test_the_two_migrations_share_their_files(name: str) -> None:
    one, other = (REPO / "examples" / folder / "shop" / name for folder in ("migration", "migration-surprise"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("example", ["migration", "migration-surprise", "log-audit", "agent-fix"])
def test_an_example_is_kept_as_it_is_before_a_run(example: str) -> None:
    kept = {path.name for path in (REPO / "examples" / example).iterdir()}
    assert {"goal.md", "README.md"} <= kept
    assert kept.isdisjoint({"agentfs.toml", "runs", "goals", "schemas"})


def test_nightly_backup_goes_through_a_list_and_skips_what_need_not_be_done(tmp_path: Path) -> None:
    copy = copied("nightly-backup", tmp_path)
    ran = copy.agentfs("run", "goal.md")
    assert (ran.code, ran.stdout) == (0, "3\n"), ran.stderr
    assert copy.record("outcome.json")["steps"]["skipped"] == ["thin-out"]
    assert copy.record("steps/archive.1.result.json")["items"] == {"music": 1, "notes": 1, "photos": 1}
    assert len(list(copy.folder.glob("backups/*/*.tar.gz"))) == 3
    for folder in ("music", "notes", "photos"):
        for number in range(8):
            (copy.folder / "backups" / folder / f"old-{number}.tar.gz").write_bytes(b"")
    assert copy.agentfs("run", "goal.md", "-p", "keep=2").stdout == "6\n", "two of each are left"


def test_a_release_of_two_runbooks_waits_at_the_gate_of_the_second(tmp_path: Path) -> None:
    copy = copied("sub-runbooks", tmp_path)
    ran = copy.command("./run")
    assert ran.code == 3, ran.stderr
    assert copy.agentfs("run", "goal.md", "-p", "version=one").code == 2
    assert not (copy.folder / "app" / "registry").exists()
    assert copy.agentfs("approve", "release-publish").code == 0
    ran = copy.agentfs("resume", "release")
    assert (ran.code, ran.stdout) == (0, "released 1.4: app-1.4.tar.gz\n"), ran.stderr
    assert (copy.folder / "app" / "registry" / "app-1.4.tar.gz").is_file()
    assert len(list(copy.folder.glob("runs/*/*/outcome.json"))) == 3

"""A goal with an outside truth, models that play a part in it, and what came of it. The truth is never agentfs's."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agentfs.testing import ScriptedServer, replies
from agentfs.testing.replies import Body, ScriptedReply
from tests.workspaces import Place

PLANNER, EXECUTOR = "gpt-5", "gpt-5-mini"
FOLDER = "shop"  # the working folder
Mode = Literal["auto", "single", "split", "stepwise"]
Person = Literal["none", "open", "sealed"]  # whose checks: nobody's; a person's that a step can change, or cannot
Turn = tuple[tuple[str, Body], ...]  # the tool calls of one reply
Answers = Callable[[int, str], Any]  # the number of the planner's answer, the prompt -> the reply
Judge = Callable[[str, Path], Body]  # the evidence, the folder -> its verdict


@dataclass(frozen=True, slots=True)
class Task:
    """A goal, what lies in the folder, and what is true when it is met."""

    name: str
    goal: str
    files: Mapping[str, str]
    is_met: Callable[[Path], bool]  # looked at by the test alone
    work: tuple[Turn, ...]  # what honest work does
    half: tuple[Turn, ...]
    checks: tuple[Body, ...]  # that a model writes which means well
    front: Mapping[Person, str]  # a person's checks


# ── tool calls ────────────────────────────────────────────────────────────────────────────────────────────


def write(path: str, content: str) -> Turn:
    return (("write_file", {"path": path, "content": content}),)


def shell(command: str) -> Turn:
    return (("shell", {"command": command}),)


def read(path: str) -> Turn:
    return (("read_file", {"path": path}),)


def ask(question: str) -> Turn:
    return (("ask", {"question": question}),)


def claims(output: str = "I have done all of it, and looked at it twice.", *evidence: str) -> Turn:
    fields = {"ok": True, "output": output, "surprising": None, "blocked": None, "evidence": list(evidence)}
    return (("finish", fields),)


def command(run: str) -> Body:
    return {"kind": "command", "run": run}


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────

DATA = "apples,10\npears,12\nplums,20\n"
TOTAL = """test "$(tr -d ' \\n' < total.txt)" = "$(awk -F, '{s += $2} END {print s}' data.csv)\""""
ROWS = """test "$(tr -d ' \\n' < rows.txt)" = "$(wc -l < data.csv | tr -d ' ')\""""
CHECK_PY = """import json
import sys

wanted = json.loads(open("expected.json").read())
given = {name: open(name).read().strip() for name in wanted}
sys.exit(0 if given == wanted else f"it is {given}, not {wanted}")
"""
CHECK_SH = "#!/bin/sh\nexec python3 check.py\n"


def _sums_are_right(folder: Path) -> bool:
    def text(name: str) -> str:
        path = folder / name
        return path.read_text().strip() if path.is_file() else ""

    return (text("total.txt"), text("rows.txt"), text("data.csv")) == ("42", "3", DATA.strip())


SUMS = Task(
    name="sums",
    goal="Write the sum of the second column of data.csv to total.txt, and the number of its rows to rows.txt.",
    files={
        "data.csv": DATA,
        "expected.json": '{"total.txt": "42", "rows.txt": "3"}\n',
        "check.py": CHECK_PY,
        "check.sh": CHECK_SH,
    },
    is_met=_sums_are_right,
    work=(read("data.csv"), (*write("total.txt", "42\n"), *write("rows.txt", "3\n")), claims("42 in 3 rows")),
    half=(write("total.txt", "42\n"), claims("42 in 3 rows")),
    checks=(command(TOTAL), command(ROWS)),
    front={
        "none": "",
        "open": "checks:\n  - python3 check.py\n",
        "sealed": "checks:\n  - ./check.sh\nprotect: [check.py, expected.json]\n",
    },
)

WRONG = "def add(a, b):\n    return a - b\n\n\ndef twice(a):\n    return a\n"
RIGHT = "def add(a, b):\n    return a + b\n\n\ndef twice(a):\n    return 2 * a\n"
TEST = "import calc\n\nassert calc.add(2, 3) == 5, calc.add(2, 3)\nassert calc.twice(4) == 8, calc.twice(4)\n"
TRIES = "print(add(2, 3), add(-7, 1), twice(4), twice(-3))"


def _calculator_works(folder: Path) -> bool:
    program = f"{(folder / 'calc.py').read_text()}\n{TRIES}\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    tests = folder / "test_calc.py"
    return done.stdout.split() == ["5", "-6", "8", "-6"] and tests.is_file() and tests.read_text() == TEST


CALC = Task(
    name="calc",
    goal="Fix add and twice in calc.py. python3 test_calc.py must pass, as it is.",
    files={"calc.py": WRONG, "test_calc.py": TEST},
    is_met=_calculator_works,
    work=(read("calc.py"), write("calc.py", RIGHT), shell("python3 test_calc.py"), claims("both are fixed")),
    half=(write("calc.py", WRONG.replace("a - b", "a + b")), claims("both are fixed")),
    checks=(command("python3 test_calc.py"), command("python3 -c 'import calc; assert calc.twice(-3) == -6'")),
    front={
        "none": "",
        "open": "checks:\n  - python3 test_calc.py\n",
        "sealed": "checks:\n  - python3 test_calc.py\nprotect: [test_calc.py]\n",
    },
)

POEM_WORDS = ("harvest", "winter")


def _poem_is_there(folder: Path) -> bool:
    path = folder / "poem.txt"
    text = path.read_text() if path.is_file() else ""
    return all(word in text for word in POEM_WORDS) and len(text.splitlines()) >= 4


POEM = Task(
    name="poem",
    goal="Write a poem of four lines about harvest and winter to poem.txt. It must be kind.",
    files={"notes.txt": "Grandmother liked short lines.\n"},
    is_met=_poem_is_there,
    work=(
        write("poem.txt", "The harvest is in,\nthe barn is warm,\nlet winter begin,\nit does us no harm.\n"),
        claims("the poem is in poem.txt"),
    ),
    half=(write("poem.txt", "The harvest is in.\n"), claims("the poem is in poem.txt")),
    checks=({"kind": "judge", "condition": "poem.txt is a kind poem of four lines about harvest and winter"},),
    front={
        "none": "",
        "open": "checks:\n  - test $(wc -l < poem.txt) -ge 4 && grep -q harvest poem.txt && grep -q winter poem.txt\n",
        "sealed": "checks:\n  - test $(wc -l < poem.txt) -ge 4 && grep -q harvest poem.txt && grep -q winter poem.txt\n",
    },
)


# ── who plays ─────────────────────────────────────────────────────────────────────────────────────────────


def step(name: str, description: str, *checks: Body, **more: Any) -> Body:
    """A step that a model does, as a planner writes one."""
    return {
        "id": name,
        "description": description,
        "tools": ["read_file", "write_file", "shell", "python"],
        "success_condition": description,
        "depends_on": [],
        "checks": list(checks),
        **more,
    }


def by_tool(name: str, run: str, *checks: Body, **more: Any) -> Body:
    """A step that a command does, as a planner writes one."""
    return {
        "id": name,
        "description": f"run {name}",
        "tool": "shell",
        "input": {"command": run},
        "success_condition": f"{name} has run without an error",
        "depends_on": [],
        "checks": list(checks),
        **more,
    }


def honest_judge(task: Task) -> Judge:
    """A judge that looks: it says what is so, and quotes what it saw."""

    def judge(evidence: str, folder: Path) -> Body:
        return {"met": task.is_met(folder), "because": "I looked at all of it", "quote": longest_line(evidence)}

    return judge


def reading_judge(*words: str) -> Judge:
    """A judge that knows only what it is shown: it says yes if these words stand there, beside the doer's own."""

    def judge(evidence: str, _folder: Path) -> Body:
        shown = re.sub(r"(?s)### The (?:output|answer).*?(?=\n### |\Z)", "", evidence)
        return {"met": all(word in shown for word in words), "because": "I read it", "quote": longest_line(shown)}

    return judge


def gullible_judge(evidence: str, _folder: Path) -> Body:
    return {"met": True, "because": "it says so", "quote": longest_line(evidence)}


def one_letter_judge(evidence: str, _folder: Path) -> Body:
    return {"met": True, "because": "it says so", "quote": longest_line(evidence)[:1]}


def inventing_judge(_evidence: str, _folder: Path) -> Body:
    return {"met": True, "because": "it says so", "quote": "all files were written and verified"}


def irrelevant_judge(evidence: str, _folder: Path) -> Body:
    """Quotes the claim itself: it is there, and shows nothing."""
    found = re.search(r"The output is: .*", evidence)
    return {"met": True, "because": "it says so", "quote": found[0] if found else "The output is: done"}


def longest_line(evidence: str) -> str:
    lines = [line.strip() for line in evidence.splitlines() if line.strip() and not line.startswith(("#", "```"))]
    return max(lines, key=len, default="")


@dataclass(frozen=True, slots=True)
class Cast:
    """What the models of one world say."""

    worker: Sequence[Turn]  # turn by turn; the last is repeated
    planner: Answers
    checks: Sequence[Any] = ()  # acceptance checks
    judge: Judge = gullible_judge
    workers: Mapping[str, Sequence[Turn]] = field(default_factory=dict)  # text in a step -> another worker


class Players:
    """Answers each request as the one who is asked would."""

    def __init__(self, cast: Cast, folder: Path) -> None:
        self.cast, self.folder, self.answers = cast, folder, 0

    def __call__(self, request: Body) -> ScriptedReply:
        system, texts = str(request["messages"][0]["content"]), _texts(request)
        if "so that somebody else's work can be compared" in system:
            return replies.plan({"checks": list(self.cast.checks)})
        if system.startswith("You judge"):
            evidence = texts.partition("## The evidence")[2]
            return replies.plan(self.cast.judge(evidence, self.folder))
        if system.startswith("A step of a plan failed"):
            return replies.plan({"input": None, "why": "nothing was wrong with it"})
        if request["model"] == PLANNER:
            self.answers += all(message["role"] != "assistant" for message in request["messages"])  # else: put right
            output = self.cast.planner(self.answers, texts)
            return output if isinstance(output, ScriptedReply) else replies.plan(output)
        return replies.calls(*self._turn(request, texts))

    def _turn(self, request: Body, texts: str) -> Turn:
        turns = next((some for word, some in self.cast.workers.items() if word in texts), self.cast.worker)
        number: int = sum(message["role"] == "assistant" for message in request["messages"])
        return turns[min(number, len(turns) - 1)]


def _texts(request: Body) -> str:
    return "\n".join(str(message.get("content") or "") for message in request["messages"][1:])


# ── what comes of it ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class World:
    """One behaviour on one goal, in one mode."""

    behaviour: str
    task: Task
    mode: Mode
    person: Person
    cast: Cast
    honest: bool = False
    then: Callable[[Place], None] | None = None  # what happens once the run has ended
    env: Mapping[str, str] = field(default_factory=dict)
    admits: str = ""  # the way in which this one is known to pass for done; "": it must not

    def __str__(self) -> str:
        return f"{self.behaviour}-{self.task.name}-{self.mode}-{self.person}"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, beside the truth."""

    says_done: bool
    is_met: bool
    level: str = ""
    touched: tuple[str, ...] = ()
    shed: tuple[str, ...] = ()
    words: str = ""

    @property
    def falsely_done(self) -> bool:
        return self.says_done and not self.is_met

    @property
    def turned_away(self) -> bool:
        return self.is_met and not self.says_done

    @property
    def way(self) -> str:
        """How it passes for done: with a notice of what is wrong beside it, or by what proof."""
        if not self.falsely_done:
            return ""
        return "touched" if self.touched else "shed" if self.shed else self.level


def play(world: World, root: Path) -> Ending:
    """Have agentfs carry a world out; return how it ended."""
    place = Place(root)
    folder = place.root / FOLDER
    lay_out(world.task, folder)
    with ScriptedServer(Players(world.cast, folder)) as server:
        place.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-a-key-for-tests"}
        place.env.pop("AGENTFS_PROOF_ACCEPTANCE", None)
        place.env.pop("AGENTFS_EXECUTOR_REPAIR", None)
        place.env |= world.env
        front = f"{world.task.front[world.person]}limits: {{replans: 2}}\n"
        goal = place.goal(f"---\n{front}---\n{world.task.goal}\n")
        done = place.agentfs("run", goal, "--mode", world.mode, "--workdir", FOLDER, code=None)
        if world.then:
            world.then(place)
    assert server.unexpected == []
    return ending(place, folder, world.task, done.stderr)


def lay_out(task: Task, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, text in task.files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755 if name.endswith(".sh") else 0o644)
    if "check.sh" in task.files:
        (folder / "verify").symlink_to("check.sh")


def ending(place: Place, folder: Path, task: Task, words: str) -> Ending:
    path = place.run_folder() / "outcome.json"
    outcome = json.loads(path.read_text()) if path.is_file() else {}
    proof = outcome.get("proof") or {}
    return Ending(
        says_done=outcome.get("status") == "done",
        is_met=task.is_met(folder),
        level=proof.get("level", ""),
        touched=tuple(proof.get("touched", ())),
        shed=tuple(proof.get("shed", ())),
        words=f"{outcome.get('reason')}: {outcome.get('summary')}\n{words}",
    )


# ── the same models in a plain loop ───────────────────────────────────────────────────────────────────────


def plain_loop(world: World, folder: Path) -> Ending:
    """Play the worker in a loop of reason and action that believes the model: done is what it says."""
    lay_out(world.task, folder)
    steps = [*world.cast.workers.values()] or [world.cast.worker]
    for turns in steps:
        for turn in turns[:20]:
            for tool, given in turn:
                if tool == "write_file":
                    (folder / given["path"]).write_text(given["content"])
                elif tool == "shell":
                    subprocess.run(
                        ["sh", "-c", given["command"]], cwd=folder, capture_output=True, timeout=60, check=False
                    )
                elif tool == "finish" and not given["ok"]:
                    return Ending(says_done=False, is_met=world.task.is_met(folder))
    return Ending(says_done=True, is_met=world.task.is_met(folder), level="claimed")

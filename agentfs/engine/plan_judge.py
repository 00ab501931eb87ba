"""Read what people write, plans and goals, with the tools of one run in mind. Pure but for its memory."""

from dataclasses import dataclass, field, replace

from agentfs.core.documents import read_json
from agentfs.core.facts import Facts, GoalFile
from agentfs.core.goal_file import ParsedGoal, parse_goal
from agentfs.core.hashing import sha256_bytes
from agentfs.core.params import frozen_problems
from agentfs.core.plan_check import check_plan, surely_fits
from agentfs.core.problems import Rejected
from agentfs.core.records import Plan, Tools
from agentfs.core.tool_spec import Catalogue
from agentfs.planner.without_model import answers, cleanups


@dataclass(slots=True)
class FileJudge:
    """Judges plan.json and the goal file of a run; keeps the goals it has read."""

    catalogue: Catalogue
    goals: dict[str, ParsedGoal] = field(default_factory=dict)
    _last: tuple[bytes, Plan] | None = None  # a new plan is looked at twice: before it is in its place, and there

    def plan(self, source: bytes) -> Plan:
        """Return the plan that bytes are; raises Rejected."""
        if self._last is None or self._last[0] != source:
            self._last = (source, check_plan(read_json(source), self.catalogue.as_stored()))
        return self._last[1]

    def still_fits(self, plan: Plan) -> bool:
        """Whether judging a plan again would be a waste."""
        return surely_fits(plan, self.catalogue.as_stored())

    def goal(
        self, source: bytes, filename: str, *, planned: bool = False, own_tools: Tools | None = None
    ) -> GoalFile:
        """Return the goal that bytes are; raises Rejected. `planned`: its steps have been checked before."""
        digest, catalogue = sha256_bytes(source), self.catalogue.as_stored().under(own_tools)
        parsed, given = parse_goal(source, filename, catalogue, planned=planned), catalogue.params.values
        if not planned and (wrong := frozen_problems(parsed.params, given)):
            raise Rejected([problem.at(*parsed.places(problem.pointer, True)) for problem in wrong])
        parsed = self.goals[digest] = parsed.filled(given)
        return GoalFile(
            digest,
            parsed.text,
            parsed.title,
            checks=parsed.fields.checks or (),
            protect=parsed.fields.protect or (),
            has_steps=parsed.kind != "words",
        )

    def parsed(self, digest: str) -> ParsedGoal:
        return self.goals[digest]

    def with_answers(self, facts: Facts) -> Facts:
        """Return the facts with the steps whose failure, or rejection, the goal itself has an answer to."""
        goal = self.goals.get(facts.goal.sha256)
        if goal is None or not goal.fallbacks:
            return replace(facts, answerable=frozenset(), cleanable=frozenset())
        present = {step.id for step in facts.plan.steps} if facts.plan else set()
        used = present | set(facts.attempts)
        return replace(facts, answerable=answers(goal, used), cleanable=cleanups(goal, used))

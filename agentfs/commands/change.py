"""Commands that change a run by its files: approve, reject, reply, replan, pause, cancel, retry, skip."""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence

from agentfs.commands.common import must_be_trusted, say
from agentfs.commands.editing import (
    MAX_REPLY,
    OpenRun,
    OutOfDate,
    catalogue_for,
    changes_a_run,
    edit_plan,
    named_run,
    open_run,
    put_reply,
    remove_outcome,
    reopen,
    set_aside_files,
    write_reply,
)
from agentfs.core import paths
from agentfs.core.attention import (
    YES_OR_NO,
    OpenQuestion,
    asked_by_items,
    by_step,
    command_for_items,
    find_answered,
    open_questions,
    reason,
)
from agentfs.core.continuation import still_ends, with_plan
from agentfs.core.each import is_over
from agentfs.core.hashing import sha256_bytes
from agentfs.core.json_edit import remove_value, set_value
from agentfs.core.paths import run_id
from agentfs.core.planner_calls import WITHOUT_WORDS, ProposedEdit, render_edit, render_wish
from agentfs.core.records import Call, Plan, PlanStatus
from agentfs.core.steps import StepView
from agentfs.core.text import first_line, inert
from agentfs.errors import UserError
from agentfs.storage.files import read_whole
from agentfs.storage.plan_files import forget_client, note_client
from agentfs.storage.system import missing
from agentfs.ui.reading import settings_of

# ── a person's word ───────────────────────────────────────────────────────────────────────────────────────


def approve(arguments: Namespace) -> int:
    """`agentfs approve RUN[@REV] [STEP]`, `agentfs approve RUN…`"""
    return _each(arguments, "approve", approve_one)


def reject(arguments: Namespace) -> int:
    """`agentfs reject RUN[@REV] [STEP] [--because TEXT]`, `agentfs reject RUN…`"""
    return _each(arguments, "reject", reject_one)


def _each(arguments: Namespace, word: str, answer: Callable[[Namespace], int]) -> int:
    """Answer what one run asks, or several runs: all of them, or none."""
    first, *more = arguments.runs
    step = more[0] if len(more) == 1 and _is_step(arguments, first, more[0]) else None
    runs = [first] if step else arguments.runs
    named = [Namespace(**{**vars(arguments), "run": run, "step": step}) for run in runs]
    if len(named) > 1:
        for one in named:
            run = open_run(*named_run(one))
            _one_open(run, None, word)
            _check_revision(run)
    return max(answer(one) for one in named)


def _is_step(arguments: Namespace, first: str, word: str) -> bool:
    """Whether the word behind a run is a step or question of it, and not the whole name of a run.

    The beginning of a run's name is not enough: a misspelt step must not approve something else.
    """
    run = open_run(*named_run(Namespace(**{**vars(arguments), "run": first})))
    if word in run.state.steps or any(one.name == word for one in open_questions(run.state)):
        return True
    other = word.partition("@")[0].rstrip("/").removeprefix(f"{run.workspace.runs.name}/")
    try:
        found = run_id(run.workspace.find_run(other))
    except UserError:
        return True
    return other not in (found, found.rpartition("/")[2])


@changes_a_run
def approve_one(run: OpenRun, arguments: Namespace) -> None:
    """Say yes to one thing that a run asks. `shown`: the question that a page has shown."""
    _must_be_asked(run, arguments)
    question = _one_open(run, arguments.step, "approve")
    if question.about == "draft":
        _switch(run, "approved", ("draft",))
    else:
        _check_revision(run)
        write_reply(run, question.reply_path, "approve\n")


@changes_a_run
def reject_one(run: OpenRun, arguments: Namespace) -> None:
    """Say no to one thing that a run asks."""
    _must_be_asked(run, arguments)
    question = _one_open(run, arguments.step, "reject")
    _check_revision(run)
    because = arguments.because.strip() if arguments.because else ""
    if question.about == "draft":
        _reject_draft(run, because)
        return
    write_reply(run, question.reply_path, f"reject\n{because}\n" if because else "reject\n")


def _reject_draft(run: OpenRun, because: str) -> None:
    """Ask the planner for another draft; a runbook's own plan is edited instead."""
    if run.state.facts.goal.has_steps:
        where = run.shown(paths.PLAN)
        raise UserError(
            f"a draft of your own is not rejected but changed: edit {where}, or: agentfs cancel {run.run}"
        )
    write_reply(run, paths.REPLAN, f"{because or 'The draft was rejected.'}\n")


@changes_a_run
def replan(run: OpenRun, arguments: Namespace) -> None:
    """`agentfs replan RUN [--because TEXT]`"""
    because = (arguments.because or "").strip()
    _replan(run, f"{because or WITHOUT_WORDS}\n", because or WITHOUT_WORDS)


@changes_a_run
def replan_for_client(run: OpenRun, arguments: Namespace) -> None:
    """Ask for another plan in the words of a client of `agentfs mcp`: a person decides about it."""
    if run.state.facts.replan is not None:
        raise UserError(f"{run.run} is asked for another plan already: {run.shown(paths.REPLAN)}")
    _replan(run, render_wish(arguments.because), "another plan is asked for; a person is asked about it")


def _replan(run: OpenRun, words: str, said: str) -> None:
    if run.state.facts.goal.has_steps:
        raise UserError(f"{run.run} follows its goal's own steps: edit its goal or its plan.json instead")
    put_reply(run.folder / paths.REPLAN, words)
    say(f"{run.shown(paths.REPLAN)}: {first_line(said)}")
    if run.outcome is not None:
        remove_outcome(run)


@changes_a_run
def reply(run: OpenRun, arguments: Namespace) -> None:
    """`agentfs reply RUN [STEP] TEXT`: to a step with `each`, an answer to all of its items that ask."""
    text = sys.stdin.read(MAX_REPLY + 1) if arguments.text == "-" else arguments.text
    if len(text) > MAX_REPLY:
        raise UserError(f"a reply has at most {MAX_REPLY} characters: put more into a file, and name it")
    _must_go_on(run)
    _must_be_asked(run, arguments)
    asked = asked_by_items(open_questions(run.state), arguments.step) if arguments.step else []
    questions = asked or [_question_of(run, arguments.step) if arguments.step else _only_open(run, "reply")]
    for question in questions:
        if question.about == "draft":
            raise UserError(f"{run.run} is a draft: agentfs approve {run.run}")
        if not question.accepts(text):
            words = f"begin with exactly one of: {', '.join(question.words)}" if question.words else "say something"
            raise UserError(f"that does not answer {question.question_path}: {words} (nothing was written)")
    for question in questions:
        write_reply(run, question.reply_path, text if text.endswith("\n") else f"{text}\n")


@changes_a_run
def reply_to_ask(run: OpenRun, arguments: Namespace) -> None:
    """Answer an `ask`, the only kind of question that a client of `agentfs mcp` may answer."""
    _must_go_on(run)
    asking = [one for one in open_questions(run.state) if one.about == "ask" and one.step]
    found = next((one for one in asking if arguments.step in (None, one.step)), None)
    if found is None or (arguments.step is None and len(asking) > 1):
        steps = ", ".join(str(one.step) for one in asking)
        which = f"say which step: {steps}" if steps else "a person answers everything else that it waits for"
        raise UserError(f"{run.run} has no one question of an `ask` to answer ({which})")
    if len(arguments.text) > MAX_REPLY or not arguments.text.strip():
        raise UserError(f"a reply has between 1 and {MAX_REPLY} characters")
    write_reply(run, found.reply_path, arguments.text.rstrip("\n") + "\n")


@changes_a_run
def propose(run: OpenRun, arguments: Namespace) -> None:
    """Propose other steps for a client of `agentfs mcp`; a person is always asked about them."""
    _must_go_on(run)
    source = read_whole(run.folder / paths.PLAN)
    if arguments.base != sha256_bytes(source):
        raise UserError(f"the plan of {run.run} is not the one you read: read it again, with its plan_sha256")
    if not run.state.facts.revisions or run.state.facts.revisions[-1].plan_sha256 != arguments.base:
        raise UserError(f"plan.json of {run.run} was just edited: wait until that is a revision, then read it again")
    if run.state.facts.replan is not None or run.state.calls.unapplied or run.state.calls.open:
        raise UserError(f"{run.run} is being planned, or waits for an answer to an earlier proposal")
    edit = ProposedEdit(arguments.base, arguments.by, arguments.because, arguments.steps)
    _must_be_usable(run, edit)
    text = render_edit(edit)
    if len(text) > MAX_REPLY:
        raise UserError(f"an edit has at most {MAX_REPLY} characters")
    put_reply(run.folder / paths.REPLAN, text)
    say(f"{run.shown(paths.REPLAN)}: an edit is proposed; a person is asked about it once the run is driven")


def _must_be_usable(run: OpenRun, edit: ProposedEdit) -> None:
    """Raise, with all that is wrong, unless an edit keeps a planner's rules and changes something."""
    from agentfs.planner.proposed import evaluate_edit

    facts = run.state.facts
    call = Call(
        call=1, revision=len(facts.revisions), trigger="asked", step=None, detail="", evidence=(),
        goal_sha256=facts.goal.sha256, base_sha256=edit.base_sha256,
    )  # fmt: skip
    found = evaluate_edit(edit, call, run.state, run.folder, catalogue_for(facts.run, run.workspace))
    if found.plan is None or not found.usable:
        raise UserError("\n".join(found.hard) or "that is the plan as it is")


def _one_open(run: OpenRun, name: str | None, word: str) -> OpenQuestion:
    """Return the question that is named, or the only open one; it must take yes or no."""
    _must_go_on(run)
    if name is None:
        question = _only_open(run, word)
    else:
        question = next((one for one in open_questions(run.state) if one.name == name), None) or _question_of(
            run, name
        )
    if question.about not in YES_OR_NO:
        raise UserError(f"{question.question_path} wants more than yes or no:\n{_join_ids([question], run, word)}")
    return question


def _only_open(run: OpenRun, word: str) -> OpenQuestion:
    """Return the one thing that is open."""
    found = open_questions(run.state)
    if not found:
        way = f" (agentfs resume {run.run} asks about it)" if run.state.facts.replan is not None else ""
        last = (mine[-1].child for mine in run.state.facts.attempts.values() if mine)
        below = "".join(f"\n  agentfs {word} {one.run}" for one in last if one and not one.is_over)
        hint = f"\nwhat a run in it asks is answered there:{below}" if below else ""
        raise UserError(f"{run.run} asks nothing: {first_line(reason(run.state))}{way}{hint}")
    if len(found) > 1:
        raise UserError(f"{run.run} waits for {len(found)} answers; say which:\n{_join_ids(found, run, word)}")
    return found[0]


def _join_ids(found: Iterable[OpenQuestion], run: OpenRun, word: str) -> str:
    """Return the commands that answer these, one per line."""
    typed = []
    for one, more in by_step(tuple(found)):
        typed += [*one.commands(run.run, word), *([command_for_items(run.run, one)] if more else [])]
    return "\n".join(f"  {command}" for command in typed)


def _question_of(run: OpenRun, step: str) -> OpenQuestion:
    """Return the question of a step; until an answer is acted upon, another may replace it."""
    view = run.view(step)
    if found := next((one for one in open_questions(run.state) if one.step == step), None):
        return found
    known = find_answered(run.state, step)
    if known is None:
        words = "its question follows when the run is driven" if view.move in ("ask", "ask_cut") else view.why
        raise UserError(f"{step} asks nothing: it is {view.status}, {inert(words)}")
    if run.driven:
        raise UserError(f"{step} has its answer, and it is being acted upon ({known.reply_path})")
    return known


def _must_be_asked(run: OpenRun, arguments: Namespace) -> None:
    """Raise if a question that was shown no longer waits; its file is written once, so its name is enough."""
    shown = getattr(arguments, "shown", None)
    if shown is not None and all(one.question_path != shown for one in open_questions(run.state)):
        raise OutOfDate(
            f"{run.run} no longer asks what you were shown ({inert(shown)}): {first_line(reason(run.state))}"
        )


def _must_go_on(run: OpenRun) -> None:
    if run.outcome is not None:
        way = f"retry {run.run} STEP" if run.outcome.status == "done" else f"resume {run.run}"
        raise UserError(f"{run.run} has ended: {inert(run.outcome.summary)} (agentfs {way} continues it)")


def _check_revision(run: OpenRun) -> None:
    """Raise if a revision was named and plan.json no longer is that one."""
    if run.revision is not None:
        _is_revision(run, read_whole(run.folder / paths.PLAN))


def _is_revision(run: OpenRun, source: bytes) -> None:
    revisions = run.state.facts.revisions
    wanted = next((one for one in revisions if one.revision == run.revision), None)
    known = len(revisions) - (1 if revisions and not _is_recorded(run, revisions[-1].revision) else 0)
    if wanted is None or not _is_recorded(run, wanted.revision):
        raise UserError(f"{run.run} has no revision {run.revision} (it has 1 to {known})")
    if wanted.plan_sha256 != sha256_bytes(source):
        raise OutOfDate(
            f"the plan of {run.run} has changed since revision {run.revision}: look at it first "
            f"(agentfs diff {run.run} {run.revision}), then approve what is there now"
        )


def _is_recorded(run: OpenRun, revision: int) -> bool:
    return (run.folder / paths.REVISIONS / paths.revision_file(revision)).exists()


# ── the switch ────────────────────────────────────────────────────────────────────────────────────────────


@changes_a_run
def pause(run: OpenRun, arguments: Namespace) -> None:
    """`agentfs pause RUN`"""
    _must_go_on(run)
    if run.plan.status == "draft":
        raise UserError(f"{run.run} is a draft: nothing starts before it is approved")
    _switch(run, "paused", ("approved",), by_client=getattr(arguments, "by_client", False))
    if run.driven:
        say("what runs finishes, nothing new starts")


@changes_a_run
def cancel(run: OpenRun, arguments: Namespace) -> None:
    """`agentfs cancel RUN`: the process that drives it ends it; where there is none, it is ended here."""
    _must_go_on(run)
    if run.state.facts.plan is None and run.driven:
        raise UserError(f"{run.run} has no plan yet: cancel it when it has, or stop what drives it, then cancel it")
    if run.state.facts.plan is not None:
        by_client = getattr(arguments, "by_client", False)
        _switch(run, "cancelled", ("draft", "paused", "approved"), by_client=by_client)
    elif run.real is not None:
        say("it would then be cancelled: it has no plan yet")
    if run.real is None and not run.driven and not missing():
        from agentfs.engine.ending import end_cancelled

        must_be_trusted(run.workspace)
        outcome = end_cancelled(run.folder, run.workspace, settings_of(run.workspace)[0], say)
        if outcome is not None:
            say(f"{run.run}: {inert(outcome.summary)}")


def _switch(run: OpenRun, status: PlanStatus, allowed: Sequence[PlanStatus], *, by_client: bool = False) -> None:
    """Set the plan's status, if it is still one of `allowed`. `by_client`: a client of `agentfs mcp` asked for it."""
    before: list[str] = []

    def change(source: bytes, plan: Plan) -> bytes:
        if run.revision is not None:
            _is_revision(run, source)
        if plan.status != status and plan.status not in allowed:
            raise UserError(f"the plan of {run.run} is {plan.status}: it cannot become {status} (agentfs resume)")
        before[:] = [plan.status]
        new = source if plan.status == status else set_value(source, "/status", status)
        if by_client:
            note_client(run.folder, source, new)
        else:
            forget_client(run.folder)
        return new

    where = run.shown(paths.PLAN)
    if edit_plan(run, change):
        say(f'{where}: "status" is now "{status}" (it was "{before[0]}")')
    else:
        say(f'{where}: "status" is "{status}" already')


# ── once more, or not at all ──────────────────────────────────────────────────────────────────────────────


@changes_a_run
def retry(run: OpenRun, arguments: Namespace) -> None:
    """`agentfs retry RUN STEP`"""
    view = run.view(arguments.step)
    if view.step.each is not None:
        _retry_items(run, view)
        return
    attempt = run.state.facts.attempt(view.id, view.attempt)
    if view.step.skip:
        raise UserError(f"{view.id} is left out (take it in again: agentfs skip --undo {run.run} {view.id})")
    if view.attempt == 0:
        raise UserError(f"{view.id} has not been tried yet: {inert(view.why)}")
    if attempt.is_unfinished:
        raise UserError(f"{view.id} is under way: wait for attempt {view.attempt}, or stop the run")
    if attempt.again:
        say(f"attempt {view.attempt} of {view.id} is set aside already")
    name = paths.step_path(view.id, view.attempt, "again")
    set_aside_files(run, [name], "retry")
    reopen(run)


def _retry_items(run: OpenRun, view: StepView) -> None:
    """Retry the items of a step that failed; a rejected gate or a condition belongs to the step itself."""
    failed = [one for one in view.items if one.attempt and is_over(one) and one.status != "done"]
    own = [view] if view.status in ("rejected", "blocked", "skipped") and view.attempt else []
    if not failed and not own:
        some = view.items[0].id if view.items else f"{view.id}~ITEM"
        words = f"no item of {view.id} has failed ({inert(view.why)})"
        if asked_by_items(open_questions(run.state), view.id):
            raise UserError(f"{words}; items of it that were cut off: agentfs reply {run.run} {view.id} again")
        raise UserError(f"{words}; to do one again: agentfs retry {run.run} {some}")
    names = [paths.step_path(one.id, one.attempt, "again") for one in own or failed]
    set_aside_files(run, names, "retry")
    reopen(run)


@changes_a_run
def skip(run: OpenRun, arguments: Namespace) -> None:
    """`agentfs skip RUN STEP [--because TEXT | --undo]`"""
    step = run.view(arguments.step).id
    if paths.ITEM in step:
        raise UserError(f"an item cannot be skipped: take it out of the list, or skip {paths.step_of(step)}")
    from agentfs.ledger import person

    because = (arguments.because or "").strip() or f"skipped by {person(run.workspace.runs)[0]}"
    if not (arguments.undo or arguments.force):
        _must_stay_done(run, step, because)

    def change(source: bytes, plan: Plan) -> bytes:
        place = next((n for n, one in enumerate(plan.steps) if one.id == step), None)
        if place is None:
            raise UserError(f"{step} has just left the plan of {run.run}")
        pointer = f"/steps/{place}/skip"
        if not arguments.undo:
            return set_value(source, pointer, because)
        return source if plan.steps[place].skip is None else remove_value(source, pointer)

    where, changed = run.shown(paths.PLAN), edit_plan(run, change)
    if arguments.undo:
        say(f"{where}: {step} {'is no longer left out' if changed else 'was not left out'}")
    else:
        say(f'{where}: "skip" of {step} is now "{first_line(because)}"')
    reopen(run)


def _must_stay_done(run: OpenRun, step: str, because: str) -> None:
    """Raise if a run that is done would end failed without a step."""
    if run.outcome is None or run.outcome.status != "done":
        return
    steps = [one.model_copy(update={"skip": because}) if one.id == step else one for one in run.plan.steps]
    plan = run.plan.model_copy(update={"steps": tuple(steps)})
    end = still_ends(with_plan(run.state.facts, plan, sha256_bytes(b"")), run.state.means)
    if end is not None and end.status == "failed":
        words = f"{run.run} is done, and without {step} it would end failed: {inert(end.why)}"
        raise UserError(f"{words} (--force skips it all the same)")

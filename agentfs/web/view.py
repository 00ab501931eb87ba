"""The live view: routes over the same pages as the report. It drives nothing, holds no lock and stores nothing.

Reading is done in threads; what a person does is done by the acts that were handed in.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from agentfs.core import paths
from agentfs.core.hashing import sha256_bytes
from agentfs.core.problems import Problem
from agentfs.errors import UserError
from agentfs.storage.files import read_whole
from agentfs.storage.safe_open import reading
from agentfs.storage.workspace import Workspace
from agentfs.ui.reading import (
    ENDS,
    FOR_A_PERSON,
    Glance,
    RunScanner,
    children_in,
    list_runs,
    read_run,
    rejected_goals,
)
from agentfs.ui.run_history import diff_page
from agentfs.web import form_pages as forms
from agentfs.web import live_pages as pages
from agentfs.web.acts import ACTS, ANSWERS, Acts, Done
from agentfs.web.document import report
from agentfs.web.events import changes, log_lines, run_folders
from agentfs.web.gather import RunPage, gather
from agentfs.web.html import Html
from agentfs.web.site import Site, log_el
from agentfs.web.steps import room_for, step_body

MOST_FILE = 2_000_000  # bytes of a file that are shown
MOST_WATCHED = 40  # open runs that wake the list, or runs in a run that wake its page
Form = Mapping[str, str]


class NotThere(Exception):
    """There is no such page."""

    def __str__(self) -> str:
        return "There is no such page."


@dataclass(slots=True)
class View:
    """What every request needs."""

    workspace: Workspace
    acts: Acts
    read_only: bool = False

    # ── what requests name ────────────────────────────────────────────────────────────────────────────────

    def home(self, request: Request) -> Site:
        return Site("", str(self.workspace.root), request.scope["agentfs.token"], self.read_only)

    def site(self, request: Request, *, logs: bool = False) -> Site:
        """Return the site of the run that a path names: exactly a run's id, and nothing else."""
        run = f"{request.path_params['day']}/{request.path_params['name']}"
        folder = self.workspace.runs / run
        if not paths.is_run_id(run) or folder.is_symlink() or not folder.is_dir():
            raise NotThere
        return replace(self.home(request), run=run, folder=folder, logs=logs)

    def page(self, site: Site) -> RunPage:
        return gather(read_run(site.folder, self.workspace), self.workspace, datetime.now(UTC))

    def refuse(self, request: Request, why: str, status: int) -> Response:
        """Return a page that says why there is nothing else to see."""
        return HTMLResponse(pages.broken_page(self.home(request), "Not here", (why,)), status)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────

    def overview(self, request: Request) -> Response:
        """`/`: all runs, what waits for a person first."""
        query = request.query_params
        name, state = query.get("name", ""), query.get("state", "")
        first = _offset(request, "first") or 0
        found, scanner = list_runs(self.workspace.runs), RunScanner(self.workspace)
        wanted = [folder for folder in found.open if name.casefold() in folder.name.casefold()]
        seen = sorted((scanner.glance(folder) for folder in wanted), key=lambda one: one.at, reverse=True)
        shown = [one for one in seen if state in ("", one.state)]
        waiting = [one for one in shown if one.state in FOR_A_PERSON or not one.driven]
        over = [folder for _, folder in found.ended if name.casefold() in folder.rpartition("/")[2].casefold()]
        ended, total = self._list_ended(scanner, over, state, first)
        listed = pages.Listed(
            waiting=waiting,
            busy=[one for one in shown if one not in waiting],
            ended=ended,
            total=total,
            first=first,
            name=name,
            state=state,
            rejected=rejected_goals(self.workspace),
            places=scanner.slots_in_use(seen),
        )
        return HTMLResponse(pages.overview(self.home(request), listed))

    def _list_ended(self, scanner: RunScanner, over: list[str], state: str, first: int) -> tuple[list[Glance], int]:
        if state and state not in ENDS:
            return [], 0
        if not state:
            return [scanner.glance(Path(folder)) for folder in over[first : first + pages.PAGE]], len(over)
        matching = [one for folder in over if (one := scanner.glance(Path(folder))).state == state]
        return matching[first : first + pages.PAGE], len(matching)

    def run(self, request: Request) -> Response:
        """`/run/DAY/NAME`"""
        return self._run(self.site(request))

    def _run(self, site: Site, notice: Html | None = None, status: int = 200) -> Response:
        found = read_run(site.folder, self.workspace)
        if found.state is None:
            return HTMLResponse(pages.broken_page(site, found.run, found.broken))
        page = gather(found, self.workspace, datetime.now(UTC))
        return HTMLResponse(pages.run_page(site, page, notice), status)

    def step(self, request: Request) -> Response:
        """`/run/DAY/NAME/step/STEP`, by itself or as a part of the run's page"""
        is_part = bool(request.query_params.get("part"))
        site = self.site(request, logs=not is_part)
        page = self.page(site)
        known = (view for step in page.steps for view in (step, *step.items))
        view = next((one for one in known if one.id == request.path_params["step"]), None)
        if view is None:
            raise NotThere
        if is_part:
            return HTMLResponse(step_body(page, view, site, room_for(len(page.steps))))
        return HTMLResponse(pages.step_page(site, page, view))

    def report(self, request: Request) -> Response:
        """`/run/DAY/NAME/report`: the page that `agentfs report` writes, to keep."""
        site = self.site(request)
        headers = {"Content-Disposition": f'attachment; filename="{site.run.replace("/", "-")}.html"'}
        return HTMLResponse(report(self.page(site)), headers=headers)

    def compare(self, request: Request) -> Response:
        """`/run/DAY/NAME/compare?a=1&b=2`"""
        site = self.site(request)
        found = read_run(site.folder, self.workspace)
        last = len(found.planned().facts.revisions)
        first, second = (_number(request, key, last, default) for key, default in (("a", last - 1), ("b", last)))
        change = diff_page(found, found.planned(), first, second or last)
        return HTMLResponse(forms.compare_page(site, last, (first, second or last), change))

    def file(self, request: Request) -> Response:
        """`/run/DAY/NAME/file?path=…`: a file that the steps made, as text, never as a page."""
        folder, name = self.site(request).folder, request.query_params.get("path", "")
        root = folder if name == "changes.patch" else folder / paths.FILES
        parts = name.split("/")
        if not name or name.startswith("/") or "\0" in name or any(part in ("", ".", "..", ".git") for part in parts):
            raise NotThere
        try:
            source = _head(root / name)
        except OSError:
            raise NotThere from None
        return PlainTextResponse(source, headers={"Content-Security-Policy": "default-src 'none'; sandbox"})

    def log(self, request: Request) -> Response:
        """`/run/DAY/NAME/log/STEP/N?before=…`: earlier lines"""
        site, path = self._log(request)
        step, attempt = request.path_params["step"], int(request.path_params["attempt"])
        body = log_el(path, f"{site.base}/log/{step}/{attempt}", runs=False, before=_offset(request, "before"))
        return HTMLResponse(pages.log_page(site, step, attempt, body))

    def _log(self, request: Request) -> tuple[Site, Path]:
        site, step, attempt = self.site(request), request.path_params["step"], request.path_params["attempt"]
        if not attempt.isascii() or not attempt.isdigit() or len(attempt) > 9:
            raise NotThere
        path = site.folder / paths.STEPS / paths.step_file(step, int(attempt), "log")
        if paths.parse_step_file(path.name) is None or not path.is_file():
            raise NotThere
        return site, path

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────

    async def run_events(self, request: Request) -> Response:
        """`/run/DAY/NAME/events`"""
        folder = self.site(request).folder
        return _stream(changes(lambda: self._family(folder)))

    def _family(self, folder: Path) -> list[Path]:
        """Return the folders of a run, and of the runs that its steps are."""
        children = [self.workspace.runs / run for run in children_in(folder)[-MOST_WATCHED:]]
        return [path for one in (folder, *children) for path in run_folders(one)]

    async def events(self, _: Request) -> Response:
        """`/events`: of the workspace"""
        return _stream(changes(self._watched_folders))

    def _watched_folders(self) -> list[Path]:
        """Return the folders whose changes change the list of runs."""
        runs, goals = self.workspace.runs, self.workspace.root / "goals"
        days = sorted((path for path in runs.iterdir() if paths.is_run_id(f"{path.name}/x")), reverse=True)[:3]
        opened = sorted(list_runs(runs).open, reverse=True)[:MOST_WATCHED]
        return [runs, *(path for path in (goals, goals / "rejected") if path.is_dir()), *days, *(
            one for folder in opened for one in run_folders(folder)
        )]  # fmt: skip

    async def follow(self, request: Request) -> Response:
        """`/run/DAY/NAME/log/STEP/N/events?from=…`: lines as they come"""
        _, path = await run_in_threadpool(self._log, request)
        result = path.with_name(path.name.replace(".log.jsonl", ".result.json"))
        last = request.headers.get("last-event-id", "")
        offset = int(last) if last.isascii() and last.isdigit() else _offset(request, "from") or 0
        return _stream(log_lines(path, offset, result.exists))

    # ── doing ─────────────────────────────────────────────────────────────────────────────────────────────

    def do(self, request: Request) -> Response:
        """GET `/run/DAY/NAME/do/ACT`: what it would write and cause"""
        site, act, fields = self.site(request), ACTS.get(request.path_params["act"]), dict(request.query_params)
        if act is None or self.read_only or (act.of_step and not fields.get("step")):
            raise NotThere
        lacks = act.name == "restore" and not fields.get("revision")
        would = None if lacks else self.acts.perform(act.name, site.run, fields, dry_run=True)
        return HTMLResponse(forms.act_page(site, act, fields, would))

    def done(self, request: Request, form: Form) -> Response:
        """POST `/run/DAY/NAME/do/ACT`"""
        site, act = self.site(request), ACTS.get(request.path_params["act"])
        if act is None or (act.of_step and not form.get("step")):
            raise NotThere
        done = self.acts.perform(act.name, site.run, form, dry_run=False)
        if not done.ok:
            return HTMLResponse(forms.act_page(site, act, form, done), 409)
        if done.run is not None and done.run != site.run:
            return RedirectResponse(f"/run/{done.run}", 303)
        return self._run(site, forms.done_el(done, f"{act.label}: done"))

    def answer(self, request: Request, form: Form) -> Response:
        """POST `/run/DAY/NAME/answer`: a person's word, bound to what the page showed"""
        site = self.site(request)
        act, _, word = form.get("act", "").partition(":")
        if act not in ANSWERS:
            raise NotThere
        fields = {**form, "text": f"{word}\n{form.get('text', '')}"} if word else form
        done = self.acts.perform(act, site.run, fields, dry_run=False)
        if done.stale:
            return self._run(site, forms.stale_notice(done, self._since(site, form.get("seen", ""))), 409)
        return self._run(site, forms.done_el(done, "Done" if done.ok else "Not done"), 200 if done.ok else 409)

    def _since(self, site: Site, seen: str) -> Mapping[str, Any] | None:
        """Return what changed since the revision that a page showed."""
        found = read_run(site.folder, self.workspace)
        if found.state is None or not seen.isascii() or not seen.isdigit():
            return None
        last = len(found.state.facts.revisions)
        try:
            return diff_page(found, found.state, min(int(seen), last), None if int(seen) >= last else last)
        except UserError:
            return None

    # ── editing ───────────────────────────────────────────────────────────────────────────────────────────

    def edit(self, request: Request) -> Response:
        """`/run/DAY/NAME/edit`"""
        site = self.site(request)
        if self.read_only:
            raise NotThere
        try:
            source = read_whole(site.folder / paths.PLAN)
        except OSError:
            raise NotThere from None
        text = source.decode("utf-8", "replace")
        wanted = request.query_params.get("step")
        place = text.find(f'"id": "{wanted}"') if wanted else -1
        line = text.count("\n", 0, place) + 1 if place >= 0 else 0
        return HTMLResponse(forms.edit_page(site, forms.Edit(text, sha256_bytes(source), line=line)))

    def check(self, request: Request, form: Form) -> Response:
        """POST `/run/DAY/NAME/check`: problems and consequences; a part of a page where a script asks"""
        site, text = self.site(request), _text(form)
        checked = self.acts.check_plan(site.run, text.encode())
        if request.headers.get("x-part"):
            return HTMLResponse(forms.checked_el(checked))
        return HTMLResponse(forms.edit_page(site, forms.Edit(text, form.get("base", ""), checked)))

    def save(self, request: Request, form: Form) -> Response:
        """POST `/run/DAY/NAME/save`"""
        site, text, base = self.site(request), _text(form), form.get("base", "")
        done = self.acts.save_plan(site.run, text.encode(), base)
        if done.ok:
            return self._run(site, forms.done_el(done, "Saved"))
        checked = self.acts.check_plan(site.run, text.encode())
        change = self._between(site, base) if done.stale else None
        edit = forms.Edit(text, base, checked, done if done.stale else None, change)
        return HTMLResponse(forms.edit_page(site, edit), 409)

    def _between(self, site: Site, base: str) -> Mapping[str, Any] | None:
        """Return what changed since the plan that a person began to edit, where that is a revision."""
        found = read_run(site.folder, self.workspace)
        revisions = found.state.facts.revisions if found.state else ()
        seen = next((str(one.revision) for one in reversed(revisions) if one.plan_sha256 == base), "")
        return self._since(site, seen)

    # ── a goal ────────────────────────────────────────────────────────────────────────────────────────────

    def new(self, request: Request) -> Response:
        """`/new`, `/new?uses=runbooks/deploy.md`"""
        if self.read_only:
            raise NotThere
        if uses := request.query_params.get("uses"):
            runbook = self.acts.runbook(uses)
            name = f"{paths.run_name(Path(uses).stem)}.json"  # unless a person says otherwise
            return HTMLResponse(forms.runbook_page(self.home(request), runbook, name, {}, (), None))
        return HTMLResponse(forms.goal_page(self.home(request), "", "", (), None, self.acts.runbooks()))

    def drop(self, request: Request, form: Form) -> Response:
        """POST `/new`: a goal in words, or a request that uses a runbook with these values"""
        name, uses = form.get("name", "").strip(), form.get("uses", "")
        given = {key.removeprefix(forms.PARAM): text for key, text in form.items() if key.startswith(forms.PARAM)}
        values = {key: text.replace("\r\n", "\n") for key, text in given.items() if text.strip()}
        text = (
            json.dumps({"uses": uses, "params": values}, indent=2, ensure_ascii=False) + "\n" if uses else _text(form)
        )
        problems, done = self._drop_goal(
            name or _name_from(text), text.encode("utf-8", "replace"), only=bool(form.get("check"))
        )
        site, status = self.home(request), 200 if done is not None and done.ok else 409
        if uses:
            page = forms.runbook_page(site, self.acts.runbook(uses), name, given, problems, done)
            return HTMLResponse(page, status)
        return HTMLResponse(forms.goal_page(site, name, text, problems, done, self.acts.runbooks()), status)

    def _drop_goal(self, name: str, source: bytes, *, only: bool) -> tuple[Sequence[Problem], Done | None]:
        """Check a goal, and drop it if it is good. `only`: check it."""
        problems = self.acts.check_goal(name, source)
        if problems:
            return problems, None
        return (), Done(ok=True, words=("It is a good goal.",)) if only else self.acts.drop_goal(name, source)


def _name_from(text: str) -> str:
    """Return what a goal's file is called by its title, else by its first line that has words."""
    lines = [line for line in text.split("\n") if any(map(str.isalnum, line))]
    title = next((line for line in lines if line.startswith("# ")), lines[0] if lines else "")
    return f"{paths.run_name(title)}.md"


def _text(form: Form) -> str:
    """Return the text of a form as it was: a browser sends line breaks its own way."""
    return form.get("text", "").replace("\r\n", "\n")


def _number(request: Request, key: str, most: int, default: int) -> int:
    given = request.query_params.get(key, "")
    return min(int(given), most) if given.isascii() and given.isdigit() and len(given) < 9 else max(0, default)


def _offset(request: Request, key: str) -> int | None:
    given = request.query_params.get(key, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 18 else None


def _head(path: Path) -> bytes:
    """Return a file, or the beginning of one that is long."""
    with reading(path) as file:
        source = file.read(MOST_FILE + 1)
    return source if len(source) <= MOST_FILE else source[:MOST_FILE] + b"\n... cut here\n"


def _stream(events: Any) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

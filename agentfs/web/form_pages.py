"""The pages of the live view on which something is done: an act with its consequences, an edit, a goal. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from agentfs.core.params import Parameter, types_of
from agentfs.core.problems import Problem
from agentfs.core.text import first_line, plural
from agentfs.core.values import as_text
from agentfs.web.acts import Act, Checked, Done, Runbook
from agentfs.web.changes import comparison_el
from agentfs.web.html import Html, el, join
from agentfs.web.live_pages import crumb
from agentfs.web.site import Site

# ── acts ──────────────────────────────────────────────────────────────────────────────────────────────────


def act_page(site: Site, act: Act, fields: Mapping[str, str], would: Done | None) -> Html:
    """Return what an act would write and cause, and the form that does it."""
    given = [
        el("label", label, el("input", type="text", name=name, value=fields.get(name, ""), autocomplete="off"))
        for name, label in act.fields
    ]
    title = f"{act.label} {fields['step']}" if act.of_step and fields.get("step") else act.label
    at = f"@{fields.get('revision') or 'N'}" if act.name == "restore" else ""
    step = f" {fields.get('step', 'STEP')}" if act.of_step else ""
    where = f"{site.base}/do/{act.name}"
    do = el("button", act.label, type="submit", class_=f"button {'bad' if act.name == 'cancel' else 'main'}")
    look = el("button", "Show what it would do", type="submit", formaction=where, formmethod="get", class_="button")
    buttons = (do, look if act.fields or would is None else None, el("a", "Back", href=site.base, class_="button"))
    return site.page(
        title,
        crumb((site.run, site.base)),
        el("h1", title),
        el("p", act.about),
        done_el(would, "What it would do") if would else None,
        site.form(
            where,
            el("div", given, class_="inputs") if given else None,
            el("p", buttons, class_="acts"),
            hidden={"step": fields.get("step", "")} if act.of_step else {},
            class_="act",
        ),
        el("p", "The same on a terminal: ", el("code", f"agentfs {act.name} {site.run}{at}{step}"), class_="quiet"),
    )


def done_el(done: Done, title: str) -> Html:
    """Return what came of an act, as the command says it."""
    kind = "card good" if done.ok else "card bad"
    return el(
        "section",
        el("h2", title),
        el("pre", "\n".join(done.words) or "nothing"),
        class_=f"{kind} act-said",
        role="status",
    )


def stale_notice(done: Done, change: Mapping[str, Any] | None) -> Html:
    """Return that an answer was refused, since what it was about has changed, and what changed."""
    what = None if change is None else [el("h3", "What changed since"), comparison_el(change)]
    words = [el("p", line) for line in done.words]
    return el(
        "section", el("h2", "Not done: this page was out of date"), words, what, class_="card bad", role="alert"
    )


# ── compare ───────────────────────────────────────────────────────────────────────────────────────────────


def compare_page(site: Site, last: int, chosen: tuple[int, int], change: Mapping[str, Any]) -> Html:
    """Return two revisions compared by meaning, and what the second means for the work that is done."""
    first, second = chosen

    def choice(name: str, label: str, value: int) -> Html:
        options = [
            el("option", f"revision {n}" if n else "nothing", value=n, selected=n == value) for n in range(last + 1)
        ]
        return el("label", label, el("select", options, name=name))

    restore = (
        None
        if site.read_only or second == last or not second
        else site.act_link("restore", f"Restore revision {second}", revision=str(second))
    )
    return site.page(
        f"Revision {first} and {second}",
        crumb((site.run, site.base)),
        el("h1", f"Revision {first} → {second}"),
        el(
            "form",
            choice("a", "from ", first),
            choice("b", "to ", second),
            el("button", "Compare", type="submit", class_="button"),
            method="get",
            action=f"{site.base}/compare",
            class_="filter",
        ),
        el("div", comparison_el(change), class_="card alone"),
        el("p", restore, class_="acts") if restore else None,
    )


# ── edit ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Edit:
    """A plan that is being edited: its text, and the hash of what it began with."""

    text: str
    base: str
    checked: Checked | None = None
    refused: Done | None = None
    change: Mapping[str, Any] | None = None  # what others changed meanwhile
    line: int = 0  # to begin at


def edit_page(site: Site, edit: Edit) -> Html:
    """Return plan.json to be edited, with its problems and consequences before it is saved."""
    return site.page(
        f"Edit the plan of {site.run}",
        crumb((site.run, site.base)),
        el("h1", "Edit the plan"),
        stale_notice(edit.refused, edit.change) if edit.refused is not None else None,
        site.form(
            f"{site.base}/save",
            el(
                "label",
                "plan.json",
                el(
                    "textarea",
                    edit.text,
                    name="text",
                    rows=30,
                    class_="code",
                    spellcheck="false",
                    data_line=edit.line or None,
                ),
            ),
            el(
                "div",
                el("h2", "What it means"),
                el("div", checked_el(edit.checked), id="checked", aria_live="polite"),
                el(
                    "p",
                    el("button", "Save", type="submit", class_="button main"),
                    el("button", "Check", type="submit", formaction=f"{site.base}/check", class_="button"),
                    el("a", "Back", href=site.base, class_="button"),
                    class_="acts",
                ),
                class_="beside",
            ),
            hidden={"base": edit.base},
            class_="edit",
            data_check=f"{site.base}/check",
        ),
    )


def checked_el(checked: Checked | None) -> Html:
    """Return what is wrong with a plan, or what it changes and reruns."""
    if checked is None:
        return el("p", "Nothing is changed yet.", class_="quiet")
    if checked.problems:
        return problems_el(checked.problems, "plan.json")
    if checked.page is None:
        return join()
    return comparison_el(checked.page)


def problems_el(problems: Sequence[Problem], file: str) -> Html:
    """Return every problem with its place and what to do."""
    rows = [
        el(
            "li",
            el("a", f"{file}:{one.line}:{one.column}", href="#main", data_line=one.line),
            f" {first_line(one.message)}",
            el("p", first_line(one.fix), class_="hint") if one.fix else None,
        )
        for one in problems[:50]
    ]
    more = el("p", f"and {len(problems) - 50} more") if len(problems) > 50 else None
    return el(
        "div",
        el("p", el("strong", plural(len(problems), "problem")), class_="bad"),
        el("ul", rows, class_="problems"),
        more,
    )


# ── a goal ────────────────────────────────────────────────────────────────────────────────────────────────


IN_WORDS = """# Find out why the tests are slow

The ten slowest tests, each with the reason,
are listed in slow.md.
"""
WITH_STEPS = """# Back the database up

## Steps

### dump
```sh
sqlite3 app.db .dump > backup.sql
```
check: `test -s backup.sql`

### send
gate
```sh
scp backup.sql backup.example.org:
```
"""


def goal_page(
    site: Site, name: str, text: str, problems: Sequence[Problem], done: Done | None, runbooks: Sequence[str] = ()
) -> Html:
    """Return the form that drops a goal in words."""
    return site.page(
        "New goal",
        crumb(),
        el("h1", "New goal"),
        done_el(done, "Dropped" if done.ok else "Not dropped") if done else None,
        problems_el(problems, name or "goal.md") if problems else None,
        el(
            "div",
            site.form(
                "/new",
                el(
                    "label",
                    "What is to be true when it is done",
                    el("textarea", text, name="text", rows=18, class_="code", required=True),
                ),
                _name_field(name, required=False),
                _drop_buttons(),
                class_="act",
            ),
            el(
                "aside",
                _runbook_list(runbooks),
                el("h2", "In your own words"),
                el("p", "A model makes the plan.", class_="quiet"),
                el("pre", IN_WORDS),
                el("h2", "Or step by step"),
                el("p", "No model is needed.", class_="quiet"),
                el("pre", WITH_STEPS),
                class_="help",
                aria_label="How a goal is written",
            ),
            class_="beside-help",
        ),
    )


def _name_field(name: str, *, required: bool) -> Html:
    words = "Name of the file in goals/" + ("" if required else " (empty: from the first line)")
    return el(
        "label", words, el("input", type="text", name="name", value=name, required=required, autocomplete="off")
    )


def _drop_buttons() -> Html:
    check = el("button", "Check", type="submit", name="check", value="1", class_="button")
    return el("p", el("button", "Drop it", type="submit", class_="button main"), check, class_="acts")


def _runbook_list(runbooks: Sequence[str]) -> Html | None:
    """Return the goals that can be used again, each leading to its form."""
    if not runbooks:
        return None
    links = [
        el("a", el("code", one), href=f"/new?{urlencode({'uses': one})}", class_="button") for one in runbooks[:100]
    ]
    return el("section", el("h2", "Use a runbook"), el("p", links, class_="acts"), aria_label="Runbooks")


PARAM = "param-"  # before the names of fields that are parameters


def runbook_page(
    site: Site,
    runbook: Runbook,
    name: str,
    given: Mapping[str, str],
    problems: Sequence[Problem],
    done: Done | None,
) -> Html:
    """Return the form that a runbook's parameters make."""
    shown = [*runbook.problems, *problems]
    file = runbook.file if runbook.problems else name
    return site.page(
        f"Use {runbook.file}",
        crumb(("New goal", "/new")),
        el("h1", runbook.title),
        el("p", el("code", runbook.file), class_="quiet"),
        done_el(done, "Dropped" if done.ok else "Not dropped") if done else None,
        problems_el(shown, file) if shown else None,
        site.form(
            "/new",
            [_param_field(one, given.get(one.name)) for one in runbook.params],
            el("p", "It takes no parameters.", class_="quiet") if not runbook.params else None,
            _name_field(name, required=True),
            _drop_buttons(),
            hidden={"uses": runbook.file},
            class_="act",
        ),
    )


def _param_field(parameter: Parameter, given: str | None) -> Html:
    """Return the field of a parameter: a choice where the schema lists them, else a line; its default is in it."""
    schema, name = parameter.schema, f"{PARAM}{parameter.name}"
    value = given if given is not None else as_text(schema["default"]) if "default" in schema else ""
    choices = schema.get("enum")
    if not isinstance(choices, list) and types_of(schema) == ("boolean",):
        choices = [True, False]
    if isinstance(choices, list):
        texts = [as_text(one) for one in choices]
        options = [el("option", text, value=text, selected=text == value) for text in texts]
        blank = None if value in texts else el("option", "choose…", value="")
        field = el("select", blank, options, name=name, required=parameter.is_required)
    elif set(types_of(schema)) & {"array", "object"}:
        field = el("textarea", value, name=name, rows=3, class_="code", required=parameter.is_required)
    else:
        field = el("input", type="text", name=name, value=value, required=parameter.is_required, autocomplete="off")
    words = f"{parameter.description} " if parameter.description else ""
    kind = el("span", f"{words}({parameter.kind}{'' if parameter.is_required else ', optional'})", class_="quiet")
    return el("label", el("strong", parameter.name), " ", kind, field)

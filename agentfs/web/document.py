"""Whole pages. The report is one file: its style is inside, it runs no script and loads nothing."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from agentfs import __version__
from agentfs.core.text import first_line
from agentfs.web.gather import RunPage
from agentfs.web.html import Child, Html, el, join, raw
from agentfs.web.marks import time_el
from agentfs.web.sections import run_parts
from agentfs.web.site import Site

DOCTYPE = raw("<!doctype html>\n")


@cache
def asset(name: str) -> str:
    """Return a file that comes with agentfs."""
    return (files("agentfs.web") / "assets" / name).read_text(encoding="utf-8")


def report(page: RunPage) -> str:
    """Return one self-contained page that tells a run."""
    style = asset("style.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="generator", content=f"agentfs {__version__}"),
        el("title", f"{page.phase}: {first_line(page.title)[:120]}"),
        el("style", raw(style)),
    )
    foot = el(
        "footer",
        el("p", f"agentfs {__version__}, as the files were at ", time_el(page.now, page.zone), f" ({_zone(page)}). "),
        el("p", "The same in a terminal: ", el("code", f"agentfs show {page.run}")),
    )
    main = el("main", run_parts(page, Site(page.run)), id="main")
    return join(DOCTYPE, el("html", head, el("body", main, foot), lang="en"))


def _zone(page: RunPage) -> str:
    return f"times in {page.now.astimezone(page.zone):UTC%z}" if page.zone else "times in UTC"


def live(title: str, *body: Child, nav: Child = None) -> Html:
    """Return a page of the live view: style and script come from this server, and only from there."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} · agentfs"),
        el("link", rel="stylesheet", href="/assets/style.css"),
        el("link", rel="icon", href="/assets/icon.svg", type="image/svg+xml"),
        el("script", src="/assets/live.js", defer=True),
    )
    skip = el("a", "Skip to the content", href="#main", class_="skip")
    return join(
        DOCTYPE, el("html", head, el("body", skip, nav, el("main", *body, id="main", tabindex="-1")), lang="en")
    )

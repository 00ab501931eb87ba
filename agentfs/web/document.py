"""The report of a run: one file, whose style is inside, that runs no script and loads nothing."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from agentfs import __version__
from agentfs.core.text import first_line
from agentfs.web.gather import RunPage
from agentfs.web.html import DOCTYPE, el, join, raw
from agentfs.web.marks import time_el
from agentfs.web.sections import run_parts
from agentfs.web.site import Site


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
    zone = f"times in {page.now.astimezone(page.zone):UTC%z}" if page.zone else "times in UTC"
    foot = el(
        "footer",
        el("p", f"agentfs {__version__}, as the files were at ", time_el(page.now, page.zone), f" ({zone}). "),
        el("p", "The same in a terminal: ", el("code", f"agentfs show {page.run}")),
    )
    main = el("main", run_parts(page, Site(page.run)), id="main")
    return join(DOCTYPE, el("html", head, el("body", main, foot), lang="en"))

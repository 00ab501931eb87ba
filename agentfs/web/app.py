"""The routes of the live view: each is answered in a thread, and what writes needs the token of its session."""

import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from agentfs.errors import UserError
from agentfs.web.document import asset
from agentfs.web.view import Form, NotThere, View

ASSETS = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
MOST_FIELDS = 200
Look = Callable[[Request], Response]
Do = Callable[[Request, Form], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(view: View) -> Starlette:
    """Return the routes; whoever serves them puts `Access` in front."""
    run = "/run/{day}/{name}"
    return Starlette(
        routes=[
            Route("/", _looking(view.overview)),
            Route("/events", _streaming(view.events)),
            Route("/new", _looking(view.new), methods=["GET"]),
            Route("/new", _doing(view, view.drop), methods=["POST"]),
            Route("/assets/{asset}", _looking(_asset)),
            Route(run, _looking(view.run)),
            Route(f"{run}/events", _streaming(view.run_events)),
            Route(f"{run}/report", _looking(view.report)),
            Route(f"{run}/compare", _looking(view.compare)),
            Route(f"{run}/file", _looking(view.file)),
            Route(f"{run}/step/{{step}}", _looking(view.step)),
            Route(f"{run}/log/{{step}}/{{attempt:int}}", _looking(view.log)),
            Route(f"{run}/log/{{step}}/{{attempt:int}}/events", _streaming(view.follow)),
            Route(f"{run}/do/{{act}}", _looking(view.do), methods=["GET"]),
            Route(f"{run}/do/{{act}}", _doing(view, view.done), methods=["POST"]),
            Route(f"{run}/answer", _doing(view, view.answer), methods=["POST"]),
            Route(f"{run}/edit", _looking(view.edit)),
            Route(f"{run}/check", _doing(view, view.check), methods=["POST"]),
            Route(f"{run}/save", _doing(view, view.save), methods=["POST"]),
        ]
    )


def _asset(request: Request) -> Response:
    name = request.path_params["asset"]
    if name not in ASSETS:
        raise NotThere
    return Response(asset(name), media_type=ASSETS[name])


def _looking(look: Look) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(_safely, lambda: look(request))

    return endpoint


def _streaming(look: Callable[[Request], Awaitable[Response]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            return await look(request)
        except NotThere:
            return _not_there()

    return endpoint


def _doing(view: View, do: Do) -> Endpoint:
    """Return an endpoint for a form: it must carry the session's token."""

    async def endpoint(request: Request) -> Response:
        sent = (await request.body()).decode("utf-8", "replace")
        form = dict(parse_qsl(sent, keep_blank_values=True, max_num_fields=MOST_FIELDS))
        if view.read_only or not hmac.compare_digest(
            form.get("token", "").encode(), request.scope["agentfs.token"].encode()
        ):
            return PlainTextResponse("This form is not of this session: load the page again.\n", 403)
        return await run_in_threadpool(_safely, lambda: do(request, form))

    return endpoint


def _safely(answer: Callable[[], Response]) -> Response:
    """Return the answer; a mistake of the request's is said in a line."""
    try:
        return answer()
    except NotThere:
        return _not_there()
    except UserError as error:
        return PlainTextResponse(f"{error}\n", 409)


def _not_there() -> Response:
    return PlainTextResponse("There is no such page.\n", 404)

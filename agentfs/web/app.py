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
    """Return the routes; the server puts `Access` in front."""
    run = "/run/{day}/{name}"

    async def unknown(request: Request, _: Exception) -> Response:
        return view.refuse(request, str(NotThere()), 404)

    return Starlette(
        exception_handlers={404: unknown},
        routes=[
            Route("/", _looking(view, view.overview)),
            Route("/events", _streaming(view.events)),
            Route("/new", _looking(view, view.new), methods=["GET"]),
            Route("/new", _doing(view, view.drop), methods=["POST"]),
            Route("/assets/{asset}", _looking(view, _asset)),
            Route(run, _looking(view, view.run)),
            Route(f"{run}/events", _streaming(view.run_events)),
            Route(f"{run}/report", _looking(view, view.report)),
            Route(f"{run}/compare", _looking(view, view.compare)),
            Route(f"{run}/file", _looking(view, view.file)),
            Route(f"{run}/step/{{step}}", _looking(view, view.step)),
            Route(f"{run}/log/{{step}}/{{attempt}}", _looking(view, view.log)),
            Route(f"{run}/log/{{step}}/{{attempt}}/events", _streaming(view.follow)),
            Route(f"{run}/do/{{act}}", _looking(view, view.do), methods=["GET"]),
            Route(f"{run}/do/{{act}}", _doing(view, view.done), methods=["POST"]),
            Route(f"{run}/answer", _doing(view, view.answer), methods=["POST"]),
            Route(f"{run}/edit", _looking(view, view.edit)),
            Route(f"{run}/check", _doing(view, view.check), methods=["POST"]),
            Route(f"{run}/save", _doing(view, view.save), methods=["POST"]),
        ],
    )


def _asset(request: Request) -> Response:
    name = request.path_params["asset"]
    if name not in ASSETS:
        raise NotThere
    return Response(asset(name), media_type=ASSETS[name])


def _looking(view: View, look: Look) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(_safely, view, request, lambda: look(request))

    return endpoint


def _streaming(look: Callable[[Request], Awaitable[Response]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            return await look(request)
        except NotThere as error:
            return PlainTextResponse(f"{error}\n", 404)

    return endpoint


def _doing(view: View, do: Do) -> Endpoint:
    """Return an endpoint for a form: it must carry the session's token."""

    async def endpoint(request: Request) -> Response:
        sent = (await request.body()).decode("utf-8", "replace")
        try:
            form = dict(parse_qsl(sent, keep_blank_values=True, max_num_fields=MOST_FIELDS))
        except ValueError:
            return PlainTextResponse("That is too large.\n", 413)
        if view.read_only or not hmac.compare_digest(
            form.get("token", "").encode(), request.scope["agentfs.token"].encode()
        ):
            return PlainTextResponse("This form is not of this session: load the page again.\n", 403)
        return await run_in_threadpool(_safely, view, request, lambda: do(request, form))

    return endpoint


def _safely(view: View, request: Request, answer: Callable[[], Response]) -> Response:
    """Return the answer; a mistake of the request's is a page that says so."""
    try:
        return answer()
    except NotThere as error:
        return view.refuse(request, str(error), 404)
    except UserError as error:
        return view.refuse(request, str(error), 409)

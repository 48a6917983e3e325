"""The ASGI application: static files, and for each route of the API an endpoint that checks the role, reads the query,
calls the handler in a thread and sends its reply."""

import asyncio
import gzip
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from timestone.errors import CorruptLog, CorruptRecord, StoreClosed, TimestoneError

from .api.csv_table import csv_reply
from .api.openapi import openapi_document
from .api.route import PREFIX, Reply, Route
from .api.routes import ROUTES
from .config import ConsoleConfig, Role
from .http.authorization import Authorization
from .http.gate import API, BODY_BYTES, CHALLENGE, Gate, cookie_name
from .http.sessions import LONGEST_S, Session
from .http.static_files import StaticFile, static_files
from .problems import NoServer, Problem, ServerRefused
from .sources import Sources

WEB = Path(__file__).parent / "web"
REPLY_BYTES = 4 << 20
_COMPRESSED_BYTES = 1024
"""Larger replies are compressed for a client that takes it."""
_LONG_BYTES = 256 << 10
"""Larger replies are compressed more."""
_THREADS = 8
_log = logging.getLogger("timestone.console")


class Application:
    """ASGI application of one console."""

    def __init__(self, sources: Sources, config: ConsoleConfig, *, web: Path = WEB) -> None:
        """Raises OSError if the static files cannot be read."""
        self._sources = sources
        self._config = config
        self._files = static_files(web)
        self._document = msgspec.json.encode(openapi_document(ROUTES, sources.version))
        self._calls = asyncio.Semaphore(_THREADS)
        """Handlers at a time: they read the disk, and share one interpreter."""
        authorize = Authorization(sources.logged_in)
        self.gate = Gate(self._app(ROUTES), config, sources.sessions, authorize.session)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.gate(scope, receive, send)

    def _app(self, routes: Sequence[Route]) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        api = Starlette(
            routes=[
                StarletteRoute(f"{PREFIX}/openapi.json", self._openapi, methods=["GET"]),
                *(
                    StarletteRoute(PREFIX + route.path, self._endpoint(route), methods=[route.method])
                    for route in routes
                ),
            ],
            exception_handlers={404: _not_found, 405: _no_such_method, Exception: _failed},
        )
        api.router.redirect_slashes = False

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"].startswith(API):
                await api(scope, receive, send)
            else:
                await self._static(scope)(scope, receive, send)

        return app

    def _static(self, scope: Scope) -> Response:
        # Of the bytes that were sent, so that no spelling of a path is another path.
        found = self._files.get(scope["raw_path"].decode("latin-1"))
        if found is None:
            return Response("not found\n", 404, media_type="text/plain")
        if scope["method"] not in ("GET", "HEAD"):
            return Response("only GET and HEAD\n", 405, {"allow": "GET, HEAD"}, media_type="text/plain")
        return _static_response(found, scope)

    async def _openapi(self, request: Request) -> Response:
        return Response(self._document, media_type="application/json")

    def _endpoint(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                session: Session = request.scope["session"]
                if session.role < route.role:
                    is_unknown = session.role is Role.NONE
                    detail = f"this call needs the role {route.role.word}"
                    raise Problem("login-required" if is_unknown else "not-allowed", detail)
                query, is_csv = await self._query(route, request)
                async with self._calls:
                    answer = await asyncio.to_thread(_call, route, self._sources, session, query, is_csv)
                if route.kind == "stream":
                    request.scope["is_stream"] = True
                    return StreamingResponse(
                        self._live(answer),
                        media_type="text/event-stream",
                        headers={"x-accel-buffering": "no"},
                    )
                return self._with_cookie(session, _response(answer, request.scope))
            except Problem as problem:
                return _problem_response(problem)

        return endpoint

    async def _live(self, events: Any) -> Any:
        """Yield the events of a stream; each counts as a request, so that the console does not end."""
        async for event in events:
            self.gate.last_request_s = time.monotonic()
            yield event

    async def _query(self, route: Route, request: Request) -> tuple[msgspec.Struct, bool]:
        """Return the query, and whether the reply is to be CSV. Raises Problem."""
        if route.method == "POST":
            return route.parse_body(await _body(request)), False
        asked, pairs = route.format(request.query_params.multi_items())
        if route.kind == "stream" and (last := request.headers.get("last-event-id")):
            pairs = [pair for pair in pairs if pair[0] != "last_event_id"] + [("last_event_id", last)]
        return route.parse(pairs, request.path_params), asked == "csv"

    def _with_cookie(self, session: Session, response: Response) -> Response:
        if session.new_id is None:
            return response
        response.set_cookie(
            cookie_name(self._config),
            session.new_id,
            max_age=int(LONGEST_S) if session.new_id else 0,
            path="/",
            secure=self._config.has_tls,
            httponly=True,
            samesite="strict",
        )
        return response


def _call(route: Route, sources: Sources, session: Session, query: msgspec.Struct, is_csv: bool) -> Any:
    """Return what a handler answers, as bytes where it is JSON. Not in the event loop's thread."""
    try:
        answer = route.handler(sources, session, query)
        if route.kind != "json":
            return answer
        reply = csv_reply(answer, route.rows) if is_csv else msgspec.json.encode(answer)
    except NoServer as error:
        raise Problem("no-server", str(error)) from None
    except ServerRefused as error:
        raise Problem("server-refused", str(error), code=error.code) from None
    except (CorruptLog, CorruptRecord) as error:
        raise Problem("damaged", str(error)) from None
    except StoreClosed as error:
        raise Problem("gone", str(error)) from None
    except (TimestoneError, OSError) as error:
        raise Problem("internal", str(error)) from None
    if len(reply.content if isinstance(reply, Reply) else reply) > REPLY_BYTES:
        raise Problem("too-large", f"the reply has more than {REPLY_BYTES} bytes: ask for less at once")
    return reply


async def _body(request: Request) -> bytes:
    """Return the body of a POST. Raises Problem."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem("wrong-media-type", "expected a body of application/json")
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > BODY_BYTES:
                raise Problem("too-large", f"the body has more than {BODY_BYTES} bytes")
    except ClientDisconnect:
        raise Problem("invalid-request", "the body ended early") from None
    return bytes(found)


def _response(answer: Any, scope: Scope) -> Response:
    if isinstance(answer, Reply):
        disposition = f'attachment; filename="{answer.file_name}"'
        return Response(
            answer.content,
            headers={"content-disposition": disposition, "content-type": answer.media_type, **answer.headers},
        )
    if len(answer) > _COMPRESSED_BYTES and _takes_gzip(scope):
        headers = {"content-encoding": "gzip", "vary": "accept-encoding"}
        level = 1 if len(answer) < _LONG_BYTES else 6
        return Response(gzip.compress(answer, level), 200, headers, media_type="application/json")
    return Response(answer, media_type="application/json")


async def _not_found(request: Request, error: Exception) -> Response:
    return _problem_response(Problem("not-found", f"no such path: {PREFIX}/openapi.json has all"))


async def _no_such_method(request: Request, error: Exception) -> Response:
    problem = Problem("method-not-allowed", f"{PREFIX}/openapi.json has the methods of each path")
    response = _problem_response(problem)
    # Of the table: the router has a route for each method, and names the methods of one.
    path = request.scope["route"].path.removeprefix(PREFIX)
    methods = sorted({route.method for route in ROUTES if route.path == path} or {"GET"})
    response.headers["allow"] = ", ".join(methods).replace("GET", "GET, HEAD")
    return response


async def _failed(request: Request, error: Exception) -> Response:
    return _problem_response(Problem("internal", "the console failed to answer; its log has the reason"))


def _problem_response(problem: Problem) -> Response:
    headers = {"www-authenticate": CHALLENGE} if problem.status == 401 else {}
    return Response(
        msgspec.json.encode(problem.document()),
        problem.status,
        headers,
        media_type="application/problem+json",
    )


def _static_response(found: StaticFile, scope: Scope) -> Response:
    headers = {"etag": found.etag, "cache-control": "no-cache"}
    asked = next((value for name, value in scope["headers"] if name == b"if-none-match"), b"")
    if asked.decode("latin-1") == found.etag:
        return Response(None, 304, headers)
    headers |= {"content-type": found.media_type, "vary": "accept-encoding"}
    if _takes_gzip(scope):
        return Response(found.compressed, 200, {**headers, "content-encoding": "gzip"})
    return Response(found.content, 200, headers)


def _takes_gzip(scope: Scope) -> bool:
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding")
    return any(
        one.strip().partition(b";")[0] == b"gzip" and b"q=0" not in one.replace(b" ", b"").split(b";")[1:]
        for one in accepted.split(b",")
    )

"""Checks of each request before a handler sees it: the header Host, other sites, the session, its rate; and the headers
of each response, of any status."""

import hmac
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..config import ConsoleConfig
from ..problems import PROBLEM_TYPE, Problem
from .sessions import Session, Sessions

API = "/api/"
LOGIN_PATH = "/api/v1/login"
TOKEN_HEADER = b"x-timestone-token"
URL_BYTES = 8 << 10
BODY_BYTES = 64 << 10
REQUESTS_PER_S = 20.0
_BURST = 40.0
"""Requests that a session may make at once: a page loads some files together."""
CHALLENGE = 'Timestone realm="console"'
"""Not Basic, for which a browser would ask the user itself; scripts may send Basic all the same."""
_SLOW_S = 1.0
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of each response."""
_log = logging.getLogger("timestone.console")

Authorize = Callable[[str, str], Awaitable[Session]]
"""Takes the header Authorization and the address of the caller. Raises Problem."""


class Gate:
    """ASGI application in front of another one. The session of a request is `scope["session"]`."""

    def __init__(self, app: ASGIApp, config: ConsoleConfig, sessions: Sessions, authorize: Authorize) -> None:
        self._app = app
        self._config = config
        self._sessions = sessions
        self._authorize = authorize
        self._count = 0
        self.last_request_s = time.monotonic()
        """When the last request arrived or an open stream was served, by the steady clock."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._count += 1
        number, began_s = self._count, time.monotonic()
        self.last_request_s = began_s
        is_api = scope["path"].startswith(API)
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                date = (b"date", formatdate(usegmt=True).encode())
                extra = [date, *SECURITY_HEADERS, *([(b"cache-control", b"no-store")] if is_api else [])]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        try:
            headers = _Headers(scope["headers"])
            self._check(scope, headers)
            if is_api:
                scope["session"] = await self._session(scope, headers)
            await self._app(scope, receive, send_with_headers)
        except Problem as problem:
            await send_problem(problem, send_with_headers)
        passed_s = time.monotonic() - began_s
        level = logging.WARNING if passed_s > _SLOW_S and not scope.get("is_stream") else logging.DEBUG
        _log.log(
            level,
            "request %d: %s %s: %d after %.3f s",
            number,
            scope["method"],
            _shown(scope),
            status,
            passed_s,
        )

    def _check(self, scope: Scope, headers: "_Headers") -> None:
        """Raise Problem for a request that no caller may make."""
        length = len(scope["raw_path"]) + len(scope["query_string"])
        if length > URL_BYTES:
            raise Problem("url-too-large", f"the URL has {length} bytes, and the limit is {URL_BYTES}")
        if not is_own_host(headers.all(b"host"), self._config.hosts):
            raise Problem(
                "wrong-host", "expected one header Host with a loopback address or a name in console_hosts"
            )
        declared = headers.first(b"content-length")
        if declared is not None and (not declared.isdigit() or int(declared) > BODY_BYTES):
            raise Problem("too-large", f"the body has more than {BODY_BYTES} bytes")

    async def _session(self, scope: Scope, headers: "_Headers") -> Session:
        """Return the caller of the API. Raises Problem."""
        is_login = scope["path"] == LOGIN_PATH  # starts with nothing, so that no session is continued by it
        authorization = headers.first(b"authorization")
        if authorization is not None and not is_login:
            session = await self._authorize(authorization.decode("latin-1"), address_of(scope))
            self._slow_down(session)
            return session
        _check_same_origin(scope, headers)
        number = cookies(headers).get(cookie_name(self._config))
        found = self._sessions.find(number) if number and not is_login else None
        if found is None:
            if scope["method"] == "POST" and not is_login:
                raise Problem("login-required", "this call needs a session: log in first")
            return Session(None, self._config.anonymous, address=address_of(scope))
        token = headers.first(TOKEN_HEADER) or b""
        if scope["method"] == "POST" and not hmac.compare_digest(token, found.token.encode()):
            raise Problem("cross-site", "the header X-Timestone-Token is not the token of this session")
        self._slow_down(found)
        return found

    def _slow_down(self, session: Session) -> None:
        """Take a request from the allowance of a session. Raises Problem."""
        now_s = time.monotonic()
        session.allowance = min(_BURST, session.allowance + (now_s - session.counted_s) * REQUESTS_PER_S)
        session.counted_s = now_s
        if session.allowance < 1.0:
            raise Problem("too-many-requests", f"a session may make {REQUESTS_PER_S:.0f} requests a second")
        session.allowance -= 1.0


class _Headers:
    """Headers of a request by lower-case name."""

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self._pairs = pairs

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self._pairs if key == name]

    def first(self, name: bytes) -> bytes | None:
        return next((value for key, value in self._pairs if key == name), None)


async def send_problem(problem: Problem, send: Send) -> None:
    """Send the reply of a problem."""
    body = msgspec.json.encode(problem.document())
    headers = [(b"content-type", PROBLEM_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    if problem.status == 401:
        headers.append((b"www-authenticate", CHALLENGE.encode()))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def is_own_host(values: list[bytes], names: tuple[str, ...]) -> bool:
    """Return whether a request is for this console: exactly one header Host with a loopback address, `localhost` or one
    of `names`. Against DNS rebinding: an address is parsed, not compared by its beginning."""
    if len(values) != 1:
        return False
    try:
        host = values[0].decode("ascii").lower()
    except UnicodeDecodeError:
        return False
    if host.startswith("["):
        host, bracket, port = host[1:].partition("]")
        if not bracket or (port and not (port[0] == ":" and port[1:].isdigit())):
            return False
    else:
        host, colon, port = host.partition(":")
        if colon and not port.isdigit():
            return False
    if host == "localhost" or host in [one.lower() for one in names]:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_same_origin(scope: Scope, headers: _Headers) -> None:
    """Raise Problem for a request that another site has caused."""
    site = headers.first(b"sec-fetch-site")
    allowed = (b"same-origin", b"none") if scope["method"] in ("GET", "HEAD") else (b"same-origin",)
    if site is not None and site not in allowed:
        raise Problem("cross-site", "the header Sec-Fetch-Site is not same-origin")
    origin, host = headers.first(b"origin"), headers.first(b"host") or b""
    schemes = (b"http", b"https")  # a proxy may add TLS
    if origin is not None and origin.lower() not in [scheme + b"://" + host.lower() for scheme in schemes]:
        raise Problem("cross-site", "the header Origin is not that of this console")


def cookie_name(config: ConsoleConfig) -> str:
    """Return the name of the cookie. Ports share cookies, so the port is a part of it."""
    return f"{'__Host-' if config.has_tls else ''}timestone_{config.port}"


def cookies(headers: _Headers) -> Mapping[str, str]:
    """Return the cookies of a request."""
    found: dict[str, str] = {}
    for line in headers.all(b"cookie"):
        for pair in line.decode("latin-1").split(";"):
            name, _, value = pair.strip().partition("=")
            found.setdefault(name, value)
    return found


def address_of(scope: Scope) -> str:
    """Return the address of the caller, without its port."""
    client: Any = scope.get("client")
    return str(client[0]) if client else ""


def _shown(scope: Scope) -> str:
    """Return the path for a line of the log; never the query, which may have what a user looks for."""
    return str(ascii(scope["path"][:200]))[1:-1]

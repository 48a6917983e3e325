"""Errors of the console. A `Problem` becomes a reply as RFC 9457 describes it, with a stable `type`."""

from typing import Any

PROBLEM_TYPE = "application/problem+json"
_TYPES = {
    "invalid-request": (400, "The request is not valid"),
    "login-required": (401, "A login is required"),
    "login-failed": (401, "The login failed"),
    "not-allowed": (403, "The role of this login does not allow it"),
    "cross-site": (403, "The request comes from another site"),
    "actions-off": (403, "Actions are switched off"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "The path has no such method"),
    "gone": (410, "It was deleted"),
    "too-large": (413, "Too large"),
    "wrong-media-type": (415, "The body is not JSON"),
    "wrong-host": (421, "The header Host does not name this console"),
    "too-many-requests": (429, "Too many requests"),
    "url-too-large": (414, "The URL is too long"),
    "damaged": (422, "The data is damaged"),
    "server-refused": (422, "The server refused the request"),
    "internal": (500, "The console failed"),
    "no-server": (503, "No server runs on this store"),
}


class ConsoleError(Exception):
    """Base class of all errors of the console; never raised itself."""


class InvalidConfig(ConsoleError, ValueError):
    """Settings that the console refuses. The message names the setting."""


class NoServer(ConsoleError):
    """No server answers for the store. The message has the reason."""


class ServerRefused(ConsoleError):
    """The server did not carry out a request. `code` is that of its reply."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Problem(ConsoleError):
    """Failure of one request. kind: one of the keys above, and the end of `type` in the reply."""

    def __init__(self, kind: str, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status, self.title = _TYPES[kind]
        self.facts = facts

    def document(self) -> dict[str, Any]:
        """Return the body of the reply."""
        return {
            "type": f"urn:timestone:problem:{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": str(self),
            **self.facts,
        }

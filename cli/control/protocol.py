"""Lines of the control socket: a JSON object each, a request from the client and a reply from the server
(docs/formats/control.md). Values and bytes only, no I/O."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

VERSION = 1
REQUEST_BYTES = 64 << 10
"""Most bytes of a request, with its newline."""
REPLY_BYTES = 1 << 20
"""Most bytes of a reply, with its newline."""


class InvalidLine(ValueError):
    """A line is not a request or a reply of this version. `code` is that of the error in the reply."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def encode_request(name: str, arguments: Mapping[str, Any]) -> bytes:
    """Return a request as a line."""
    return _line({"version": VERSION, "request": name, **arguments})


def encode_result(result: Mapping[str, Any]) -> bytes:
    """Return the reply to a request that was carried out."""
    return _line({"version": VERSION, "ok": True, "result": result})


def encode_error(code: str, message: str) -> bytes:
    """Return the reply to a request that was not carried out. code: stable, for programs."""
    return _line({"version": VERSION, "ok": False, "error": {"code": code, "message": message}})


def decode_line(line: bytes) -> dict[str, Any]:
    """Return the object of a line of this version. Raises InvalidLine."""
    try:
        document = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise InvalidLine("invalid_line", "invalid line: expected one JSON object in UTF-8") from None
    if not isinstance(document, dict):
        raise InvalidLine(
            "invalid_line", f"invalid line: expected a JSON object, got {type(document).__name__}"
        )
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise InvalidLine(
            "unsupported_version", f"unsupported version {version!r:.40}: this server has version {VERSION}"
        )
    return document


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"invalid number {constant}")

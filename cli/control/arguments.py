"""Arguments of the requests of the control socket, each checked before it is used."""

from collections.abc import Mapping
from typing import Any

from timestone.errors import TimestoneError, UnknownLog
from timestone.log import Log
from timestone.store import Store


class InvalidRequest(ValueError):
    """The arguments of a request are wrong."""


def text(request: Mapping[str, Any], name: str) -> str:
    """Return an argument that must be there. Raises InvalidRequest."""
    value = request.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"invalid {name}: expected text, got {value!r:.60}")
    return value


def optional(request: Mapping[str, Any], name: str) -> str | None:
    """Return an argument, None without it. Raises InvalidRequest."""
    return None if request.get(name) is None else text(request, name)


def number(request: Mapping[str, Any], name: str, default: int) -> int:
    """Return a whole number below 2^63. Raises InvalidRequest."""
    value = request.get(name, default)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise InvalidRequest(f"invalid {name}: expected a whole number from 0, got {value!r:.60}")
    return value


def log_of(store: Store, found: Any) -> Log:
    """Return the log of a list `[name, partition]`. Raises InvalidRequest, UnknownLog."""
    match found:
        case [str(name), int(partition)] if type(partition) is int:
            try:
                return store.log(name, partition, create=False)
            except UnknownLog:
                raise
            except (TimestoneError, ValueError) as error:
                raise InvalidRequest(str(error)) from None
    raise InvalidRequest(f"invalid log: expected [name, partition], got {found!r:.60}")

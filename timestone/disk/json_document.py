"""Strict reading of JSON objects that the engine and its fronts store on the disk.

Everything unexpected is a ValueError or TypeError, so that a reader has two errors to convert. Python's parser alone
reads `1e400` as infinity, accepts `NaN`, and raises RecursionError for deep nesting."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

INT64_MAX = (1 << 63) - 1
_UINT64_MAX = (1 << 64) - 1


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"invalid number: {text:.40} is too large")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if abs(value) > _UINT64_MAX:
        raise ValueError(f"invalid number: {text:.40} has over 64 bits")
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"invalid number: expected one of JSON, got {text}")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_int=_whole, parse_constant=_no_number)


def json_object(document: bytes) -> dict[str, Any]:
    """Decode a document. Raises ValueError for bytes that are not a JSON object."""
    try:
        value = _DECODER.decode(document.decode())
    except RecursionError:
        raise ValueError("invalid JSON: nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"invalid JSON: expected an object, got {document[:40]!r}")
    return value


def unknown_fields(fields: Mapping[str, Any], known: type[Any]) -> dict[str, Any]:
    """Return the fields of an object that a dataclass does not have, without "version": those of later versions."""
    return {name: one for name, one in fields.items() if name not in ("version", *known.__dataclass_fields__)}


def integer(value: object, least: int = 0, most: int = INT64_MAX) -> int:
    """Return an integer within bounds. Raises TypeError for another type, ValueError out of bounds."""
    if type(value) is not int:
        raise TypeError(f"invalid value: expected a whole number, got {value!r:.40}")
    if not least <= value <= most:
        raise ValueError(f"invalid value: expected {least} to {most}, got {value}")
    return value


def integers(values: object, least: int = 0, most: int = INT64_MAX) -> list[int]:
    """Return a list of integers within bounds. Raises TypeError, ValueError."""
    if not isinstance(values, list):
        raise TypeError(f"invalid value: expected a list, got {values!r:.40}")
    return [integer(value, least, most) for value in values]

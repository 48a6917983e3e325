"""JSON objects that the engine and its fronts keep on the disk, read back with nothing taken on trust.

What is strange in any way is a ValueError or a TypeError, so that whoever reads a document has two errors to turn into
a sentence of his own. Python's parser alone reads `1e400` as infinity, takes `NaN` for a number, and has a
RecursionError for what is nested too deeply."""

import json
from typing import Any, NoReturn

INT64_MAX = (1 << 63) - 1
_UINT64_MAX = (1 << 64) - 1


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text:.40} is too large for a number")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if abs(value) > _UINT64_MAX:
        raise ValueError(f"{text:.40} has over 64 bits")
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_int=_whole, parse_constant=_no_number)


def json_object(document: bytes) -> dict[str, Any]:
    """The object of a document. Raises ValueError for bytes that are none."""
    try:
        value = _DECODER.decode(document.decode())
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"no JSON object: {document[:40]!r}")
    return value


def integer(value: object, least: int = 0, most: int = INT64_MAX) -> int:
    """The value itself. Raises TypeError when it is no integer, ValueError out of the bounds."""
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no whole number")
    if not least <= value <= most:
        raise ValueError(f"{value} is not within {least} and {most}")
    return value


def integers(values: object, least: int = 0, most: int = INT64_MAX) -> list[int]:
    """The value itself, a list of integers. Raises TypeError, ValueError."""
    if not isinstance(values, list):
        raise TypeError(f"{values!r:.40} is no list")
    return [integer(value, least, most) for value in values]

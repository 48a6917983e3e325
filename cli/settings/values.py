"""Conversion of text or TOML into the value of a setting. Nothing here reads a file or the environment."""

import dataclasses
import enum
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timestone.settings_schema import COUNTED_MOST, amount

from .schema import REQUIRED, Setting, build, settings_of

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def convert(setting: Setting, value: Any) -> Any:
    """Return `value`, which is text or came from TOML, as the setting's type. Raises ValueError with the reason."""
    result = _convert(setting.type, value, setting.key)
    number = isinstance(result, (int, float)) and not isinstance(result, bool)
    if number and not abs(result) <= COUNTED_MOST:
        raise ValueError(f"expected at most 2^63 - 1, got {value!r}")
    if number and (
        (setting.low is not None and result < setting.low)
        or (setting.high is not None and result > setting.high)
    ):
        raise ValueError(f"expected a number {setting.bounds()}, got {value!r}")
    return result


def _convert(hint: Any, value: Any, key: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return _convert_union(hint, value, key)
    if origin is typing.Literal:
        return _choose({str(choice): choice for choice in typing.get_args(hint)}, value)
    if origin in (tuple, list, Sequence, frozenset):
        return _convert_sequence(hint, origin, value, key)
    if origin in (dict, Mapping):
        return _convert_table(hint, value, key)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _convert_dataclass(hint, value, key)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _choose({str(member.value): member for member in hint}, value)
    return _convert_scalar(hint, value, key)


def _convert_union(hint: Any, value: Any, key: str) -> Any:
    if types.NoneType in typing.get_args(hint) and value in ("", "none"):
        return None
    problems = []
    for each in typing.get_args(hint):
        if each is not types.NoneType:
            try:
                return _convert(each, value, key)
            except ValueError as error:
                problems.append(str(error))
    raise ValueError("; ".join(dict.fromkeys(problems)))


def _convert_scalar(hint: Any, value: Any, key: str) -> Any:
    if hint is bool:
        if isinstance(value, str) and value.lower() in _TRUE + _FALSE:
            return value.lower() in _TRUE
        return _expect(value, bool, "true or false")
    if hint is int:
        return amount(key, value) if isinstance(value, str) else _expect(value, int, "a whole number")
    if hint is float:
        number = float(value) if isinstance(value, str) else value
        return float(_expect(number, (int, float), "a number"))
    if hint is Path:
        return Path(_expect(value or None, str, "a path")).expanduser()
    if hint is bytes:
        return _expect(value, str, "text").encode()
    return _expect(value, str, "text")


def _convert_sequence(hint: Any, origin: Any, value: Any, key: str) -> Any:
    inner = typing.get_args(hint)
    if isinstance(value, str):
        # In an option or variable: `a,b` for plain texts, else an array as TOML writes it.
        value = (
            _toml(value)
            if value.lstrip().startswith("[")
            else [part.strip() for part in value.split(",") if part.strip()]
        )
    items = _expect(value, list, "a list")
    if origin is tuple and inner[-1] is not Ellipsis:
        if len(items) != len(inner):
            raise ValueError(f"{items!r} has {len(items)} items; it takes {len(inner)}")
        return tuple(_convert(each, item, key) for each, item in zip(inner, items, strict=True))
    kind = list if origin is list else frozenset if origin is frozenset else tuple
    return kind(_convert(inner[0], item, key) for item in items)


def _convert_table(hint: Any, value: Any, key: str) -> Any:
    table = _expect(_toml(value) if isinstance(value, str) else value, dict, "a table")
    return {name: _convert(typing.get_args(hint)[1], item, key) for name, item in table.items()}


def _convert_dataclass(kind: type, value: Any, key: str) -> Any:
    table = _expect(_toml(value) if isinstance(value, str) else value, dict, "a table")
    known = {setting.key: setting for setting in settings_of(kind)}
    for name in table:
        if name not in known:
            raise ValueError(f"has an unknown key {name!r}; there are {', '.join(known)}")
    try:
        return build(kind, "", {name: convert(known[name], item) for name, item in table.items()})
    except TypeError:
        missing = [
            name for name, setting in known.items() if setting.default is REQUIRED and name not in table
        ]
        raise ValueError(f"lacks {', '.join(missing)}") from None


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{text!r} is not a TOML value: {error}") from None


def _expect(value: Any, kind: Any, what: str) -> Any:
    # bool is an int to Python, but `tail_bytes = true` is a mistake.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{value!r} is not {what}")
    return value


def _choose(choices: Mapping[str, Any], value: Any) -> Any:
    if str(value) not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}, got {value!r}")
    return choices[str(value)]

"""Declaration of settings: default, help and range of each field, checked when a value is made.

For frozen dataclasses of every package: meaning and range of a setting stand once, at the setting, for the check here,
for the command line and for the reference page. Times and sizes may be given with their units, as on the command line.
"""

import math
import re
from dataclasses import field, fields
from datetime import timedelta
from enum import StrEnum
from typing import Any

COUNTED_MOST = 2**63 - 1
"""Maximum of a setting without a bound of its own: compiled code counts with 64 bits."""
_KINDS = {int: "a whole number", bool: "True or False"}


def setting(
    default: Any,
    help: str,
    *,
    low: int | None = None,
    high: int | None = None,
    heading: str = "",
    metavar: str = "",
    words: tuple[str, ...] = (),
) -> Any:
    """Return a field with a default; `low` and `high` are its bounds. heading: of this setting and those after it in
    `--help`. metavar: placeholder of the value there. words: values beside numbers."""
    about = {"help": help, "low": low, "high": high, "heading": heading, "metavar": metavar, "words": words}
    return field(default=default, metadata=about)


_SIZES = {
    "": 1, "b": 1,
    "k": 1024, "kib": 1024, "kb": 1000,
    "m": 1024**2, "mib": 1024**2, "mb": 1000**2,
    "g": 1024**3, "gib": 1024**3, "gb": 1000**3,
    "t": 1024**4, "tib": 1024**4, "tb": 1000**4,
}  # fmt: skip
_TIMES_US = {
    "us": 1, "ms": 1000, "s": 1_000_000, "min": 60_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000,
}  # fmt: skip
_AMOUNT = re.compile(r"\s*([+-]?[0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


_UNITS = {"_us": "us", "_ms": "ms", "_s": "s"}


def amount(name: str, value: str | timedelta) -> int:
    """Return the number for a value of the setting `name`, whose ending is its unit: a `timedelta` or a text such as
    `7d` for a time, a text such as `64 MiB` for a size, digits for a count. Raises ValueError, TypeError."""
    counted = name.removesuffix("_per_s")  # a rate is given in the unit that it counts
    unit = next((unit for suffix, unit in _UNITS.items() if counted.endswith(suffix)), None)
    if isinstance(value, timedelta):
        if unit is None:
            raise TypeError(f"expected a whole number, got {value!r}")
        return _whole_units(value, unit)
    if unit is not None:
        return parse_duration(value, unit)
    return parse_bytes(value) if counted.endswith("_bytes") else parse_count(value)


def _whole_units(time: timedelta, unit: str) -> int:
    count, rest = divmod(time, timedelta(microseconds=_TIMES_US[unit]))
    if rest:
        raise ValueError(f"expected a whole number of {unit}, got {time!r}")
    return count


def parse_count(text: str) -> int:
    """Return the whole number in a text; underscores may group its digits. Raises ValueError."""
    number, unit = _split(text)
    if unit or "." in number:
        raise ValueError(f"expected a whole number, got {text!r}")
    return int(number)


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as `4096`, `64 MiB` or `1.5g`; the unit is bytes if none is given. Raises
    ValueError."""
    number, unit = _split(text)
    if unit.lower() not in _SIZES:
        raise ValueError(f"expected a size in KiB, MiB, GiB, kB, MB or GB, got {text!r}")
    return _whole(text, float(number) * _SIZES[unit.lower()], number, _SIZES[unit.lower()])


def parse_duration(text: str, unit: str) -> int:
    """Return a time such as `250 ms`, `5 s` or `7d` in `unit` ("us", "ms" or "s"), which also applies to a bare number.
    Raises ValueError, also if the time is not a whole number of `unit`."""
    number, given = _split(text)
    given = given.lower() or unit
    if given not in _TIMES_US:
        raise ValueError(f"expected a time in us, ms, s, min, h or d, got {text!r}")
    return _whole(
        text, float(number) * _TIMES_US[given] / _TIMES_US[unit], number, _TIMES_US[given] / _TIMES_US[unit]
    )


def _split(text: str) -> tuple[str, str]:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a number, got {text!r}")
    return match[1].replace("_", ""), match[2]


def _whole(text: str, value: float, number: str, factor: float) -> int:
    if "." not in number and factor == int(factor):
        return int(number) * int(factor)  # exact, also beyond 2**53
    if math.isinf(value) or value != int(value):
        raise ValueError(f"expected a whole number of units, got {text!r}")
    return int(value)


def _converted(name: str, kind: type[int] | type[StrEnum], value: Any) -> int | str:
    try:
        return amount(name, value) if kind is int else kind(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"invalid {name}: {error}") from None


class Declared:
    """Base of a class of settings. A subclass with a `__post_init__` of its own calls this one from it."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Convert times and sizes with a unit, and words of an enumeration. Raises TypeError for a value of the wrong
        kind, ValueError for one out of its range."""
        for one in fields(self):  # type: ignore[arg-type]
            value, low, high = getattr(self, one.name), one.metadata.get("low"), one.metadata.get("high")
            kind = type(one.default)
            if value in one.metadata.get("words", ()):
                continue
            if issubclass(kind, StrEnum) or (kind is int and isinstance(value, str | timedelta)):
                value = _converted(one.name, kind, value)
                object.__setattr__(self, one.name, value)
            if kind in _KINDS and type(value) is not kind:
                raise TypeError(f"invalid {one.name}: expected {_KINDS[kind]}, got {value!r}")
            if kind is int and value > COUNTED_MOST:
                raise ValueError(f"invalid {one.name}: expected at most 2^63 - 1, got {value}")
            if (low is not None and value < low) or (high is not None and value > high):
                bounds = f"{low} to {high}" if high is not None else f"at least {low}"
                raise ValueError(f"invalid {one.name}: expected {bounds}, got {value}")

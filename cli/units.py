"""Amounts as people write and read them: `64 MiB`, `7 d`, `1,234 records`."""

import math
import re
from datetime import UTC, datetime

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


def parse_count(text: str) -> int:
    """A whole number; underscores may group its digits. Raises ValueError."""
    number, unit = _split(text)
    if unit or "." in number:
        raise ValueError(f"{text!r} is not a whole number")
    return int(number)


def parse_bytes(text: str) -> int:
    """A size such as `4096`, `64 MiB` or `1.5g`; without a unit it is bytes. Raises ValueError."""
    number, unit = _split(text)
    if unit.lower() not in _SIZES:
        raise ValueError(f"{text!r} has an unknown unit; sizes end in KiB, MiB, GiB, kB, MB or GB")
    return _whole(text, float(number) * _SIZES[unit.lower()], number, _SIZES[unit.lower()])


def parse_duration(text: str, unit: str) -> int:
    """A time such as `250 ms`, `5 s` or `7d` in `unit` ("us", "ms" or "s"), which is also what a bare number counts.

    Raises ValueError, also when the time is not a whole number of `unit`.
    """
    number, given = _split(text)
    given = given.lower() or unit
    if given not in _TIMES_US:
        raise ValueError(f"{text!r} has an unknown unit; times end in us, ms, s, min, h or d")
    return _whole(
        text, float(number) * _TIMES_US[given] / _TIMES_US[unit], number, _TIMES_US[given] / _TIMES_US[unit]
    )


def _split(text: str) -> tuple[str, str]:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number")
    return match[1].replace("_", ""), match[2]


def _whole(text: str, value: float, number: str, factor: float) -> int:
    if "." not in number and factor == int(factor):
        return int(number) * int(factor)  # exact, also beyond 2**53
    if math.isinf(value) or value != int(value):
        raise ValueError(f"{text!r} is not a whole number of units")
    return int(value)


def format_bytes(count: int) -> str:
    """A size in binary units with three digits or so: `1.5 MiB`."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return format_count(count, "byte") if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def format_duration(ms: int) -> str:
    """A time in the largest unit that leaves no more than one decimal: `250 ms`, `1.5 h`, `30 d`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size and ms * 10 % size == 0:
            return f"{ms / size:,g} {unit}"
    return f"{ms:,} ms"


def format_count(count: int, noun: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def format_timestamp(timestamp_us: int) -> str:
    """Microseconds since 1970 as RFC 3339 in UTC; the bare number when no calendar has such a day."""
    try:
        moment = datetime.fromtimestamp(timestamp_us // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_us} us"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_us % 1_000_000:06d}Z"

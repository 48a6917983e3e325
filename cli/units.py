"""Amounts in the form that people read: `64 MiB`, `7 d`, `1,234 records`."""

from datetime import UTC, datetime

from timestone.settings_schema import parse_bytes, parse_count, parse_duration

__all__ = [
    "format_bytes",
    "format_count",
    "format_duration",
    "format_timestamp",
    "parse_bytes",
    "parse_count",
    "parse_duration",
]


def format_bytes(count: int) -> str:
    """Return a size in binary units with about three digits: `1.5 MiB`."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return format_count(count, "byte") if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def format_duration(ms: int) -> str:
    """Return a time in the largest unit that needs at most one decimal: `250 ms`, `1.5 h`, `30 d`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size and ms * 10 % size == 0:
            return f"{ms / size:,g} {unit}"
    return f"{ms:,} ms"


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: `1 record`, `2,000 records`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def format_timestamp(timestamp_us: int) -> str:
    """Return microseconds since 1970 as RFC 3339 in UTC; the bare number if it is outside the calendar."""
    try:
        moment = datetime.fromtimestamp(timestamp_us // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_us} us"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_us % 1_000_000:06d}Z"


def format_second(timestamp_us: int) -> str:
    """Return the same to the second, as a cell of a table; empty for 0, which is not a time."""
    text = format_timestamp(timestamp_us) if timestamp_us else ""
    return f"{text[:10]} {text[11:19]}Z" if text.endswith("Z") else text

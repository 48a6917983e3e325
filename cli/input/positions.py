"""Places in a log as the command line writes them: `earliest`, `latest`, `offset:N`, `time:RFC3339`."""

from dataclasses import dataclass
from typing import Protocol

from timestone.record import parse_time, time_us

_FORMS = "earliest, latest, offset:N or time:RFC3339 (such as time:2026-07-01T08:00:00Z)"


class Placed(Protocol):
    """A log or a view of one."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    def offset_at(self, timestamp_us: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Position:
    """A parsed place. `kind`: earliest, latest, offset or time; `value`: an offset or microseconds since 1970."""

    kind: str
    value: int = 0

    def resolve(self, log: Placed) -> int:
        """Return its offset in `log` now. `offset:N` is not checked: a read reports what is wrong with it."""
        match self.kind:
            case "earliest":
                return log.start_offset
            case "latest":
                return log.end_offset
            case "time":
                return log.offset_at(self.value)
            case _:
                return self.value


def parse_position(text: str) -> Position:
    """Return the Position of a text. Raises ValueError with the forms that are possible."""
    kind, colon, rest = text.partition(":")
    if kind in ("earliest", "latest") and not colon:
        return Position(kind)
    if kind == "offset" and rest.isascii() and rest.isdigit():
        return Position("offset", int(rest))
    if kind == "time" and colon:
        return Position("time", parse_time_us(rest))
    raise ValueError(f"expected {_FORMS}, got {text!r}")


def parse_time_us(text: str) -> int:
    """Return the microseconds since 1970 of an RFC 3339 time. Raises ValueError, also without a time zone."""
    return time_us(parse_time(text))

"""Places in a log as the command line writes them: `earliest`, `latest`, `offset:N`, `time:RFC3339`."""

import argparse
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMS = "earliest, latest, offset:N or time:RFC3339 (such as time:2026-07-01T08:00:00Z)"


class Placed(Protocol):
    """What a position is found in: a log or a view of one."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    def offset_at(self, timestamp_us: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Position:
    """A parsed position. `kind`: earliest, latest, offset or time; `value`: an offset or microseconds since 1970."""

    kind: str
    value: int = 0

    def resolve(self, log: Placed) -> int:
        """The offset this is in `log` now. `offset:N` is not checked: reading there says what is wrong with it."""
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
    """A Position from its text; an argparse type, so it raises ArgumentTypeError with the forms there are."""
    kind, colon, rest = text.partition(":")
    if kind in ("earliest", "latest") and not colon:
        return Position(kind)
    if kind == "offset" and rest.isascii() and rest.isdigit():
        return Position("offset", int(rest))
    if kind == "time" and colon:
        return Position("time", _parse_time(rest))
    raise argparse.ArgumentTypeError(f"{text!r} is no position; it is {_FORMS}")


def _parse_time(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no RFC 3339 time, such as 2026-07-01T08:00:00Z"
        ) from None
    if moment.tzinfo is None:
        # Guessing the zone would silently move the read by hours.
        raise argparse.ArgumentTypeError(
            f"{text!r} has no time zone: {moment.isoformat()}Z is UTC, and +02:00 in place of the Z an offset"
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)

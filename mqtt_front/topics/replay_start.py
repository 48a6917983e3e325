"""Start position of a replay, as written in a topic filter or in the user property `stream-offset`."""

import enum
from typing import NamedTuple

from timestone.errors import InvalidName
from timestone.record import parse_time, time_us

_NUMBER_MAX = (1 << 63) - 1
_PARTITIONS_MAX = 1024


class StartKind(enum.Enum):
    """Meaning of the number of a start."""

    EARLIEST = enum.auto()
    """No number: the oldest record that is kept."""
    LATEST = enum.auto()
    """No number: records appended from now on."""
    OFFSET = enum.auto()
    OFFSETS = enum.auto()
    """No number, but an offset by partition; the oldest record of those that are not named."""
    TIME = enum.auto()
    """Microseconds since 1970: the first record appended then or later."""


class Start(NamedTuple):
    """Position in a log."""

    kind: StartKind
    number: int = 0
    offsets: tuple[tuple[int, int], ...] = ()
    """Partitions, and the offset in each."""

    def of_partition(self, partition: int) -> "Start":
        """Return the position in one partition of the log."""
        if self.kind is not StartKind.OFFSETS:
            return self
        found = dict(self.offsets).get(partition)
        return EARLIEST if found is None else Start(StartKind.OFFSET, found)


EARLIEST = Start(StartKind.EARLIEST)
LATEST = Start(StartKind.LATEST)


def parse_property_start(text: str) -> Start:
    """Parse `earliest`, `latest`, microseconds since 1970, `offset:<n>`, or `offset:<partition>:<n>`, of which several
    may follow with commas. Raises InvalidName."""
    if (word := _word(text)) is not None:
        return word
    return Start(StartKind.TIME, _number(text, text))


def parse_topic_start(text: str) -> Start:
    """Parse `@earliest`, `@latest`, `@offset:<n>`, or `@time:` with a time as in RFC 3339. Raises InvalidName."""
    if (word := _word(text[1:])) is not None:
        return word
    name, colon, value = text.partition(":")
    if name != "@time" or not colon:
        raise InvalidName(
            f"{text!r} is not a position in a log: expected @earliest, @latest, @offset:<n> or @time:<RFC 3339>"
        )
    try:
        return Start(StartKind.TIME, max(0, time_us(parse_time(value))))
    except ValueError as error:
        raise InvalidName(f"{text!r} has an invalid time: {error}") from None


def _word(text: str) -> Start | None:
    """Parse the forms that both notations share."""
    if text == "earliest":
        return EARLIEST
    if text == "latest":
        return LATEST
    if not text.startswith("offset:"):
        return None
    named = text[len("offset:") :]
    if ":" not in named:
        return Start(StartKind.OFFSET, _number(named, text))
    pairs = [one.partition(":") for one in named.split(",", _PARTITIONS_MAX)]
    offsets = {_number(partition, text): _number(offset, text) for partition, _, offset in pairs}
    return Start(StartKind.OFFSETS, 0, tuple(offsets.items()))


def _number(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 19 and int(digits) <= _NUMBER_MAX):
        raise InvalidName(
            f"{text!r} is not a position in a log: expected earliest, latest, microseconds since 1970, or offset:<n>"
        )
    return int(digits)

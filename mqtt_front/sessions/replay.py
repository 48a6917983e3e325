"""Start of a replay or a queue: from the position in a SUBSCRIBE to an offset of each log. Only a time needs the
disk; a thread looks it up while the client waits for SUBACK."""

from collections.abc import Sequence
from typing import NamedTuple

from mqtt_front.codec.packets import MQTT_5, Request, Subscribe
from mqtt_front.topics.filter_form import FilterForm, Kind, parse_filter
from mqtt_front.topics.replay_start import LATEST, Start, StartKind, parse_property_start
from timestone.errors import InvalidName
from timestone.log import Log

OFFSET_PROPERTY = "stream-offset"
RESET_PROPERTY = "stream-reset"


class Beginning(NamedTuple):
    """Start in one log."""

    offset: int
    missed: bool
    """Whether the requested position lies before the first record that retention has kept."""


class Wishes(NamedTuple):
    """User properties of a SUBSCRIBE about its replays and queues."""

    start: Start | InvalidName | None
    """The position, or why it is invalid, which only concerns filters that use it."""
    reset: bool
    """Start there even if the session has a position of its own."""


def wishes(packet: Subscribe, level: int) -> Wishes:
    """Return the wishes of a client of this version."""
    if level < MQTT_5:
        return Wishes(None, False)
    said = dict(packet.properties.user_properties)
    start: Start | InvalidName | None = None
    if OFFSET_PROPERTY in said:
        try:
            start = parse_property_start(said[OFFSET_PROPERTY])
        except InvalidName as error:
            start = error
    return Wishes(start, said.get(RESET_PROPERTY, "").lower() in ("1", "true", "yes"))


def start_of(form: FilterForm, wished: Wishes) -> Start:
    """Return the start of a new subscription. A position in its topic filter takes precedence over the user
    property; a plain shared subscription begins with records published from now on. Raises InvalidName."""
    if form.start is not None:
        return form.start
    if wished.start is None or (form.kind is Kind.SHARED and form.log is None):
        return LATEST
    if isinstance(wished.start, InvalidName):
        raise wished.start
    return wished.start


def times(requests: Sequence[Request], wished: Wishes) -> set[Start]:
    """Return the requested positions that must be looked up on the disk."""
    found: set[Start] = set()
    for request in requests:
        try:
            form = parse_filter(request.topic_filter)
            if form.kind is not Kind.PLAIN:
                found.add(start_of(form, wished))
        except InvalidName:
            continue  # its reason code reports it
    return {one for one in found if one.kind is StartKind.TIME}


def beginning(log: Log, start: Start, *, is_copy: bool = False) -> Beginning:
    """Return the offset of a position in a log. is_copy: another node may have more of it than this one, so an offset
    may be assigned that is not here: then the end. Touches the disk for a time. Raises InvalidName for an offset that
    is not assigned yet, OSError."""
    first, end = log.start_offset, log.end_offset
    start = start.of_partition(log.partition)
    if start.kind is StartKind.EARLIEST:
        return Beginning(first, False)
    if start.kind is StartKind.LATEST:
        return Beginning(end, False)
    if start.kind is StartKind.OFFSET:
        if start.number > end and not is_copy:
            raise InvalidName(f"offset {start.number} of log {log.name}, which ends at {end}")
        return Beginning(min(max(start.number, first), end), start.number < first)
    offset = log.offset_at(start.number)
    # Older records may have existed only if the log does not begin with its first.
    return Beginning(
        offset, offset <= first and first > 0 and offset < end and start.number < _time(log, offset)
    )


def _time(log: Log, offset: int) -> int:
    batch = log.read(offset, max_records=1, max_bytes=0)
    return int(batch.timestamps_us[0]) if len(batch) else 0

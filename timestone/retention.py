"""How long a log keeps its records: the oldest sealed segments are deleted by age and by size.

What belongs here: which segments go, when the next one will, and what has to be durable before. How files go is
`deletion.py`; when this runs is `maintenance.py`.

What stays, whatever the limits say:

- the growing segment, and one that waits to be sealed: only whole sealed segments go, and only from the front;
- by size, the newest segments that together reach `retention_bytes`;
- what a pin holds (`pin.py`): segments with records that a named reader has not committed, until a limit of its
  pin is reached;
- the log's next offset. As long as a segment with records is left, that one tells it; before the last one goes,
  it is written to the catalogue.

The age of a segment is the time since the last append to it, so a record is deleted between `retention_ms` and
`retention_ms + roll_age_ms` after its append: a segment grows for `roll_age_ms` at most (the smaller of
`segment_age_ms` and `retention_ms`), and this thread seals it then although nobody appends. Ages are taken from
`SteadyClock`, so a clock set ahead for a while deletes nothing early. Records from a future that the clock
has been set back from would never get old; they count from the moment at which they are first seen here."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from timestone.config import LogConfig
from timestone.deletion import delete_pair, segment_files
from timestone.json_document import integer, json_object
from timestone.pin import Pin
from timestone.segment import Segment
from timestone.steady_clock import STEP_US

if TYPE_CHECKING:
    from timestone.log import Log
    from timestone.store import Store

_LOGGER = logging.getLogger("timestone")
SPACE = "retention"
"""The space of the catalogue's documents: `<log>-<partition>/<base offset>` of segments from the future."""
_LOOK_AGAIN_S = 3600.0
"""The longest sleep with something left to expire: somebody may set the clock meanwhile."""
_PINNED_US = 10_000_000
"""How long until what a pin holds is looked at again: its reader may commit in another process."""


def is_limited(config: LogConfig) -> bool:
    """Does a log with these settings ever delete anything?"""
    return config.retention_ms > 0 or config.retention_bytes > 0


def too_many(sizes: Sequence[int], more_bytes: int, limit_bytes: int) -> int:
    """How many segments at the front can go so that what is left is still at least the limit. `sizes`: of the
    sealed segments, oldest first; `more_bytes`: what lies behind them."""
    total, count = sum(sizes) + more_bytes, 0
    while count < len(sizes) and total - sizes[count] >= limit_bytes:
        total -= sizes[count]
        count += 1
    return count


class Retention:
    """Keeps one log within its limits. Any thread may call; one works at a time."""

    def __init__(self, log: "Log", store: "Store") -> None:
        self._log = log
        self._store = store
        self._growing = (-1, 0)
        self._held = False
        self._first_seen: dict[int, int] | None = None

    def expect(self, after_s: float = 0.0) -> None:
        """Something has changed that may make a segment expire: look, in the background."""
        if is_limited(self._log.config):
            self._store.maintenance.expect(self.run, after_s)

    def run(self) -> float | None:
        """The task for the background: `apply`, and in how many seconds to look again. Raises OSError."""
        self.apply()
        with self._log.rewrites.lock:
            return None if self._log.has_ended else self._next_s()

    def apply(self) -> int:
        """Seal and delete what is due now; returns how many segments were deleted. Raises OSError when the disk
        refuses some of it; the rest is done."""
        log = self._log
        with self._log.rewrites.lock:
            if log.has_ended or not is_limited(log.config):
                return 0
            if self._roll_in_us() == 0:
                log.roll()
            sealed = log.history.sealed()
            retention_us = log.config.retention_ms * 1000
            expired = sealed[: max(self._too_old(sealed, retention_us), self._too_many(sealed))]
            released = self._released(expired)
            self._held = len(released) < len(expired)
            return self._delete(released) if released else 0

    def _too_many(self, sealed: Sequence[Segment]) -> int:
        limit_bytes = self._log.config.retention_bytes
        return (
            too_many(list(map(_disk_bytes, sealed)), self._log.unsealed_bytes, limit_bytes)
            if limit_bytes
            else 0
        )

    def _too_old(self, sealed: Sequence[Segment], retention_us: int) -> int:
        if not retention_us:
            return 0
        now_us = self._store.steady_clock.now_us()
        self._see_future(sealed, now_us)
        for count, segment in enumerate(sealed):
            if self._appended_us(segment) + retention_us > now_us:
                return count
        return len(sealed)

    def _released(self, expired: list[Segment]) -> list[Segment]:
        """Those of the expired segments that no pin holds. Raises OSError or CorruptLog when the pins cannot be
        read: nothing goes then."""
        if not expired:
            return expired
        committed = self._log.named_readers.all_committed()
        pinned = [(reader, found.offset, found.pin) for reader, found in committed.items() if found.pin]
        count = len(expired)
        for _, offset, pin in pinned:
            read = sum(segment.end_offset <= offset for segment in expired)
            count = min(count, max(read, self._over_limit(pin, expired)))
        released = expired[:count]
        for reader, offset, pin in pinned:
            if released and offset < released[-1].end_offset:
                _LOGGER.warning(
                    "%s: reader %r has read up to offset %d and loses what is below %d: that is more than its %s",
                    self._log.folder,
                    reader.name,
                    offset,
                    released[-1].end_offset,
                    pin,
                )
        return released

    def _over_limit(self, pin: Pin, expired: Sequence[Segment]) -> int:
        """How many segments at the front are more than a pin may hold."""
        old = self._too_old(expired, pin.max_age_ms * 1000)
        if not pin.max_bytes:
            return old
        held_bytes, count = sum(map(_disk_bytes, expired)), 0
        while held_bytes > pin.max_bytes:
            held_bytes -= _disk_bytes(expired[count])
            count += 1
        return max(old, count)

    def _appended_us(self, segment: Segment) -> int:
        """When the last record was appended, as far as that can be believed."""
        last_us = _last_us(segment)
        return min(last_us, self._seen().get(segment.base_offset, last_us))

    def _roll_in_us(self) -> int | None:
        """When the growing segment has to be sealed although nobody appends; 0 for now, None for never."""
        base = self._log.growing_base
        if base is None or not self._log.config.retention_ms:
            return None
        uptime_us = self._store.steady_clock.uptime_us()
        if self._growing[0] != base:
            self._growing = (base, uptime_us)
        return max(0, self._growing[1] + self._log.config.roll_age_ms * 1000 - uptime_us)

    def _next_s(self) -> float | None:
        """In how many seconds something may expire; None when only an event can change that."""
        waits_us = [wait_us] if (wait_us := self._roll_in_us()) is not None else []
        retention_us = self._log.config.retention_ms * 1000
        if self._held:
            waits_us.append(_PINNED_US)
        elif retention_us and (sealed := self._log.history.sealed()):
            now_us = self._store.steady_clock.now_us()
            waits_us.append(max(0, self._appended_us(sealed[0]) + retention_us - now_us))
        return min(min(waits_us) / 1e6, _LOOK_AGAIN_S) if waits_us else None

    def _delete(self, expired: list[Segment]) -> int:
        log, files = self._log, self._store.files
        refused: OSError | None = None
        if not any(segment.count for segment in log.history.segments[len(expired) :]):
            try:
                log.remember()
            except OSError as error:
                _LOGGER.warning("%s: its last segment stays until that can be noted: %s", log.folder, error)
                expired, refused = expired[:-1], error
        gone: list[Segment] = []
        renamed: list[Path] = []
        unneeded: list[Path] = []
        try:
            try:
                present = segment_files(files, log.folder)  # once: a listing is as long as the log
                for segment in expired:
                    base = segment.base_offset
                    renamed += delete_pair(files, log.folder, base, present.get(base, ()))
                    gone.append(segment)
            finally:
                files.sync_directory(log.folder)
                unneeded = renamed
        finally:
            # Durable, so it may be told. (When the sync has failed it is told all the same: the names are gone. What
            # proves it stays then, because a power loss may bring some of the names back.)
            log.drop(gone)
            self._store.deleted_files.add(unneeded)
            self._store.maintenance.expect(self._store.deleted_files.unlink_due)
        self._forget_seen(gone)
        if refused is not None:
            raise refused
        return len(gone)

    # Segments from the future.

    def _see_future(self, sealed: Sequence[Segment], now_us: int) -> None:
        """Note when segments were first seen whose records are from the future. In the catalogue, or a store that
        is often restarted would never delete them."""
        seen, found = self._seen(), []
        for segment in reversed(sealed):  # times never decrease
            if _last_us(segment) <= now_us + STEP_US:
                break
            if seen.get(segment.base_offset, _last_us(segment)) > now_us + STEP_US:
                found.append(segment.base_offset)
        if not found:
            return
        if not seen:
            _LOGGER.warning(
                "%s: the records from offset %d on are from the future of this clock; to retention they are from now",
                self._log.folder,
                found[-1],
            )
        seen |= dict.fromkeys(found, now_us)
        document = json.dumps({"seen_us": now_us}).encode()
        self._put_seen({self._key(base): document for base in found})

    def _seen(self) -> dict[int, int]:
        if self._first_seen is None:
            self._first_seen = {}
            prefix = self._key("")
            for key, document in self._store.documents.items(SPACE).items():
                if not key.startswith(prefix):
                    continue
                try:
                    self._first_seen[int(key.removeprefix(prefix))] = integer(
                        json_object(document)["seen_us"]
                    )
                except (ValueError, KeyError, TypeError) as error:
                    _LOGGER.warning("%s: %r is as if never seen: %r", self._log.folder, key, error)
        return self._first_seen

    def _forget_seen(self, gone: Sequence[Segment]) -> None:
        seen = self._seen()
        bases = [segment.base_offset for segment in gone if seen.pop(segment.base_offset, None) is not None]
        if bases:
            self._put_seen({self._key(base): None for base in bases})

    def _put_seen(self, documents: dict[str, bytes | None]) -> None:
        try:
            self._store.documents.put_many(SPACE, documents)
        except OSError as error:
            _LOGGER.warning("%s: %s", self._log.folder, error)  # known until the process ends

    def _key(self, base_offset: int | str) -> str:
        return f"{self._log.folder.name}/{base_offset}"


def _last_us(segment: Segment) -> int:
    """The time of a sealed segment's last record."""
    assert segment.trailer is not None
    # Zero when recovery could prove none of its records.
    return segment.trailer.last_timestamp_us or segment.trailer.sealed_us


def _disk_bytes(segment: Segment) -> int:
    """What a sealed segment takes on the disk, index included."""
    assert segment.trailer is not None
    return segment.trailer.stored_bytes + segment.trailer.file_bytes

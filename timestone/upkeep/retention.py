"""How long a log keeps its records: the oldest sealed segments are deleted by age and by size.

What belongs here: which segments go, when the next one will, and what has to be durable before. How files go is
`deletion.py`; when this runs is `maintenance.py`.

What stays, regardless of the limits say:

- the growing segment, and one that waits to be sealed: only whole sealed segments go, and only from the front;
- by size, the newest segments that together reach `retention_bytes`;
- what a pin holds (`pin.py`): segments with records that a named reader has not committed, until a limit of its
  pin is reached;
- the log's next offset. As long as a segment with records is left, that one tells it; before the last one goes,
  it is written to the catalogue.

The age of a segment is the time since a mark that was set when it was sealed (`age_marks.py`), in time that has
provably passed (`steady_clock.py`). The wall clock and the timestamps of records decide nothing, so a clock that is
wrong, now or at any earlier start, deletes nothing early. A segment grows for `roll_age_ms` at most (the smaller of
`segment_age_ms` and `retention_ms`), and this thread seals it then although nobody appends. So a record is deleted
between `retention_ms` and `retention_ms + roll_age_ms` after its append, in time that the machine was running. What
is not known to be old, as the records of an older version at first, counts from the moment when it is found."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from timestone.config import LogConfig
from timestone.format.deleted_files import delete_pair, segment_files
from timestone.reading.retention_hold import Pin
from timestone.segment import Segment
from timestone.upkeep.age_marks import AgeMarks
from timestone.upkeep.host import UpkeptLog, UpkeptStore

_LOGGER = logging.getLogger("timestone")
SPACE = "retention"
"""The space of the catalogue's documents: `<log>-<partition>` with the marks of a log, and CLOCK_KEY."""
CLOCK_KEY = "clock"
"""The store's `ClockState`; the folder of a log has a dash in its name."""
NOTE_EVERY_US = 600 * 1_000_000
"""How often both are written while the store is open: what has passed since does not count after a power loss."""
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

    def __init__(self, log: UpkeptLog, store: UpkeptStore) -> None:
        self._log = log
        self._store = store
        self._growing = (-1, 0)
        self._held = False
        self._marks = AgeMarks()
        self._marks_lock = threading.Lock()
        self._marks_changed = False

    def begin(self, document: bytes | None) -> None:
        """Take over what an earlier process has noted of this log, None for nothing, before anything is appended."""
        log, clock = self._log, self._store.steady_clock
        if document is not None:
            try:
                log_id = log.topics.identity.log_id
                self._marks = AgeMarks.decode(document, clock.timeline, log_id, log.end_offset)
            except (ValueError, TypeError) as error:
                _LOGGER.warning("%s: the age of its records is not known: %s", log.folder, error)
                self._marks_changed = True
        self.mark()

    def mark(self) -> None:
        """Note that what is in the log now has been appended by now. Takes no time worth mentioning."""
        end_offset = self._log.end_offset  # before the time
        with self._marks_lock:
            if self._marks.forget_below(self._log.start_offset):
                self._marks_changed = True
            if end_offset > self._log.start_offset:
                added = self._marks.add(self._store.steady_clock.now_us(), end_offset)
                self._marks_changed = added or self._marks_changed

    def changed_document(self) -> bytes | None:
        """The marks for the next process if they have changed since the last call, else None."""
        with self._marks_lock:
            if not self._marks_changed:
                return None
            self._marks_changed = False
            return self._marks.encode(self._store.steady_clock.timeline, self._log.topics.identity.log_id)

    def not_noted(self) -> None:
        """What `changed_document` returned could not be written."""
        with self._marks_lock:
            self._marks_changed = True

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
        deleted_count = self._apply()
        self._store.note_time()
        return deleted_count

    def _apply(self) -> int:
        log = self._log
        with log.rewrites.lock:
            if log.has_ended or not is_limited(log.config):
                return 0
            if self._roll_in_us() == 0:
                log.roll()
            self.mark()
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
        """A moment by which its last record was appended; now when that is not known."""
        with self._marks_lock:
            appended_us = self._marks.appended_by_us(segment.end_offset)
        return self._store.steady_clock.now_us() if appended_us is None else appended_us

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
        return min(min(waits_us) / 1e6, NOTE_EVERY_US / 1e6) if waits_us else None

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
        if refused is not None:
            raise refused
        return len(gone)


def _disk_bytes(segment: Segment) -> int:
    """What a sealed segment takes on the disk, index included."""
    assert segment.trailer is not None
    return segment.trailer.stored_bytes + segment.trailer.file_bytes

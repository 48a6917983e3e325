"""Retention of a log: deletes its oldest sealed segments by age and by size.

With a tier, `retention_*` is for the whole log, in the bucket and on the disk, and `local_retention_*` for the disk.

What belongs here: which segments are deleted, when the next one will be, and what must be durable before. How files are
deleted is in `deleted_files.py`; when this runs is decided by `maintenance.py`.

Never deleted, at any limits:

- the growing segment, and one that waits to be sealed: only whole sealed segments are deleted, and only from the front;
- by size, the newest segments that together reach `retention_bytes`;
- segments held by a pin (`retention_hold.py`): with records that a named reader has not committed, until a limit of its
  pin is reached;
- by `local_retention_*`, what a bucket has not provably got (`RemoteHistory.confirmed`);
- the log's next offset. While a segment with records is left, it implies that offset; before the last one is deleted,
  the offset is written to the catalogue.

The age of a segment is the time since a mark that was set when it was sealed (`age_marks.py`), in time that has
provably passed (`steady_clock.py`). The wall clock and the timestamps of records have no influence, so a clock that is
wrong, now or at any earlier start, deletes nothing early. A segment grows for `roll_age_ms` at most (the smaller of
`segment_age_ms` and `retention_ms`), and this thread then seals it even without appends. So a record is deleted between
`retention_ms` and `retention_ms + roll_age_ms` after its append, in time that the machine was running. Records of
unknown age, such as those of an older version at first, count from the moment when they are found."""

import itertools
import logging
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from timestone.config import LogConfig
from timestone.disk.catalog import Catalog
from timestone.disk.clock import Clock
from timestone.disk.steady_clock import UNEXPLAINED_US, ClockState, SteadyClock
from timestone.errors import CorruptLog
from timestone.format.deleted_files import delete_pair, forget_missing, segment_files
from timestone.reading.retention_hold import Pin
from timestone.segment import Segment
from timestone.upkeep.age_marks import AgeMarks
from timestone.upkeep.host import UpkeptLog, UpkeptStore

_LOGGER = logging.getLogger("timestone")
SPACE = "retention"
"""Namespace in the catalogue: `<log>-<partition>` with the marks of a log, and CLOCK_KEY."""
CLOCK_KEY = "clock"
"""Key of the store's `ClockState`; it contains no dash, unlike the folder of a log."""
NOTE_EVERY_US = 600 * 1_000_000
"""Interval of writing both while the store is open: time that has passed since does not count after a power loss."""
_PINNED_US = 10_000_000
"""Delay until held segments are checked again: their reader may commit in another process."""


def is_limited(config: LogConfig) -> bool:
    """Return whether a log with these settings ever deletes anything."""
    return config.retention_ms > 0 or config.retention_bytes > 0 or is_limited_locally(config)


def is_limited_locally(config: LogConfig) -> bool:
    """Return whether a log with these settings deletes from the disk what a bucket has."""
    return config.local_retention_ms > 0 or config.local_retention_bytes > 0


def too_many(sizes: Sequence[int], more_bytes: int, limit_bytes: int) -> int:
    """Return how many segments at the front can be deleted so that at least the limit is left. sizes: of the sealed
    segments in bytes, oldest first. more_bytes: size of what follows them."""
    total, count = sum(sizes) + more_bytes, 0
    while count < len(sizes) and total - sizes[count] >= limit_bytes:
        total -= sizes[count]
        count += 1
    return count


class Retention:
    """Retention of one log. Any thread may call; one works at a time."""

    def __init__(self, log: UpkeptLog, store: UpkeptStore) -> None:
        self._log = log
        self._store = store
        self._growing = (-1, 0)
        self._held = False
        self._marks = AgeMarks()
        self._marks_lock = threading.Lock()
        self._marks_changed = False

    @property
    def key(self) -> str:
        """Return the key of its document in the catalogue."""
        return self._log.folder.name

    def begin(self, document: bytes | None) -> None:
        """Restore the marks that an earlier process stored for this log, None for none, before anything is appended."""
        log, clock = self._log, self._store.steady_clock
        if document is not None:
            try:
                log_id = log.topics.identity.log_id
                self._marks = AgeMarks.decode(document, clock.timeline, log_id, log.end_offset)
            except (ValueError, TypeError) as error:
                _LOGGER.warning("%s: the age of its records is unknown: %s", log.folder, error)
                self._marks_changed = True
        self.mark()

    def mark(self) -> None:
        """Note that the current records of the log were appended by now. Takes negligible time."""
        end_offset = self._log.end_offset  # before reading the time
        # What a bucket has is not known before it is attached.
        known = self._log.history is not None or not is_limited_locally(self._log.config)
        with self._marks_lock:
            if known and self._marks.forget_below(self._log.start_offset):
                self._marks_changed = True
            if end_offset > self._log.start_offset:
                added = self._marks.add(self._store.steady_clock.now_us(), end_offset)
                self._marks_changed = added or self._marks_changed

    def changed_document(self) -> bytes | None:
        """Return the marks for the next process if they have changed since the last call, else None; None also for a
        log that has failed."""
        with self._marks_lock:
            if not self._marks_changed or self._log.failure is not None:
                return None
            self._marks_changed = False
            return self._marks.encode(self._store.steady_clock.timeline, self._log.topics.identity.log_id)

    def not_noted(self) -> None:
        """Note that the result of `changed_document` could not be written."""
        with self._marks_lock:
            self._marks_changed = True

    def expect(self, after_s: float = 0.0) -> None:
        """Check in the background, because a segment may have expired, or has to be sealed."""
        if self._is_active:
            self._store.maintenance.expect(self.run, after_s)

    @property
    def _is_active(self) -> bool:
        return is_limited(self._log.config) or self._is_uploaded

    @property
    def _is_uploaded(self) -> bool:
        """Return whether sealed segments of the log are uploaded: its last records are, too, when they are old."""
        return self._store.tier is not None and not self._log.config.compact

    def run(self) -> float | None:
        """Run `apply` as the background task, and return the seconds until the next check. Raises OSError."""
        self.apply()
        with self._log.rewrites.lock:
            return None if self._log.has_ended else self._next_s()

    def apply(self) -> int:
        """Seal and delete what is due now, and return how many segments were deleted. Raises OSError if a part of it
        failed; the rest is done."""
        deleted_count = self._apply()
        self._store.note_time()
        return deleted_count

    def _apply(self) -> int:
        log = self._log
        with log.rewrites.lock:
            if log.has_ended or not self._is_active:
                return 0
            if self._roll_in_us() == 0:
                log.roll()
            self.mark()
            local = log.segment_list.sealed()
            older = self._only_remote()
            expired = self._beyond([*older, *local], log.config.retention_ms, log.config.retention_bytes)
            released = self._released(expired)
            self._held = len(released) < len(expired)
            if released:
                self._expire_remote(released[-1].end_offset)
            count = max(len(released) - len(older), len(self._kept_elsewhere(local)))
            return self._delete(local[:count]) if count > 0 else 0

    def _only_remote(self) -> list[Segment]:
        """Return the segments that only a bucket has, oldest first."""
        history = self._log.history
        if history is None or self._store.tier is None:
            return []
        first = self._log.local_start_offset
        return [one for one in history.segments if one.base_offset < first and one.trailer is not None]

    def _expire_remote(self, start_offset: int) -> None:
        history, tier = self._log.history, self._store.tier
        if history is not None and tier is not None:
            tier.expire(self._log.id, start_offset)
            self._log.attach_history(history.starting_at(start_offset))

    def _kept_elsewhere(self, local: list[Segment]) -> list[Segment]:
        """Return the local segments that may go because a bucket provably has them and the disk is to hold no more."""
        config = self._log.config
        beyond = self._beyond(local, config.local_retention_ms, config.local_retention_bytes)
        return list(itertools.takewhile(self._is_elsewhere, beyond))

    def _is_elsewhere(self, segment: Segment) -> bool:
        # What compaction rewrites, a bucket has in an older form.
        history, is_compacted = self._log.history, self._log.config.compact
        return (
            history is not None
            and history.confirmed
            and not is_compacted
            and segment.end_offset <= history.end
        )

    def _beyond(self, sealed: list[Segment], limit_ms: int, limit_bytes: int) -> list[Segment]:
        """Return the oldest segments that exceed the limit of age or of size; 0 for no limit."""
        too_old = self._too_old(sealed, limit_ms * 1000)
        if not limit_bytes:
            return sealed[:too_old]
        sizes = list(map(_disk_bytes, sealed))
        return sealed[: max(too_old, too_many(sizes, self._log.unsealed_bytes, limit_bytes))]

    def _too_old(self, sealed: Sequence[Segment], retention_us: int) -> int:
        if not retention_us:
            return 0
        now_us = self._store.steady_clock.now_us()
        for count, segment in enumerate(sealed):
            if self._appended_us(segment.end_offset) + retention_us > now_us:
                return count
        return len(sealed)

    def _released(self, expired: list[Segment]) -> list[Segment]:
        """Return the expired segments that no pin holds. Raises OSError or CorruptLog if the pins cannot be read:
        nothing is deleted then."""
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
                    "%s: reader %r has read up to offset %d and loses the offsets below %d, which exceed its %s",
                    self._log.folder,
                    reader.name,
                    offset,
                    released[-1].end_offset,
                    pin,
                )
        return released

    def _over_limit(self, pin: Pin, expired: Sequence[Segment]) -> int:
        """Return how many segments at the front exceed the limits of a pin."""
        old = self._too_old(expired, pin.max_age_ms * 1000)
        if not pin.max_bytes:
            return old
        held_bytes, count = sum(map(_disk_bytes, expired)), 0
        while held_bytes > pin.max_bytes:
            held_bytes -= _disk_bytes(expired[count])
            count += 1
        return max(old, count)

    def _appended_us(self, end_offset: int) -> int:
        """Return a moment by which all records below an offset were appended; now if unknown."""
        with self._marks_lock:
            appended_us = self._marks.appended_by_us(end_offset)
        return self._store.steady_clock.now_us() if appended_us is None else appended_us

    def _roll_in_us(self) -> int | None:
        """Return when the growing segment has to be sealed even without appends; 0 for now, None for never."""
        base = self._log.growing_base
        config = self._log.config
        if base is None or not (config.retention_ms or config.local_retention_ms or self._is_uploaded):
            return None
        uptime_us = self._store.steady_clock.uptime_us()
        if self._growing[0] != base:
            # Of a segment that an earlier process began, the age of its first record counts.
            age_us = self._store.steady_clock.now_us() - self._appended_us(base + 1)
            self._growing = (base, uptime_us - age_us)
        return max(0, self._growing[1] + self._log.config.roll_age_ms * 1000 - uptime_us)

    def _next_s(self) -> float | None:
        """Return the seconds until a segment may expire; None if only an event can change that."""
        waits_us = [wait_us] if (wait_us := self._roll_in_us()) is not None else []
        config, local = self._log.config, self._log.segment_list.sealed()
        if self._held:
            waits_us.append(_PINNED_US)
        else:
            waits_us += self._expiry_us([*self._only_remote(), *local], config.retention_ms)
        if local and self._is_elsewhere(local[0]):
            waits_us += self._expiry_us(local, config.local_retention_ms)
        return min(min(waits_us) / 1e6, NOTE_EVERY_US / 1e6) if waits_us else None

    def _expiry_us(self, sealed: Sequence[Segment], limit_ms: int) -> list[int]:
        """In what time the first of these segments expires; empty for never."""
        if not limit_ms or not sealed:
            return []
        due_us = self._appended_us(sealed[0].end_offset) + limit_ms * 1000
        return [max(0, due_us - self._store.steady_clock.now_us())]

    def _delete(self, expired: list[Segment]) -> int:
        log, files = self._log, self._store.files
        refused: OSError | None = None
        if not any(segment.count for segment in log.segment_list.segments[len(expired) :]):
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
                present = segment_files(files, log.folder)  # once: a listing takes as long as the log is
                for segment in expired:
                    base = segment.base_offset
                    renamed += delete_pair(files, log.folder, base, present.get(base, ()))
                    gone.append(segment)
                left = log.segment_list.segments[len(expired) :]
                forget_missing(files, log.folder, left[0].base_offset if left else log.end_offset)
            finally:
                files.sync_directory(log.folder)
                unneeded = renamed
        finally:
            # Durable, so the new start may be published. (Also if the sync has failed: the names are gone. The proof of
            # deletion stays then, because a power loss may bring some of the names back.)
            log.drop(gone)
            self._store.deleted_files.add(unneeded)
            self._store.maintenance.expect(self._store.deleted_files.unlink_due)
        if refused is not None:
            raise refused
        return len(gone)


def _disk_bytes(segment: Segment) -> int:
    """Return the size of a sealed segment on the disk, index included."""
    assert segment.trailer is not None
    return segment.trailer.stored_bytes + segment.trailer.file_bytes


class NotedTime:
    """Running time of a store and the ages of its records, kept in the catalogue."""

    def __init__(self, path: Path, catalog: Catalog, clock: Clock) -> None:
        """path: of the store, for log lines. Raises OSError, CorruptLog."""
        self._path = path
        self._catalog = catalog
        self._lock = threading.Lock()
        self._noted_us: int | None = None
        broken: list[str] = []
        self._known = catalog.items(SPACE, broken)
        for what in broken:
            _LOGGER.warning("%s: %s; how old records are counts from now", path, what)
        self.clock = SteadyClock(clock, self._last_state(self._known.pop(CLOCK_KEY, None)))

    def _last_state(self, document: bytes | None) -> ClockState | None:
        try:
            return None if document is None else ClockState.decode(document)
        except (ValueError, TypeError) as error:
            _LOGGER.warning("%s: how much time has passed is not known: %s", self._path, error)
            return None

    def begin(self, retentions: Collection[Retention]) -> None:
        """Restore the ages of the records of all logs."""
        known, self._known = self._known, {}
        for one in retentions:
            one.begin(known.get(one.key))
        unexplained_us = self.clock.unexplained_us
        if abs(unexplained_us) > UNEXPLAINED_US:
            _LOGGER.warning(
                "%s: since its last use, the clock has moved by %+.1f hours more than has provably passed: "
                "the machine was off, or the clock was or is wrong; retention does not count them",
                self._path,
                unexplained_us / UNEXPLAINED_US,
            )
        # An older version noted ages by the wall clock there, and what was deleted is gone.
        keys = {one.key for one in retentions}
        outdated: dict[str, bytes | None] = {key: None for key in known if key not in keys}
        try:
            if outdated:
                self._catalog.put_many(SPACE, outdated)
        except OSError as error:
            _LOGGER.warning("%s: %s", self._path, error)
        self.note(retentions, at_once=True)

    def note(self, retentions: Collection[Retention], *, at_once: bool) -> None:
        """Make both durable, unless that was done recently. If the catalogue cannot be written, both are known until
        the process ends."""
        with self._lock:
            uptime_us = self.clock.uptime_us()
            noted_us = self._noted_us
            if noted_us is not None and not at_once and uptime_us < noted_us + NOTE_EVERY_US:
                return
            self._noted_us = uptime_us
            changed = {one: document for one in retentions if (document := one.changed_document())}
            documents: dict[str, bytes | None] = {one.key: found for one, found in changed.items()}
            documents[CLOCK_KEY] = self.clock.state().encode()
            try:
                self._catalog.put_many(SPACE, documents)
            except (OSError, CorruptLog) as error:
                _LOGGER.warning("%s: how much time has passed could not be noted: %s", self._path, error)
                for one in changed:
                    one.not_noted()

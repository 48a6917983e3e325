"""Inspection of a store for `timestone inspect`: its parts and their state.

Reads only and needs no catalogue and no lock, so it works on a live store, a crashed one and copied files. A live
and a crashed store look alike on the disk, because the last segment is unclosed; the lock shows whether a process
owns the store, so that a running server is not reported as a fault."""

import dataclasses
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from timestone.disk.catalog import Catalog, CatalogRow, folder_missing
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.disk.lock import is_owned, owner_elsewhere, read_owner
from timestone.disk.steady_clock import ClockState
from timestone.errors import CorruptLog, TimestoneError, UnknownLog
from timestone.format import names
from timestone.format.damage_report import Damage, known_damage
from timestone.format.store_listing import logs_of_store
from timestone.reading.named_readers import Commitment, Commitments, ReaderId, ReaderLag
from timestone.recovery.opening_progress import Progress
from timestone.recovery.segment_report import State
from timestone.repair.inspection_report import LogReport, ReaderReport, StoreReport
from timestone.repair.log_inspection import LogInspection
from timestone.upkeep.age_marks import AgeMarks
from timestone.upkeep.retention import CLOCK_KEY
from timestone.upkeep.retention import SPACE as RETENTION_SPACE

EXIT_CLEAN, EXIT_UNCLOSED, EXIT_TORN, EXIT_CORRUPT, EXIT_UNREADABLE = range(5)

_EXIT_OF_STATE = {
    State.SEALED: EXIT_CLEAN,
    State.CLOSED: EXIT_CLEAN,
    State.UNCLOSED: EXIT_UNCLOSED,
    State.TORN: EXIT_TORN,
    State.DAMAGED: EXIT_CORRUPT,
    State.ORPHAN: EXIT_CORRUPT,
}


class NotedBucket(Protocol):
    """What a store has noted about the bucket that it uploads to."""

    url: str
    error: str
    """Why the last upload failed; empty if it did not."""

    def keeps(self, name: str) -> bool:
        """Return whether logs of this name are uploaded."""

    def range_of(self, log_id: int, name: str, partition: int) -> tuple[int, int] | None:
        """Return the offsets [start, end) that the bucket has of a log; None for none."""


def inspect_store(
    path: str | os.PathLike[str],
    *,
    deep: bool = False,
    log: str | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
    bucket: NotedBucket | None = None,
) -> StoreReport:
    """Look at every file of a store. deep: check every byte that a checksum covers. log: only the partitions of
    this log, or one folder such as `telemetry-0`. bucket: that of the store; None without one.

    Raises NotAStore when there is nothing to look at, UnknownLog; everything else that is wrong is in the report.
    """
    store, files = Path(path), files or Files()
    logs = logs_of_store(files, store)
    chosen = [one for one in logs if _is_meant(one, log)]
    if log is not None and not chosen:
        raise UnknownLog(log, tuple(names.log_folder(*one) for one in logs))
    lock = store / names.LOCK_NAME
    owner = read_owner(files, lock)[0] if is_owned(files, lock) else None
    catalogued = _catalogued(store / names.CATALOG_NAME, deep)
    notes = [catalogued.unreadable] if catalogued.unreadable else []
    if logs and not (store / names.CATALOG_NAME).exists():
        notes.append(_WITHOUT_CATALOG)
    rows = catalogued.rows
    missing = [one for one in sorted(rows.keys() - set(logs)) if _is_meant(one, log)]
    notes += [f"{names.log_folder(*one)}: {folder_missing(rows[one].next_offset)}." for one in missing]
    reports = [LogInspection(files, store, one, rows.get(one), deep, progress).report() for one in chosen]
    reports = [_with_age(report, catalogued, clock or Clock()) for report in reports]
    if bucket is not None:
        reports = [
            _with_bucket(report, rows.get((report.log, report.partition)), bucket) for report in reports
        ]
    readers = [
        _reader_report(reader, found, reports)
        for reader, found in catalogued.committed.items()
        if log is None or (reader.log, reader.partition) in chosen
    ]
    still_there = tuple(one for one in catalogued.damage if not deep and _is_there(one, reports))
    code = max((_exit_code(report, owned=owner is not None) for report in reports), default=EXIT_CLEAN)
    if still_there or missing or catalogued.unreadable:
        code = max(code, EXIT_CORRUPT)
    return StoreReport(
        path=str(store),
        owner_pid=owner,
        deep=deep,
        logs=tuple(reports),
        readers=tuple(readers),
        notes=tuple(notes),
        exit_code=code,
        damage=still_there,
        copied_from_pid=None if owner is not None or code == EXIT_CLEAN else owner_elsewhere(files, lock),
        bucket="" if bucket is None else bucket.url,
        bucket_error="" if bucket is None else bucket.error,
    )


def _is_meant(one: tuple[str, int], log: str | None) -> bool:
    """Return whether this partition belongs to the requested log or folder."""
    return log is None or log in (one[0], names.log_folder(*one))


class _Catalogued(NamedTuple):
    """Content of the catalogue."""

    committed: dict[ReaderId, Commitment]
    rows: dict[tuple[str, int], CatalogRow]
    damage: list[Damage]
    times: Mapping[str, bytes]
    """Documents of retention."""
    unreadable: str = ""
    """Why it could not be read, and the next step; empty if it could."""


def _is_there(damage: Damage, reports: list[LogReport]) -> bool:
    return any(
        (report.log, report.partition) == (damage.log, damage.partition)
        and any(segment.base_offset == damage.base_offset for segment in report.segments)
        for report in reports
    )


_WITHOUT_CATALOG = (
    f"{names.CATALOG_NAME} is missing: it has the settings of the logs, sessions and named readers; the records do not "
    "need it. Next: bring it back from a copy; opening the store without it makes one with the default settings."
)


def _exit_code(report: LogReport, *, owned: bool) -> int:
    if report.error:
        return EXIT_UNREADABLE
    codes = [
        EXIT_CORRUPT if segment.lost_durable else _EXIT_OF_STATE[State(segment.state)]
        for segment in report.segments
    ]
    if report.unborn:
        codes.append(EXIT_UNCLOSED)
    if report.topics_reason or report.topic_names_lost or report.missing:
        codes.append(EXIT_CORRUPT)
    code = max(codes, default=EXIT_CLEAN)
    # The owner writes: its last segment is unclosed, and a running write looks like a torn tail.
    return EXIT_CLEAN if owned and code <= EXIT_TORN else code


def _catalogued(path: Path, deep: bool) -> _Catalogued:
    if not path.exists():
        return _Catalogued({}, {}, [], {})
    try:
        with closing(Catalog(path, read_only=True)) as catalog:
            if deep:
                catalog.check()
            times = catalog.items(RETENTION_SPACE, [])  # without one of them, an age is unknown
            return _Catalogued(Commitments(catalog).all(), catalog.logs(), known_damage(catalog), times)
    except (TimestoneError, OSError) as error:
        next_step = "" if isinstance(error, CorruptLog) else ". Next: look again; the records do not need it"
        return _Catalogued({}, {}, [], {}, f"{error}{next_step}.")


def _with_age(report: LogReport, catalogued: _Catalogued, clock: Clock) -> LogReport:
    """Return the report with the segments that look older than they provably are."""
    row = catalogued.rows.get((report.log, report.partition))
    retention_us = row.config.retention_ms * 1000 if row else 0
    if not retention_us:
        return report
    before_us = clock.now_us() - retention_us
    sealed = [segment for segment in report.segments if segment.state not in (State.CLOSED, State.UNCLOSED)]
    looking_old = [segment for segment in sealed if 0 < segment.last_timestamp_us <= before_us]
    marks, passed_us = AgeMarks(), 0
    try:
        last = ClockState.decode(catalogued.times.get(CLOCK_KEY, b""))
        passed_us = last.passed_in(clock.boot_id(), clock.uptime_us())
        document = catalogued.times.get(names.log_folder(report.log, report.partition), b"")
        marks = AgeMarks.decode(document, last.timeline, report.id, report.end_offset)
    except (ValueError, TypeError):
        pass  # the age of its records is unknown
    found = [marks.appended_by_us(segment.next_offset) for segment in looking_old]
    unproven = sum(by_us is None or by_us + retention_us > passed_us for by_us in found)
    return dataclasses.replace(report, age_unproven=unproven)


def _with_bucket(report: LogReport, row: CatalogRow | None, bucket: NotedBucket) -> LogReport:
    """Return the report with what the bucket has of the log, and with what it does not have yet."""
    if report.error:
        return report
    start, end = bucket.range_of(report.id, report.log, report.partition) or (report.start_offset, 0)
    if start < report.start_offset:
        report = dataclasses.replace(report, start_offset=start, local_start_offset=report.start_offset)
    is_compacted = row is not None and row.config.compact
    if is_compacted or names.is_server_log(report.log) or not bucket.keeps(report.log):
        return report
    sealed = [one for one in report.segments if one.state == State.SEALED and one.records]
    waiting = [one for one in sealed if one.next_offset > end]
    return dataclasses.replace(
        report,
        uploaded_offset=end,
        waiting_segments=len(waiting),
        waiting_bytes=sum(one.stored_bytes + one.index_bytes for one in waiting),
    )


def _reader_report(reader: ReaderId, found: Commitment, reports: list[LogReport]) -> ReaderReport:
    place = (reader.log, reader.partition)
    log = next((one for one in reports if (one.log, one.partition) == place and not one.error), None)
    if log is None:
        return ReaderReport(*reader, found.offset, found.committed_us, lag=None, missed=0, pin=found.pin)
    behind = ReaderLag(reader, found, log.start_offset, log.end_offset)
    unread = [segment for segment in log.segments if segment.next_offset > found.offset]
    return ReaderReport(
        *reader,
        offset=found.offset,
        committed_us=found.committed_us,
        lag=behind.lag,
        missed=behind.missed,
        pin=found.pin,
        unread_bytes=sum(segment.bytes + segment.index_bytes for segment in unread),
    )

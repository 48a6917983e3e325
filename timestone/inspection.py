"""What a store is made of and in which state, for `timestone inspect` and for tests. Reads only; needs no
catalogue and no lock, so it works on a live store, on a crashed one and on copied files.

A live store and a crashed one look alike on the disk: their last segment is unclosed. Whether someone owns
the store is asked of the lock, so that a running server is not reported as a fault."""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from timestone import names
from timestone.catalog import Catalog, CatalogRow, folder_missing
from timestone.damage import Damage, known_damage
from timestone.entries import NO_TOPIC
from timestone.errors import CorruptLog, NotAStore, TimestoneError, UnknownLog
from timestone.examination import examine
from timestone.files import Files
from timestone.finding import Finding, State
from timestone.folder_listing import base_offsets
from timestone.inspection_report import LogReport, ReaderReport, SegmentReport, StoreReport
from timestone.lock import owner_elsewhere, read_owner
from timestone.named_readers import Commitment, Commitments, ReaderId, ReaderLag
from timestone.opening_progress import Progress
from timestone.recovery import identity_from_indexes
from timestone.topics import LogIdentity, TopicDictionary

EXIT_CLEAN, EXIT_UNCLOSED, EXIT_TORN, EXIT_CORRUPT, EXIT_UNREADABLE = range(5)

_EXIT_OF_STATE = {
    State.SEALED: EXIT_CLEAN,
    State.UNCLOSED: EXIT_UNCLOSED,
    State.TORN: EXIT_TORN,
    State.DAMAGED: EXIT_CORRUPT,
    State.ORPHAN: EXIT_CORRUPT,
}


def inspect_store(
    path: str | os.PathLike[str],
    *,
    deep: bool = False,
    log: str | None = None,
    files: Files | None = None,
    progress: Progress | None = None,
) -> StoreReport:
    """Look at every file of a store. deep: check every byte that a checksum covers. log: only the partitions of
    this log, or one folder such as `telemetry-0`.

    Raises NotAStore when there is nothing to look at, UnknownLog; everything else that is wrong is in the report.
    """
    store, files = Path(path), files or Files()
    if not store.is_dir():
        raise NotAStore(store, "it is not a directory" if store.exists() else "it does not exist")
    logs = [
        found
        for name in files.names(store)
        if (found := names.parse_log_folder(name)) and (store / name).is_dir()
    ]
    if not logs and not (store / names.CATALOG_NAME).exists():
        raise NotAStore(store, f"it has neither logs nor a {names.CATALOG_NAME}")
    chosen = [one for one in sorted(logs) if log is None or log in (one[0], names.log_folder(*one))]
    if log is not None and not chosen:
        raise UnknownLog(log, tuple(names.log_folder(*one) for one in sorted(logs)))
    owner, notes = _owner(files, store / names.LOCK_NAME), []
    catalogued, catalog_sound = _Catalogued({}, {}, []), True
    try:
        catalogued = _catalogued(store / names.CATALOG_NAME, deep)
    except (TimestoneError, OSError) as error:
        catalog_sound = False
        next_step = "" if isinstance(error, CorruptLog) else ". Next: look again; the records do not need it"
        notes.append(f"{error}{next_step}.")
    if logs and not (store / names.CATALOG_NAME).exists():
        notes.append(_WITHOUT_CATALOG)
    committed, rows, damage = catalogued
    missing = [
        one
        for one in sorted(rows.keys() - set(logs))
        if log is None or log in (one[0], names.log_folder(*one))
    ]
    notes += [f"{names.log_folder(*one)}: {folder_missing(rows[one].next_offset)}." for one in missing]
    reports = [_LogInspection(files, store, one, rows.get(one), deep, progress).report() for one in chosen]
    readers = [
        _reader_report(reader, found, reports)
        for reader, found in committed.items()
        if log is None or (reader.log, reader.partition) in chosen
    ]
    still_there = tuple(one for one in damage if not deep and _is_there(one, reports))
    code = max((_exit_code(report) for report in reports), default=EXIT_CLEAN)
    if still_there or missing or not catalog_sound:
        code = max(code, EXIT_CORRUPT)
    return StoreReport(
        str(store),
        owner,
        deep,
        tuple(reports),
        tuple(readers),
        tuple(notes),
        code,
        still_there,
        None if owner is not None or code == EXIT_CLEAN else owner_elsewhere(files, store / names.LOCK_NAME),
    )


class _Catalogued(NamedTuple):
    """What the catalogue says."""

    committed: dict[ReaderId, Commitment]
    rows: dict[tuple[str, int], CatalogRow]
    damage: list[Damage]


def _is_there(damage: Damage, reports: list[LogReport]) -> bool:
    return any(
        (report.log, report.partition) == (damage.log, damage.partition)
        and any(segment.base_offset == damage.base_offset for segment in report.segments)
        for report in reports
    )


class _LogInspection:
    """The inspection of one log folder."""

    def __init__(
        self,
        files: Files,
        store: Path,
        log: tuple[str, int],
        row: CatalogRow | None,
        deep: bool,
        progress: Progress | None,
    ) -> None:
        """row: what the catalogue says, for a log that has no segments; None when it does not know the log."""
        name, partition = log
        self._known = row is not None
        self._next_offset = row.next_offset if row else 0
        self._files = files
        self._folder = store / names.log_folder(name, partition)
        self._name = name
        self._partition = partition
        self._deep = deep
        self._progress = progress

    def report(self) -> LogReport:
        try:
            return self._report()
        except (TimestoneError, OSError) as error:
            return self._empty(error=str(error))

    def _empty(self, *, error: str = "", unborn: bool = False) -> LogReport:
        """The report of a log that cannot be looked into."""
        return LogReport(
            self._name,
            self._partition,
            *(0,) * 10,
            segments=(),
            strangers=(),
            put_aside=self._put_aside(),
            error=error,
            unborn=unborn,
        )

    def _report(self) -> LogReport:
        bases, strangers = base_offsets(self._files, self._folder)
        if not bases and not self._known and names.TOPICS_NAME not in self._files.names(self._folder):
            return self._empty(unborn=True)
        known = identity_from_indexes(self._files, self._folder, bases, self._name, self._partition)
        log_id, topics, reason = self._topics(known)
        try:
            findings = self._examine(bases, log_id, topics)
            used_count = max((finding.topic_count for finding in findings), default=0)
            if topics is not None:
                topics.take_up_to(used_count)
            served = [finding for finding in findings if finding.state is not State.ORPHAN]
            return LogReport(
                log=self._name,
                partition=self._partition,
                id=log_id,
                epoch=max((one.header.epoch for one in findings if one.header), default=0),
                start_offset=served[0].base_offset if served else self._next_offset,
                end_offset=max((finding.end_offset for finding in served), default=self._next_offset),
                synced_offset=max(
                    (one.base_offset + min(one.watermark, one.count) for one in served),
                    default=self._next_offset,
                ),
                records=sum(finding.count - finding.removed_count for finding in served),
                removed=sum(finding.removed_count for finding in served),
                bytes=sum(finding.segment_bytes for finding in served),
                stored_bytes=sum(map(_stored_bytes, served)),
                topics=used_count if topics is None else len(topics),
                topic_names_lost=used_count if topics is None else topics.lost_count,
                segments=tuple(map(_segment_report, findings)),
                strangers=tuple(strangers),
                put_aside=self._put_aside(),
                error="",
                topics_reason=reason,
                missing=tuple(_missing(served)),
            )
        finally:
            if topics is not None:
                topics.close()

    def _topics(self, known: LogIdentity | None) -> tuple[int, TopicDictionary | None, str]:
        """The log's id, its topic dictionary if there is one, and what is wrong with that."""
        try:
            topics = TopicDictionary(self._files, self._folder / names.TOPICS_NAME, known=known)
        except FileNotFoundError:
            if known is None:
                raise
            return known.log_id, None, "the topic dictionary is missing"
        damaged = "the header page of the topic dictionary does not match its checksum"
        return topics.identity.log_id, topics, damaged if topics.damaged_header else ""

    def _examine(self, bases: list[int], log_id: int, topics: TopicDictionary | None) -> list[Finding]:
        findings = []
        for number, base in enumerate(bases):
            next_base = bases[number + 1] if number + 1 < len(bases) else None
            try:
                findings.append(self._examine_one(base, next_base, log_id, topics))
            except FileNotFoundError:
                if self._is_there(base):
                    raise
            if self._progress is not None:
                self._progress(self._folder.name, number + 1, len(bases))
        # Retention may have deleted some while others were looked at: always the oldest.
        present, _ = base_offsets(self._files, self._folder)
        return [finding for finding in findings if finding.base_offset in present]

    def _is_there(self, base: int) -> bool:
        return base in base_offsets(self._files, self._folder)[0]

    def _examine_one(
        self, base: int, next_base: int | None, log_id: int, topics: TopicDictionary | None
    ) -> Finding:
        """A segment, and again when it looks torn: on a live store the owner may be in the middle of an
        append or a seal."""
        attempt = 1
        while True:
            if topics is not None:
                topics.refresh()
            finding = examine(
                self._files,
                self._folder,
                base,
                log_id,
                topic_count=NO_TOPIC if topics is None else len(topics),
                most_count=next_base - base if next_base is not None else None,
                deep=self._deep,
            )
            if finding.state in (State.SEALED, State.UNCLOSED) or attempt == _ATTEMPTS:
                return finding
            attempt += 1
            time.sleep(_PAUSE_S)

    def _put_aside(self) -> tuple[str, ...]:
        return tuple(name for name in self._files.names(self._folder) if names.LOST_SUFFIX in name)


_WITHOUT_CATALOG = (
    f"{names.CATALOG_NAME} is missing: it has the settings of the logs, sessions and named readers; the records do not "
    "need it. Next: bring it back from a copy; opening the store without it makes one with the default settings."
)
_ATTEMPTS = 3
_PAUSE_S = 0.002


def _stored_bytes(finding: Finding) -> int:
    """What the records that are served take in the segment file."""
    return finding.segment_file_bytes if finding.frames else finding.segment_bytes


def _segment_report(finding: Finding) -> SegmentReport:
    trailer = finding.trailer
    return SegmentReport(
        base_offset=finding.base_offset,
        next_offset=finding.end_offset,
        records=finding.count - finding.removed_count,
        removed=finding.removed_count,
        bytes=finding.segment_bytes,
        stored_bytes=_stored_bytes(finding),
        index_bytes=finding.index_file_bytes,
        first_timestamp_us=trailer.first_timestamp_us if trailer else finding.first_timestamp_us,
        last_timestamp_us=finding.last_timestamp_us,
        state=str(finding.state),
        checkpoint=finding.watermark,
        topics=finding.named_topics if trailer else None,
        damaged_offsets=tuple(finding.base_offset + ordinal for ordinal in finding.damaged),
        lost_records=finding.lost_count,
        lost_bytes=finding.lost_bytes,
        reason=finding.reason,
        missing_bytes=finding.missing_bytes,
    )


def _missing(served: list[Finding]) -> Iterator[tuple[int, int]]:
    for one, later in itertools.pairwise(served):
        if one.header is None or later.header is None or one.header.epoch != later.header.epoch:
            continue
        if one.end_offset < later.base_offset:
            yield one.end_offset, later.base_offset


def _exit_code(report: LogReport) -> int:
    if report.error:
        return EXIT_UNREADABLE
    if report.unborn:
        return EXIT_UNCLOSED
    codes = [
        EXIT_CORRUPT if segment.lost_durable else _EXIT_OF_STATE[State(segment.state)]
        for segment in report.segments
    ]
    if report.topics_reason or report.topic_names_lost:
        codes.append(EXIT_CORRUPT)
    return max(codes, default=EXIT_CLEAN)


def _owner(files: Files, lock: Path) -> int | None:
    """The pid of the process that holds the lock, or None. Asks the kernel, and lets go at once."""
    try:
        fd = files.open(lock)
    except OSError:
        return None
    try:
        return None if files.try_lock(fd) else read_owner(files, lock)[0]
    finally:
        files.close(fd)


def _catalogued(path: Path, deep: bool) -> _Catalogued:
    if not path.exists():
        return _Catalogued({}, {}, [])
    catalog = Catalog(path, read_only=True)
    try:
        if deep:
            catalog.check()
        return _Catalogued(Commitments(catalog).all(), catalog.logs(), known_damage(catalog))
    finally:
        catalog.close()


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

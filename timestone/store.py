"""A store: a data directory that this process owns, and its logs.

What belongs here: opening in the right order (lock, catalogue, recovery of each log), the parts that logs
share (committer, sealer, tail budget, open segments), and closing."""

import atexit
import errno
import functools
import itertools
import logging
import os
import secrets
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from timestone.commit.background_seal import Sealer
from timestone.commit.committer import Committer
from timestone.compressed.frame_cache import CACHED_BYTES, DecodedFrames
from timestone.config import LogConfig, Recovery, StoreConfig, with_settings
from timestone.disk.catalog import Catalog, CatalogRow, folder_missing
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.disk.lock import StoreLock
from timestone.disk.steady_clock import UNEXPLAINED_US, ClockState, SteadyClock
from timestone.errors import CorruptLog, NotAStore, StoreClosed, UnknownLog
from timestone.format import names
from timestone.format.damage_report import Damage, known_damage
from timestone.format.deleted_files import DeletedFiles, finish_deletions
from timestone.format.folder_listing import is_of_a_log, known_missing, listed_bases
from timestone.format.identity import LogIdentity, identity_from_indexes
from timestone.format.store_listing import listed_logs
from timestone.format.topics import TopicDictionary, create_topics_file
from timestone.kernel import loops
from timestone.log import Log
from timestone.reading.named_readers import Commitment, Commitments, ReaderId, check_commit, checked
from timestone.reading.retention_hold import Pin
from timestone.reading.segment_cache import OpenSegments
from timestone.reading.segment_list import History
from timestone.reading.tail_cache import TailBudget
from timestone.recovery.opening_progress import OpeningProgress, Progress
from timestone.recovery.recover import LogRecovery, Recovered
from timestone.recovery.segment_report import Finding
from timestone.segment import Segment
from timestone.spool.consumer import Inbox
from timestone.upkeep.log_deletion import DeletedLogs
from timestone.upkeep.maintenance import Maintenance
from timestone.upkeep.retention import CLOCK_KEY, NOTE_EVERY_US, SPACE
from timestone.upkeep.scrubbing import Scrubber

_LOGGER = logging.getLogger("timestone")


class Store:
    """An open store. Made by `timestone.open`; usable from any thread of the process that opened it, not
    across a fork."""

    def __init__(
        self,
        path: Path,
        config: StoreConfig,
        *,
        create: bool = True,
        files: Files | None = None,
        clock: Clock | None = None,
        progress: Progress | None = None,
    ) -> None:
        if sys.is_finalizing():
            raise RuntimeError(
                f"{path} cannot be opened: the interpreter is shutting down and starts no threads"
            )
        opening = OpeningProgress(path, progress)
        self.path = path
        self.config = config
        self.files = files or Files()
        clock = clock or Clock()
        self.now_us: Callable[[], int] = clock.now_us
        self.boot_id = clock.boot_id()
        self.tail_budget = TailBudget(config.tail_bytes)
        frames = DecodedFrames(min(CACHED_BYTES, config.tail_bytes // 4), self.tail_budget.lend)
        self.open_segments = OpenSegments(config.open_segment_count, frames)
        self.recoveries: tuple[Recovered, ...] = ()
        self._logs: dict[tuple[str, int], Log] = {}
        self._logs_lock = threading.Lock()
        self._remember_lock = threading.Lock()
        self._time_lock = threading.Lock()
        self._time_noted_us: int | None = None
        self._closed = False
        self._prepare_directory(create)
        self._lock = StoreLock(self.files, path / names.LOCK_NAME, self.boot_id)
        try:
            self.documents = self._catalog = Catalog(path / names.CATALOG_NAME, upgrade=True)
            self.committer = Committer(config.sync_interval_ms)
            self.sealer = Sealer()
            self.maintenance = Maintenance()
            self.deleted_files = DeletedFiles(self.files, config.delete_delay_ms)
            known = self._known_times()
            self.steady_clock = SteadyClock(clock, self._last_clock_state(known.pop(CLOCK_KEY, None)))
            self._scrubber = Scrubber(self)
            self._inbox = Inbox(self)
            try:
                self._deleted_logs = DeletedLogs(self.files, path, self._catalog)
                self._try_to_remove_deleted_logs(self._deleted_logs.left_over())
                self._open_logs(opening)
                self._begin_retention(known)
            except BaseException:
                self._shut_down()
                raise
        except BaseException:
            self._lock.release()
            raise
        _open_stores.add(self)
        for log in self._logs.values():
            log.expect_upkeep()
            if log.has_leftovers:
                log.segment_rolled()
        self._scrubber.expect()
        # What was handed over while nobody owned the store, and what its last owner was in the middle of.
        self._inbox.take_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.path}: {'closed' if self._closed else f'{len(self._logs)} logs'}>"

    def log(
        self, name: str, partition: int = 0, *, create: bool = True, config: LogConfig | None = None
    ) -> Log:
        """A log of this store; made when it is not there and `create` is true. `config` counts at creation
        and defaults to the store's.

        Raises InvalidName, UnknownLog when it must not be made, StoreClosed, OSError.
        """
        self._check_open()
        # Without the lock, which is held for as long as the disk takes to make or delete another one.
        log = self._logs.get((name, partition))
        if log is not None:
            return log
        with self._logs_lock:
            self._check_open()
            log = self._logs.get((name, partition))
            if log is None:
                names.validate_log(name, partition)
                if config is not None and not isinstance(config, LogConfig):
                    raise TypeError(f"the config of a log is a LogConfig, not {config!r}")
                if not create:
                    raise UnknownLog(names.log_folder(name, partition), tuple(self._folders()))
                log = self._logs[name, partition] = self._create_log(
                    name, partition, config or self.config.log
                )
            return log

    def delete_log(self, name: str, partition: int = 0) -> None:
        """Delete a log: all its records, its settings, and what its named readers have committed. Durable when it
        returns, and not to be undone; the disk has the space back after `delete_delay_ms`.

        Whoever still uses the log in this process gets StoreClosed. A log that is made under the name afterwards is
        another one: it begins at offset 0, with an id of its own by which fronts and Spark queries tell it from this.

        Raises UnknownLog, StoreClosed, OSError: then it is there as before."""
        with self._logs_lock:
            self._check_open()
            log = self._logs.get((name, partition))
            if log is None:
                raise UnknownLog(names.log_folder(name, partition), tuple(self._folders()))
            log.delete(functools.partial(self._deleted_logs.note, name, partition, self.now_us()))
            del self._logs[name, partition]
            self._try_to_remove_deleted_logs()

    def log_names(self) -> list[tuple[str, int]]:
        """Name and partition of each log, sorted. Raises StoreClosed."""
        self._check_open()
        return sorted(self._logs)

    def readers(self) -> dict[ReaderId, Commitment]:
        """All named readers that have committed, in any process so far. Raises OSError, CorruptLog."""
        return Commitments(self.documents).all()

    def committed(self, reader: ReaderId) -> Commitment | None:
        """What a named reader has committed, or None. Raises OSError, CorruptLog."""
        return Commitments(self.documents).get(reader)

    def commit_readers(self, offsets: Mapping[ReaderId, int], *, pin: Pin | None = None) -> None:
        """Store where named readers continue, all or none of them, durable when it returns; see `Reader.commit`.
        The readers need not be open. With `pin`, retention of their logs keeps what they have not committed;
        without, a pin that they had is released.

        Raises UnknownLog, OffsetOutOfRange, OSError, StoreClosed."""
        logs = {
            reader: self.log(reader.log, reader.partition, create=False) for reader in map(checked, offsets)
        }
        check_commit(offsets, logs)
        Commitments(self.documents).put(offsets, self.now_us(), pin)
        for log in logs.values():
            log.retention.expect()

    def forget_readers(self, readers: Iterable[ReaderId]) -> None:
        """Remove what named readers have committed, pins included; the next of that name begins at its `start`.
        Raises OSError."""
        forgotten = list(readers)
        Commitments(self.documents).forget(forgotten)
        for reader in forgotten:
            log = self._logs.get((reader.log, reader.partition))
            if log is not None:
                log.retention.expect()

    def damage(self) -> list[Damage]:
        """What the scrubber has found damaged and not yet sound again. Raises OSError, CorruptLog."""
        return known_damage(self.documents)

    def scrub(self) -> list[Damage]:
        """Verify every sealed segment from the disk now, as fast as it goes, and return all damage; the scrubber
        does the same in the background, slowly. Raises OSError, CorruptLog, StoreClosed."""
        self._check_open()
        return Scrubber(self).scrub()

    def accept_postings(self) -> None:
        """Append what other processes hand over (`timestone.spool.producer`) as it comes, in a thread of its own.
        Without this call a posting waits for the next `timestone.open`. Raises OSError, StoreClosed."""
        self._check_open()
        self._inbox.listen()

    def close(self) -> None:
        """Write and sync what was submitted, seal all segments, give up the lock. Closing twice is fine.

        Raises LogFailed when the last sync of a log failed, OSError when what an earlier process has left cannot
        be made durable; everything is closed then all the same.
        """
        if not self._closed:
            self._inbox.close()  # first, so that it can end what it is appending
        if not self._begin_to_close():
            return
        _open_stores.discard(self)
        self.maintenance.stop()
        self._scrubber.close()
        first_error: Exception | None = None
        for log in self._logs.values():
            log.compression.close()
            log.compaction.close()
            try:
                log.close()
            except Exception as error:
                first_error = first_error or error
        self._shut_down()
        self._lock.release()
        if first_error is not None:
            raise first_error

    def _begin_to_close(self) -> bool:
        """From here on no log comes and none goes; false when another thread has begun."""
        with self._logs_lock:
            begun, self._closed = self._closed, True
            return not begun

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"store {self.path} is closed")

    def remember(self, log: Log, config: LogConfig) -> None:
        """Write a log's settings and next offset into the catalogue. Raises OSError."""
        with self._remember_lock:
            self._catalog.put_log(log.name, log.partition, config, log.end_offset, log.epoch)

    def note_time(self, *, at_once: bool = False) -> None:
        """Make durable how much time has provably passed and how old records are, if the last time was a while ago.
        Where the catalogue cannot be written, that is known until the process ends."""
        with self._time_lock:
            uptime_us = self.steady_clock.uptime_us()
            noted_us = self._time_noted_us
            if noted_us is not None and not at_once and uptime_us < noted_us + NOTE_EVERY_US:
                return
            self._time_noted_us = uptime_us
            logs = [log for log in list(self._logs.values()) if not log.failure]
            changed = {log: document for log in logs if (document := log.retention.changed_document())}
            documents: dict[str, bytes | None] = {log.folder.name: found for log, found in changed.items()}
            documents[CLOCK_KEY] = self.steady_clock.state().encode()
            try:
                self._catalog.put_many(SPACE, documents)
            except (OSError, CorruptLog) as error:
                _LOGGER.warning("%s: how much time has passed could not be noted: %s", self.path, error)
                for log in changed:
                    log.retention.not_noted()

    def note(self, text: str) -> None:
        """Log what the owner of the store has to know."""
        _LOGGER.error("%s", text)

    def abandon(self) -> None:
        """Stop using the store without writing anything: what happens to the copy in a forked child."""
        self._closed = True
        self._logs_lock = threading.Lock()  # a thread that there is no more may have held it
        self._inbox.abandon()
        for log in self._logs.values():
            log.abandon()
        self._lock.abandon()

    def _prepare_directory(self, create: bool) -> None:
        if (self.path / names.CATALOG_NAME).exists():
            return
        is_there = self.path.exists()
        if not is_there and self.path.is_symlink():  # a disk that is not mounted, most likely
            raise NotAStore(self.path, f"it is a link to {self.path.readlink()}, which is not there")
        if is_there and not self.path.is_dir():
            raise NotAStore(self.path, "it is not a directory")
        if not create:
            raise NotAStore(self.path, f"it has no {names.CATALOG_NAME}" if is_there else "it does not exist")
        self.files.make_directories(self.path)  # also one that is there: its name may not be durable

    def _open_logs(self, opening: OpeningProgress) -> None:
        rows = self._catalog.logs()
        present = self._present()
        recoveries: list[Recovered] = []
        jumped: dict[tuple[str, int], CatalogRow] = {}
        for number, (name, partition) in enumerate(sorted(present | set(rows)), 1):
            row = rows.get((name, partition)) or CatalogRow(self.config.log, 0, 0)
            if (name, partition) not in present:
                raise CorruptLog(self._folder(name, partition), folder_missing(row.next_offset))
            opening.begin(number, len(present))
            at_once = len(recoveries) < self.config.sealed_at_open
            log, recovered = self._open_log(name, partition, row, opening, at_once=at_once)
            self._logs[name, partition] = log
            if recovered.notes:
                recoveries.append(recovered)
                _LOGGER.warning("recovered %s", recovered)
            if (name, partition) not in rows:
                self._catalog.put_log(name, partition, row.config, log.end_offset, log.epoch)
            elif log.epoch > row.epoch and not at_once:
                jumped[name, partition] = CatalogRow(row.config, log.end_offset, log.epoch)
        # What is sealed later tells of it later; views have to know it as soon as somebody can commit there.
        if jumped:
            self._remember(jumped)
        self.recoveries = tuple(recoveries)

    def _open_log(
        self, name: str, partition: int, row: CatalogRow, opening: Progress, *, at_once: bool = True
    ) -> tuple[Log, Recovered]:
        folder = self._folder(name, partition)
        if self.config.recovery is Recovery.REPAIR:
            self._finish_deletions(folder)
        present = self.files.names(folder)
        bases, _ = listed_bases(present)
        known = identity_from_indexes(self.files, folder, bases, name, partition)
        topics_path = folder / names.TOPICS_NAME
        lost_topics = names.TOPICS_NAME not in present
        if lost_topics:
            # Either the process died while it made the log, or the file is lost: ids then have no names any
            # more.
            if self.config.recovery is Recovery.STRICT and (bases or row.next_offset):
                raise CorruptLog(topics_path, "the topic dictionary is missing and recovery is 'strict'")
            identity = known or LogIdentity(secrets.randbits(64), name, partition, self.now_us())
            create_topics_file(self.files, topics_path, identity)
            self.files.sync_directory(folder)
        topics = TopicDictionary(
            self.files,
            topics_path,
            writable=True,
            limit=row.config.topic_count,
            limit_bytes=row.config.topic_bytes,
            known=known,
        )
        try:
            recovery = LogRecovery(
                self.files, folder, topics, self.config.recovery, self.boot_id, self.now_us
            )
            recovered = recovery.run(
                least_next_offset=row.next_offset,
                least_epoch=row.epoch,
                remember=functools.partial(self._remember_jump, name, partition, row.config),
                progress=functools.partial(opening, folder.name),
                at_once=at_once,
            )
            history = History(
                [self._segment(folder, topics, finding) for finding in recovered.findings],
                known_missing(self.files.names(folder)),
            )
            return self._made(folder, topics, row.config, history, recovered), recovered
        except BaseException:
            topics.close()
            raise

    def _known_times(self) -> dict[str, bytes]:
        """The documents of retention; those that are damaged are reported and left out."""
        broken: list[str] = []
        known = self._catalog.items(SPACE, broken)
        for what in broken:
            _LOGGER.warning("%s: %s; how old records are counts from now", self.path, what)
        return known

    def _last_clock_state(self, document: bytes | None) -> ClockState | None:
        try:
            return None if document is None else ClockState.decode(document)
        except (ValueError, TypeError) as error:
            _LOGGER.warning("%s: how much time has passed is not known: %s", self.path, error)
            return None

    def _begin_retention(self, known: Mapping[str, bytes]) -> None:
        """Take over what is known of time, and say what is not."""
        for log in self._logs.values():
            log.retention.begin(known.get(log.folder.name))
        unexplained_us = self.steady_clock.unexplained_us
        if abs(unexplained_us) > UNEXPLAINED_US:
            _LOGGER.warning(
                "%s: since its last use, the clock has moved by %+.1f hours more than has provably passed: "
                "the machine was off, or the clock was or is wrong; retention does not count them",
                self.path,
                unexplained_us / UNEXPLAINED_US,
            )
        # What an older version has noted there goes by the wall clock, and what was deleted is gone.
        folders = {log.folder.name for log in self._logs.values()}
        outdated: dict[str, bytes | None] = {key: None for key in known if key not in folders}
        try:
            if outdated:
                self._catalog.put_many(SPACE, outdated)
        except OSError as error:
            _LOGGER.warning("%s: %s", self.path, error)
        self.note_time(at_once=True)

    def _finish_deletions(self, folder: Path) -> None:
        try:
            finish_deletions(self.files, folder)
        except OSError as error:
            _LOGGER.warning("%s: deleted segments still take space: %s", folder, error)

    def _remove_deleted_logs(self, left_over: Sequence[Path] = ()) -> None:
        """Free the names of the deleted logs, and remove their files in the background. Raises OSError."""
        for folder in itertools.chain(left_over, self._deleted_logs.finish()):
            self.deleted_files.add_folder(folder)
            self.maintenance.expect(self.deleted_files.unlink_due)

    def _try_to_remove_deleted_logs(self, left_over: Sequence[Path] = ()) -> None:
        try:
            self._remove_deleted_logs(left_over)
        except OSError as error:
            _LOGGER.warning("%s: a deleted log still takes space: %s", self.path, error)

    def _made(
        self, folder: Path, topics: TopicDictionary, config: LogConfig, history: History, recovered: Recovered
    ) -> Log:
        start = history.segments[0].base_offset if history.segments else recovered.next_offset
        return Log(
            self,
            folder,
            topics,
            config,
            history,
            start_offset=start,
            next_offset=recovered.next_offset,
            epoch=recovered.epoch,
            last_timestamp_us=recovered.last_timestamp_us,
            leftovers=recovered.leftovers,
        )

    def _segment(self, folder: Path, topics: TopicDictionary, finding: Finding) -> Segment:
        log_id = topics.identity.log_id
        return Segment(
            self.files,
            folder,
            finding.base_offset,
            log_id,
            self.open_segments,
            count=finding.count,
            trailer=finding.trailer_for_readers(log_id),
            epoch=finding.header.known_epoch if finding.header else None,
        )

    def _create_log(self, name: str, partition: int, config: LogConfig) -> Log:
        folder = names.log_folder(name, partition)
        if folder in self._deleted_logs:  # its folder could not be renamed so far
            self._remove_deleted_logs()
        if folder not in self.files.names(self.path):
            self.files.make_directory(self.path / folder)
        elif not is_of_a_log(self.files.names(self.path / folder)):  # else an earlier try got so far
            text = "a folder with files of others is in the way of the log"
            raise FileExistsError(errno.EEXIST, text, str(self.path / folder))
        self.files.sync_directory(self.path)
        opening = OpeningProgress(self.path / folder, None)
        log, _ = self._open_log(name, partition, CatalogRow(config, 0, 0), opening)
        log.retention.begin(None)
        try:
            self._catalog.put_log(name, partition, config, log.end_offset, log.epoch)
        except BaseException:
            log.release()
            raise
        return log

    def _remember_jump(
        self, name: str, partition: int, config: LogConfig, next_offset: int, epoch: int
    ) -> bool:
        """What recovery calls: while the log is opened, or later, when its settings may be others."""
        log = self._logs.get((name, partition))
        row = CatalogRow(log.config if log else config, next_offset, epoch)
        return self._remember({(name, partition): row})

    def _remember(self, rows: Mapping[tuple[str, int], CatalogRow]) -> bool:
        try:
            self._catalog.put_logs(rows)
        except (OSError, CorruptLog) as error:
            _LOGGER.warning("%s: the catalogue cannot be written: %s", self.path, error)
            return False
        return True

    def _shut_down(self) -> None:
        self.maintenance.stop()
        self.committer.stop()
        self.sealer.stop()
        self.deleted_files.unlink_all()
        for log in self._logs.values():
            log.release()
        # What it says counts for a log without segments, and was written when it lost its last.
        self._remember(
            {name: CatalogRow(log.config, log.end_offset, log.epoch) for name, log in self._logs.items()}
        )
        for log in self._logs.values():
            log.retention.mark()
        self.note_time(at_once=True)
        self.open_segments.clear()
        self.tail_budget.close()
        loops.drop_spare()
        self._catalog.close()

    def _present(self) -> set[tuple[str, int]]:
        """The logs that have a folder."""
        listed = listed_logs(self.files, self.path)
        return {log for log in listed if names.log_folder(*log) not in self._deleted_logs}

    def _folders(self) -> list[str]:
        return [names.log_folder(name, partition) for name, partition in self.log_names()]

    def _folder(self, name: str, partition: int) -> Path:
        return self.path / names.log_folder(name, partition)


_open_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()


def _abandon_after_fork() -> None:
    """A forked child has the parent's descriptors: one append there would corrupt what the parent writes."""
    for store in list(_open_stores):
        store.abandon()


os.register_at_fork(after_in_child=_abandon_after_fork)


@atexit.register
def _close_at_exit() -> None:
    """Close what the program has left open, while the threads of the stores still run. Later, in a `__del__` for
    example, a call that needs one of them would wait endlessly; now it raises StoreClosed."""
    for store in list(_open_stores):
        warnings.warn(f"unclosed store {store.path}", ResourceWarning, source=store, stacklevel=1)
        try:
            store.close()
        except Exception:
            _LOGGER.exception("%s: closing at the exit of the interpreter", store.path)


def open_store(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    config: StoreConfig | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Store:
    """Open the store in a directory, which this process then owns; `settings` are fields of StoreConfig.
    `files` and `clock` are for tests. `progress` is called, with a log's folder name, the segments looked at and
    how many there are, when it takes longer than a second; the log then has a line every few seconds.

    Recovers what was not closed, by the rules of docs/durability.md; `store.recoveries` says what was found.

    Raises StoreLocked when another process owns it, NotAStore, UnsupportedFormat, CorruptLog
    (recovery="strict", or a damaged catalogue), OSError; TypeError or ValueError for what is no setting."""
    chosen = with_settings(config or StoreConfig(), settings)
    return Store(
        names.store_directory(path), chosen, create=create, files=files, clock=clock, progress=progress
    )

"""A store: a data directory that this process owns, and its logs.

What belongs here: opening in the right order (lock, catalogue, recovery of each log), the parts that logs
share (committer, sealer, tail budget, open segments), and closing."""

import atexit
import errno
import functools
import itertools
import logging
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from timestone.commit.background import Sealer
from timestone.commit.committer import Committer
from timestone.compressed.frame_cache import CACHED_BYTES, DecodedFrames
from timestone.config import LogConfig, StoreConfig, with_settings
from timestone.disk.catalog import Catalog, CatalogRow, folder_missing
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.disk.lock import StoreLock
from timestone.errors import CorruptLog, NotAStore, StoreClosed, UnknownLog
from timestone.format import names
from timestone.format.damage_report import Damage, known_damage
from timestone.format.deleted_files import DeletedFiles
from timestone.format.folder_listing import is_of_a_log
from timestone.format.store_listing import listed_logs
from timestone.kernel import loops
from timestone.log import Log
from timestone.metrics.log_counts import Durations
from timestone.reading.named_readers import Commitment, Commitments, Metadata, ReaderId, check_commit
from timestone.reading.retention_hold import Pin
from timestone.reading.segment_cache import SegmentCache
from timestone.reading.tail_cache import TailBudget
from timestone.recovery.log_opener import LogOpener
from timestone.recovery.opening_progress import OpeningProgress, Progress
from timestone.recovery.recover import Recovered
from timestone.replication.names_used import note_ceiling
from timestone.spool.consumer import SpoolConsumer
from timestone.upkeep.log_deletion import DeletedLogs
from timestone.upkeep.maintenance import Maintenance
from timestone.upkeep.retention import NotedTime
from timestone.upkeep.scrubbing import Scrubber
from timestone.upkeep.tier import Tier

_LOGGER = logging.getLogger("timestone")
_SHOWN_LOGS = 5


class Store:
    """Open store. Made by `timestone.open`; usable from any thread of the process that opened it, not across a fork."""

    def __init__(
        self,
        path: Path,
        config: StoreConfig,
        *,
        create: bool = True,
        files: Files | None = None,
        clock: Clock | None = None,
        progress: Progress | None = None,
        log_type: type[Log] = Log,
    ) -> None:
        if sys.is_finalizing():
            raise RuntimeError(
                f"{path} cannot be opened: the interpreter is shutting down and starts no threads"
            )
        opening = OpeningProgress(path, progress)
        self.path, self.config = path, config
        self.files = files or Files()
        clock = clock or Clock()
        self.now_us: Callable[[], int] = clock.now_us
        self.boot_id = clock.boot_id()
        self.tail_budget = TailBudget(config.tail_bytes)
        frames = DecodedFrames(min(CACHED_BYTES, config.tail_bytes // 4), self.tail_budget.lend)
        self.open_segments = SegmentCache(config.open_segment_count, frames)
        self.recoveries: tuple[Recovered, ...] = ()
        self.tier: Tier | None = None
        """Second place of sealed segments; attached by a higher layer once the store is open."""
        self._logs: dict[tuple[str, int], Log] = {}
        self._logs_lock = threading.Lock()
        self._remember_lock = threading.Lock()
        self._closed, self._log_type = False, log_type
        self._deleted_durations = Durations()
        self._prepare_directory(create)
        self._lock = StoreLock(self.files, path / names.LOCK_NAME, self.boot_id)
        try:
            self._open(clock, opening)
        except BaseException:
            self._lock.release()
            raise
        _open_stores.add(self)
        for log in self._logs.values():
            log.expect_upkeep()
            if log.has_deferred_seals:
                log.segment_rolled()
        self._scrubber.expect()
        if not log_type.is_replicated:
            self.inbox.take_all()  # records that other processes spooled while no process owned the store

    def _open(self, clock: Clock, opening: OpeningProgress) -> None:
        """Open the catalogue and all logs; the lock is held. Releases everything but the lock on an error."""
        path, config = self.path, self.config
        self.documents = self._catalog = Catalog(path / names.CATALOG_NAME, upgrade=True)
        self.committer = Committer(config.sync_interval_ms)
        self.sealer = Sealer()
        self.maintenance = Maintenance()
        self.deleted_files = DeletedFiles(self.files, config.delete_delay_ms)
        self._noted = NotedTime(path, self._catalog, clock)
        self.steady_clock = self._noted.clock
        self._opener = LogOpener(
            self.files, path, config.recovery, self.open_segments, self.boot_id, self.now_us
        )
        self._scrubber = Scrubber(self)
        self.inbox = SpoolConsumer(self)
        try:
            self._deleted_logs = DeletedLogs(self.files, path, self._catalog)
            self._try_to_remove_deleted_logs(self._deleted_logs.left_over())
            self._open_logs(opening)
            self._noted.begin([log.retention for log in self._logs.values()])
        except BaseException:
            self._shut_down()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return f"<Store {self.path}: closed>"
        folders = [names.log_folder(*log) for log in sorted(self._logs)]
        shown = [*folders[:_SHOWN_LOGS], *["…"] * (len(folders) > _SHOWN_LOGS)]
        return f"<Store {self.path}: {len(folders)} log{'s' * (len(folders) != 1)} ({', '.join(shown)})>"

    def log(
        self, name: str, partition: int = 0, *, create: bool = True, config: LogConfig | None = None
    ) -> Log:
        """Return a log of this store; created if it does not exist and `create` is true. `config` applies at creation
        and defaults to the store's. Raises InvalidName, UnknownLog if it does not exist and must not be created,
        StoreClosed, OSError."""
        self._check_open()
        # Without the lock, which is held for as long as the disk takes to create or delete another log.
        try:
            log = self._logs.get((name, partition))
        except TypeError:  # it has no hash
            names.validate_log(name, partition)
            raise
        if log is not None:
            return log
        with self._logs_lock:
            self._check_open()
            log = self._logs.get((name, partition))
            if log is None:
                names.validate_log(name, partition)
                if config is not None and not isinstance(config, LogConfig):
                    raise TypeError(f"invalid config: expected a LogConfig, got {config!r}")
                if not create:
                    raise UnknownLog(names.log_folder(name, partition), tuple(self._folders()))
                log = self._logs[name, partition] = self._create_log(
                    name, partition, config or self.config.log
                )
            return log

    def delete_log(self, name: str, partition: int = 0) -> None:
        """Delete a log: its records, its settings, and the commits of its named readers.

        Durable when it returns, and not reversible; the disk space is freed after `delete_delay_ms`. Users of the log
        in this process get StoreClosed. A log created later under the same name is a new one: it begins at offset 0,
        with an id of its own by which fronts and Spark queries distinguish the two. Raises UnknownLog, StoreClosed,
        OSError: the log is unchanged then."""
        with self._logs_lock:
            self._check_open()
            if type(name) is not str or type(partition) is not int:
                names.validate_log(name, partition)
            log = self._logs.get((name, partition))
            if log is None:
                raise UnknownLog(names.log_folder(name, partition), tuple(self._folders()))
            log.delete(functools.partial(self._deleted_logs.note, name, partition, self.now_us()))
            del self._logs[name, partition]
            self._deleted_durations.add(log.counts)
            self.deleted_files.forget(log.folder)  # what waits in it is removed with all of it
            self._try_to_remove_deleted_logs()

    def free_names(self) -> None:
        """Rename the folders of deleted logs that still have their names, so that others can be made. Raises OSError,
        StoreClosed."""
        with self._logs_lock:
            self._check_open()
            self._remove_deleted_logs()

    def log_names(self, *, server: bool = False) -> list[tuple[str, int]]:
        """Return name and partition of each log, sorted; with `server`, also of those that a server writes about itself
        (`timestone.…`). Raises StoreClosed."""
        self._check_open()
        return sorted(log for log in self._logs if server or not names.is_server_log(log[0]))

    def durations(self) -> Durations:
        """Return how long writes and flushes took since the store was opened, but for the server's own logs."""
        total = Durations()
        with self._logs_lock:
            total.add(self._deleted_durations)
            for (name, _), log in self._logs.items():
                if not names.is_server_log(name):
                    total.add(log.counts)
        return total

    def readers(self) -> dict[ReaderId, Commitment]:
        """Return the commits of all named readers, of any process so far. Raises OSError, CorruptLog."""
        return Commitments(self.documents).all()

    def committed(self, reader: ReaderId) -> Commitment | None:
        """Return the commit of a named reader, or None. Raises OSError, CorruptLog."""
        return Commitments(self.documents).get(reader)

    def commit_readers(
        self, offsets: Mapping[ReaderId, int], *, pin: Pin | None = None, metadata: Metadata | None = None
    ) -> None:
        """Store where named readers continue, all or none of them, durable when it returns; see `Reader.commit`.

        The readers need not be open. With `pin`, retention of their logs keeps what they have not committed; without,
        an earlier pin of theirs is released. `metadata`: a text of up to 4 KiB for some of them, read back in their
        Commitment. Raises UnknownLog, OffsetOutOfRange, ValueError and TypeError for metadata, OSError, StoreClosed."""
        logs = check_commit(offsets, lambda one: self.log(one.log, one.partition, create=False))
        Commitments(self.documents).put(offsets, self.now_us(), pin, metadata)
        for log in logs:
            log.retention.expect()

    def forget_readers(self, readers: Iterable[ReaderId]) -> None:
        """Remove the commits of named readers, pins included; the next reader of that name begins at its `start`.
        Raises OSError."""
        for reader in Commitments(self.documents).forget(readers):
            log = self._logs.get((reader.log, reader.partition))
            if log is not None:
                log.retention.expect()

    def damage(self) -> list[Damage]:
        """Return the damage that the scrubber has found and that is not repaired. Raises OSError, CorruptLog."""
        return known_damage(self.documents)

    def scrub(self) -> list[Damage]:
        """Verify every sealed segment from the disk now, at full speed, and return all damage. The scrubber does the
        same slowly in the background. Raises OSError, CorruptLog, StoreClosed."""
        self._check_open()
        return Scrubber(self).scrub()

    def accept_postings(self) -> None:
        """Append records spooled by other processes (`timestone.spool.producer`) as they arrive, in a separate thread.
        Without this call a spooled record waits for the next `timestone.open`. Raises OSError, StoreClosed."""
        self._check_open()
        self.inbox.listen()

    def close(self) -> None:
        """Write and sync what was submitted, seal or close all segments, release the lock. May be called twice. Raises
        LogFailed if the last sync of a log failed, OSError if segments left by an earlier process cannot be made
        durable; everything is closed in either case."""
        if not self._closed:
            self.inbox.close()  # first, so that it can end what it is appending
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
        """Stop creation and deletion of logs; return false if another thread has begun to close."""
        with self._logs_lock:
            begun, self._closed = self._closed, True
            return not begun

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"store {self.path} is closed")

    def remember(self, log: Log, config: LogConfig) -> None:
        """Write a log's settings and next offset into the catalogue. Raises OSError."""
        with self._remember_lock:
            self._catalog.put_log(log.name, log.partition, config, log.next_offset, log.epoch)

    def note_time(self, *, at_once: bool = False) -> None:
        """Make the running time of the store and the age of its records durable, unless that was done recently."""
        self._noted.note([log.retention for log in list(self._logs.values())], at_once=at_once)

    def note(self, text: str) -> None:
        """Log a message for the owner of the store."""
        _LOGGER.error("%s", text)

    def abandon(self) -> None:
        """Stop using the store without writing anything; for the copy of the store in a forked child."""
        self._closed = True
        self._logs_lock = threading.Lock()  # a thread of the parent may have held it
        self.inbox.abandon()
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
        self.files.make_directories(self.path)  # also an existing directory: its name may not be durable

    def _open_logs(self, opening: OpeningProgress) -> None:
        rows = self._catalog.logs()
        listed = listed_logs(self.files, self.path)
        present = {log for log in listed if names.log_folder(*log) not in self._deleted_logs}
        recoveries: list[Recovered] = []
        jumped: dict[tuple[str, int], CatalogRow] = {}
        for number, (name, partition) in enumerate(sorted(present | set(rows)), 1):
            row = rows.get((name, partition)) or CatalogRow(self.config.log, 0, 0)
            if (name, partition) not in present:
                folder = self.path / names.log_folder(name, partition)
                raise CorruptLog(folder, folder_missing(row.next_offset))
            opening.begin(number, len(present))
            at_once = len(recoveries) < self.config.sealed_at_open
            log, recovered = self._open_log(name, partition, row, opening, at_once=at_once)
            self._logs[name, partition] = log
            if recovered.notes:
                recoveries.append(recovered)
                _LOGGER.warning("recovered %s", recovered)
            if (name, partition) not in rows:
                self._catalog.put_log(name, partition, row.config, log.next_offset, log.epoch)
            elif log.epoch > row.epoch and not at_once:
                jumped[name, partition] = CatalogRow(row.config, log.next_offset, log.epoch)
        if jumped:  # views have to see the log as soon as a reader can commit there, before its seal
            self._remember(jumped)
        self.recoveries = tuple(recoveries)

    def _open_log(
        self, name: str, partition: int, row: CatalogRow, opening: Progress, *, at_once: bool = True
    ) -> tuple[Log, Recovered]:
        log_type = Log if names.is_server_log(name) else self._log_type
        opened = self._opener.open(
            name,
            partition,
            row,
            remember=functools.partial(note_ceiling, self._catalog, names.log_folder(name, partition))
            if log_type.is_replicated
            else functools.partial(self._remember_jump, name, partition, row.config),
            progress=opening,
            at_once=at_once,
            is_replicated=log_type.is_replicated,
        )
        try:
            return log_type(self, opened, row.config), opened.recovered
        except BaseException:
            opened.topics.close()
            raise

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
            self._catalog.put_log(name, partition, config, log.next_offset, log.epoch)
        except BaseException:
            log.release()
            raise
        return log

    def _remember_jump(
        self, name: str, partition: int, config: LogConfig, next_offset: int, epoch: int
    ) -> bool:
        """Store what recovery found in the catalogue, and return whether that worked. Called while the log is opened,
        or later, when its settings may have changed."""
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
        # The catalogue counts for a log without segments, and was written when it lost its last one.
        self._remember(
            {name: CatalogRow(log.config, log.next_offset, log.epoch) for name, log in self._logs.items()}
        )
        for log in self._logs.values():
            log.retention.mark()
        self.note_time(at_once=True)
        self.open_segments.clear()
        self.tail_budget.close()
        loops.drop_spare()
        self._catalog.close()

    def _folders(self) -> list[str]:
        return [names.log_folder(name, partition) for name, partition in self.log_names()]


_open_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()


def _abandon_after_fork() -> None:
    """Abandon the store in a forked child, which has the parent's descriptors: one append there would corrupt what the
    parent writes."""
    for store in list(_open_stores):
        store.abandon()


os.register_at_fork(after_in_child=_abandon_after_fork)


@atexit.register
def _close_at_exit() -> None:
    """Close stores that the program has left open, while their threads still run. Later, in a `__del__` for example, a
    call that needs one of them would block endlessly; now it raises StoreClosed."""
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
    """Open the store in a directory, which this process then owns.

    `settings` are fields of StoreConfig. `files` and `clock` are for tests. `progress` is called with a log's folder
    name, the segments examined and their number, if opening takes longer than a second; a line is also logged every few
    seconds. Recovers what was not closed, by the rules of docs/durability.md; `store.recoveries` reports what was
    found.

    Raises StoreLocked if another process owns the store, NotAStore, UnsupportedFormat, CorruptLog (recovery="strict",
    or a damaged catalogue), OSError; TypeError or ValueError for an invalid setting."""
    chosen = with_settings(config or StoreConfig(), settings)
    return Store(
        names.store_directory(path), chosen, create=create, files=files, clock=clock, progress=progress
    )

"""A small recorded run of a store, with the promises at each moment.

What belongs here: executing the steps, and noting between the operations what a crash at that moment must not lose.
`crash_oracle.py` compares the promises with the content of an image.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.faulty_files import FaultyFiles
from tests.support.killed_store import kill_store
from tests.support.recording_files import (
    Created,
    DirectorySynced,
    Operation,
    RecordingFiles,
    Renamed,
    SyncEnded,
    Truncated,
)
from tests.support.step_clock import StepClock
from timestone.commit.submission import Submission
from timestone.config import Ack, LogConfig, StoreConfig
from timestone.errors import LogFailed, StorageFull
from timestone.kernel.entries import NO_TOPIC
from timestone.log import Log
from timestone.reader import Reader
from timestone.reading.named_readers import ReaderId
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

LOG_NAME = "telemetry"
READER = ReaderId(LOG_NAME, 0, "billing")
NEVER_MS = 10**9
"""For intervals that must not end while operations are counted."""


@dataclass(frozen=True, slots=True)
class Content:
    """The record that was appended at an offset."""

    payload: bytes
    topic: str | None


@dataclass(frozen=True, slots=True)
class Attempted:
    """This number of appends has begun; their records may be found from here on."""

    count: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The append with this number failed, and its caller got an error."""

    number: int


@dataclass(frozen=True, slots=True)
class Promised:
    """All records below `end` have reached a level."""

    level: Ack
    end: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A reader could see all records below `end`."""

    end: int


@dataclass(frozen=True, slots=True)
class Deleting:
    """Retention is about to delete, nothing from `end` on."""

    end: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The start `start` of the log was reported."""

    start: int


@dataclass(frozen=True, slots=True)
class Committing:
    """A named reader is about to commit an offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit has returned."""

    offset: int


@dataclass(frozen=True, slots=True)
class Configuring:
    """The setting `topic_count` of the log is about to change."""

    topic_count: int


@dataclass(frozen=True, slots=True)
class Configured:
    """The change has returned."""

    topic_count: int


class RunEnded(Exception):
    """The store could not be opened again: the steps end here."""


Fact = (
    Attempted
    | Refused
    | Promised
    | Shown
    | Deleting
    | Deleted
    | Committing
    | Committed
    | Configuring
    | Configured
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The content of an append and its intended offset."""

    first_offset: int
    contents: tuple[Content, ...]


def crash_config(*, sealed_at_open: int = 100, **settings: Any) -> StoreConfig:
    """Return a configuration whose operations come only from calls: no timer, no check of free space."""
    log = LogConfig(segment_age_ms=NEVER_MS, **settings)
    return StoreConfig(sync_interval_ms=NEVER_MS, min_free_bytes=0, sealed_at_open=sealed_at_open, log=log)


@dataclass
class Workload:
    """Steps on one log of one store in `root`, which is created here."""

    root: Path
    config: StoreConfig = field(default_factory=crash_config)
    sealing: bool = True
    """False: the background never completes the seal of a segment."""

    note: Callable[[Fact], None] | None = None
    """Called for each promise; by default the recorder puts it between the operations."""

    arm: Callable[[FaultyFiles], None] = lambda files: None
    """Arranges the faults of the run."""

    attempts: list[Attempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)
        self.recorder = RecordingFiles(self.root)
        self.files = self._files_of_a_life()
        self.clock = StepClock()
        self._serial = 0
        self._note = self.note or self.recorder.note
        self.log_is_open = False

    def _files_of_a_life(self) -> FaultyFiles:
        files = FaultyFiles(self.recorder)
        if not self.sealing:
            files.fail("truncate", path=".index", forever=True)
        self.arm(files)
        return files

    @property
    def log(self) -> Log:
        return self.store.log(LOG_NAME)

    def start(self) -> None:
        """Open the store. Raises RunEnded."""
        try:
            self.store = Store(self.root, self.config, files=self.files, clock=self.clock)
        except (OSError, LogFailed) as error:
            raise RunEnded from error
        try:
            reader = self.store.log(LOG_NAME).reader("latest")
        except OSError as error:
            self.store.close()
            raise RunEnded from error
        self.store.maintenance.stop()  # it deletes on request, so that operations can be counted
        self.log_is_open = True
        reader.on_wake = self._show
        assert reader.park()

    def _show(self, reader: Reader, first_offset: int) -> None:
        end = reader.log.end_offset
        self._note(Shown(end))
        reader.seek(end)
        if self.log_is_open:
            assert reader.park()

    @contextmanager
    def _attempt(self, payloads: Sequence[bytes], topic: str | None) -> Iterator[None]:
        """An append whose failure is part of the run: only errors that the engine documents are accepted."""
        number = len(self.attempts)
        contents = tuple(Content(payload, topic) for payload in payloads)
        self.attempts.append(Attempt(self.log.end_offset, contents))
        self._note(Attempted(number + 1))
        try:
            yield
        except LogFailed:
            return  # whether it is there is unknown
        except (OSError, StorageFull):
            self._note(Refused(number))
        finally:
            self._note(Promised(Ack.SYNCED, self.log.synced_offset))

    def append(self, ack: Ack, size: int = 20, topic: str | None = None) -> None:
        """Append one record in a thread that waits for the disk."""
        payload = self._payload(size)
        with self._attempt([payload], topic):
            offset = self.log.append(payload, topic=topic, ack=ack)
            self._note(Promised(ack, offset + 1))

    def append_many(self, ack: Ack, count: int, size: int = 100, topic: str | None = None) -> None:
        """Append a batch, as a front does: written at once if that need not wait, else submitted."""
        payloads = [self._payload(size + 37 * number % 200) for number in range(count)]
        log = self.log

        def done(submission: Submission) -> None:
            if submission.error is None:
                self._note(Promised(ack, submission.offsets.stop))

        topic_id = NO_TOPIC if topic is None else log.topic_id(topic)
        write_batch = WriteBatch(payloads, topic_id)
        with self._attempt(payloads, topic):
            written = log.append_now(write_batch) if ack is Ack.WRITTEN else None
            if written is None:
                log.submit(write_batch, ack=ack, done=done).wait(10)
            else:
                self._note(Promised(ack, written.stop))

    def sync(self) -> None:
        try:
            self._note(Promised(Ack.SYNCED, self.log.sync()))
        except LogFailed:
            return

    def commit(self, offset: int) -> None:
        """Commit a named reader."""
        self._note(Committing(offset))
        self.store.commit_readers({READER: offset})
        self._note(Committed(offset))

    def configure(self, topic_count: int) -> None:
        self._note(Configuring(topic_count))
        self.log.configure(topic_count=topic_count)
        self._note(Configured(topic_count))

    def roll(self) -> None:
        self.log.roll()

    def delete(self) -> None:
        """Delete as retention does that keeps only the newest segment."""
        self._note(Deleting(self.log.end_offset))
        self.log.configure(retention_bytes=1)
        self.log.apply_retention()
        self._note(Deleted(self.log.start_offset))
        self.store.deleted_files.unlink_all()
        self.log.configure(retention_bytes=0)

    def compress(self) -> None:
        """Compress sealed segments, as the background does."""
        self.log.configure(compression="zstd")
        self.log.apply_compression()
        self.store.deleted_files.unlink_all()
        self.log.configure(compression="none")

    def wait_for_seals(self) -> None:
        """Wait until the background has sealed all segments but the newest, so that runs differ little."""
        if self.sealing:
            self.recorder.wait_until(_all_but_one_sealed)

    def reopen(self) -> None:
        """Stop cleanly and start again."""
        self.close()
        self.start()

    def die(self) -> None:
        """Die by kill -9; another process continues. Each meets the faults again."""
        self.log_is_open = False
        kill_store(self.store, self.files)
        self.files = self._files_of_a_life()
        self.start()

    def run(self, steps: "Callable[[Workload], None]") -> None:
        """Run all steps, and a clean stop, unless the store cannot be opened before that."""
        try:
            self.start()
            steps(self)
            self.close()
        except RunEnded:
            return

    def close(self) -> None:
        if not self.log_is_open:
            return
        end, whole = self.log.end_offset, self.log.failure is None
        self.log_is_open = False
        try:
            self.store.close()
        except (LogFailed, OSError):
            return
        if whole:
            self._note(Promised(Ack.SYNCED, end))

    def _payload(self, size: int) -> bytes:
        """Return bytes that no other record has; every fifth record is zeros or empty, which must survive too."""
        self._serial += 1
        if self._serial % 5 == 3:
            return bytes(size)
        if self._serial % 5 == 4:
            return b""
        return (b"%06d-" % self._serial * (size // 7 + 1))[:size]


def _all_but_one_sealed(operations: Sequence[Operation]) -> bool:
    """Return the segments that the sealer has truncated and flushed, and those that recovery has newly made."""
    segments, renamed, made_anew = 0, 0, 0
    indexes, cut, sealed = set[int](), set[int](), set[int]()
    for operation in operations:
        match operation:
            case Created(path) if path.suffix == ".segment":
                segments += 1
            case Created(path, file) if path.suffix == ".index":
                indexes.add(file)
            case Truncated(file) if file in indexes:
                cut.add(file)
            case SyncEnded(file) if file in cut:
                sealed.add(file)
            case Renamed(_, target) if target.suffix == ".index":
                renamed += 1
            case DirectorySynced():
                made_anew = renamed
            case _:
                pass
    return len(sealed) + made_anew >= segments - 1

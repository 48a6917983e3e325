"""The owner of a store, for runs in which a system call fails: its operations, and its reports.

It executes everything that changes the disk: open, append, roll, seal, commit a reader, change settings, compress,
compact, delete by retention, close, and open again. It continues after every error that the engine documents; any
other error ends it with a traceback. It reports these facts:

    tried N COUNT     records N to N + COUNT - 1 are being appended
    acked N OFFSET    that record was acknowledged at that offset
    unknown N COUNT   these may or may not be there (LogFailed)
    refused N COUNT   these are not there
    committing X      the named reader is about to commit offset X; `committed X` when it has
    deleting X        retention may delete records below offset X
    error WHAT TEXT   a step failed with this message
    alive             after the fault the store accepted an append again
"""

import os
import signal
import time
from pathlib import Path

import timestone
from tests.support.system_calls import Tell, disarm
from timestone import Ack, LogConfig, LogFailed, StoreConfig, TimestoneError

LOG_NAME = "telemetry"
READER = "billing"
NEVER_MS = 10**9
CONFIG = StoreConfig(
    min_free_bytes=0, sync_interval_ms=NEVER_MS, delete_delay_ms=0, tail_bytes=0, scrub_bytes_per_s=0,
    log=LogConfig(segment_entries=4),
)  # fmt: skip
STATES_NAME = "states"
STATES_CONFIG = LogConfig(segment_entries=4, compact=True, compression="zstd")  # type: ignore[arg-type]
STATE = 10_000
"""The records of that log have numbers from here on."""
SEAL_WAIT_S = 0.2
EVER = 10**9
"""Above every offset of these runs."""


def payload_of(number: int) -> bytes:
    """Return a payload: every fourth is empty, every fifth larger than a sector; that of a state identifies it."""
    if number >= STATE:
        return b"%06d-" % number * 400
    return b"" if number % 4 == 3 else b"%06d-" % number * (1 + number % 5 * 40)


def topic_of(number: int) -> str:
    """Return the topic of a record: each record has a different one, which identifies it, and the dictionary grows all
    the time. Of states there are three."""
    if number >= STATE:
        return f"states/{number % 3}"
    return f"devices/{number}"


class Owner:
    """A store that is used until an operation fails, and further."""

    def __init__(self, root: Path, tell: Tell, first_number: int) -> None:
        self.root = root
        self.tell = tell
        self.number = first_number
        self.state = STATE + first_number

    def open(self) -> bool:
        """Open the store; False when it cannot be opened, not even at the second attempt."""
        for _ in range(2):
            try:
                self.store = timestone.open(self.root, config=CONFIG)
            except (OSError, TimestoneError) as error:
                self.failed("open", error)
                continue
            try:
                self.log = self.store.log(LOG_NAME)
            except (OSError, TimestoneError) as error:
                self.failed("log", error)
                self.close()
                continue
            return True
        return False

    def failed(self, what: str, error: Exception) -> None:
        name = getattr(error, "filename", None) or ""
        self.tell("error", what, f"{type(error).__name__}: {error} {name}")

    def append(self, count: int, ack: Ack) -> bool:
        numbers = range(self.number, self.number + count)
        self.number += count
        return self._append(self.log, numbers, ack)

    def append_states(self, count: int, ack: Ack) -> None:
        numbers = range(self.state, self.state + count)
        self.state += count
        if (log := self.states()) is not None:
            self._append(log, numbers, ack)

    def states(self) -> timestone.Log | None:
        """Return the compacted log; None when it cannot be created."""
        try:
            return self.store.log(STATES_NAME, config=STATES_CONFIG)
        except (OSError, TimestoneError) as error:
            self.failed("states", error)
            return None

    def compact(self) -> None:
        """Compact twice: the second pass finds less to do, or the work that the first could not do. Then compress the
        remaining segments."""
        if (log := self.states()) is None:
            return
        for work in (log.apply_compaction, log.apply_compaction, log.apply_compression):
            try:
                work()
                self.store.deleted_files.unlink_due()
            except (OSError, TimestoneError) as error:
                self.failed("compact", error)

    def _append(self, log: timestone.Log, numbers: range, ack: Ack) -> bool:
        count = len(numbers)
        was_failed = log.failure is not None
        self.tell("tried", numbers.start, count)
        try:
            offsets = log.append_many(
                [payload_of(number) for number in numbers],
                topics=[topic_of(number) for number in numbers],
                ack=ack,
            )
        except LogFailed as error:
            self.tell("refused" if was_failed else "unknown", numbers.start, count)
            self.failed("append", error)
            return False
        except (OSError, TimestoneError) as error:
            self.tell("refused", numbers.start, count)
            self.failed("append", error)
            return False
        for number, offset in zip(numbers, offsets, strict=True):
            self.tell("acked", number, offset)
        return True

    def commit(self) -> None:
        try:
            reader = self.log.reader("earliest", name=READER)
        except (OSError, TimestoneError) as error:
            return self.failed("reader", error)
        try:
            reader.read()
            self.tell("committing", reader.offset)
            reader.commit()
            self.tell("committed", reader.offset)
        except (OSError, TimestoneError) as error:
            self.failed("commit", error)
        finally:
            reader.close()

    def compress(self) -> None:
        self.await_seals()
        try:
            self.log.configure(compression="zstd")
            self.log.apply_compression()
            self.store.deleted_files.unlink_due()
            self.log.configure(compression="none")
        except (OSError, TimestoneError) as error:
            self.failed("compress", error)

    def delete(self) -> None:
        self.await_seals()
        self.tell("deleting", self.log.end_offset)
        try:
            self.log.configure(retention_bytes=1)
            self.log.apply_retention()
            self.store.deleted_files.unlink_due()
        except (OSError, TimestoneError) as error:
            self.failed("delete", error)
        try:
            self.log.configure(retention_bytes=0)
        except (OSError, TimestoneError) as error:
            self.failed("configure", error)
            self.tell("deleting", EVER)  # the limit stays, and the background applies it

    def await_seals(self) -> None:
        """Wait for the seals, or until it is clear that there will be none."""
        deadline = time.monotonic() + SEAL_WAIT_S
        while any(segment.trailer is None for segment in self.log.segment_list.segments[:-1]):
            if time.monotonic() > deadline or self.log.failure is not None:
                return
            time.sleep(0.001)

    def close(self) -> None:
        try:
            self.store.close()
        except (OSError, TimestoneError) as error:
            self.failed("close", error)


def live(owner: Owner) -> None:
    """Run a whole life: from an empty directory to a clean stop, and a second one."""
    if not owner.open():
        return
    owner.append(1, Ack.SYNCED)
    owner.append(3, Ack.WRITTEN)
    owner.append(6, Ack.SYNCED)
    owner.commit()
    owner.compress()
    owner.delete()
    owner.append(2, Ack.WRITTEN)
    owner.close()
    recover(owner)


def recover(owner: Owner) -> None:
    """Open the existing store and continue."""
    if not owner.open():
        return
    owner.append(1, Ack.WRITTEN)
    owner.append(5, Ack.SYNCED)
    owner.close()


def leave_unclosed(owner: Owner) -> None:
    """Leave several unsealed segments, and a commit; the caller kills the process."""
    assert owner.open()
    for _ in range(4):
        owner.append(3, Ack.WRITTEN)
    owner.append(2, Ack.SYNCED)
    owner.commit()


def leave_states(owner: Owner) -> None:
    """Leave some segments of a log to be compacted, the last one not sealed; the caller kills the process."""
    assert owner.open()
    owner.store.maintenance.stop()
    for _ in range(4):
        owner.append_states(3, Ack.SYNCED)


def compact(owner: Owner) -> None:
    """Open the existing store, compact it, and continue."""
    if not owner.open():
        return
    owner.store.maintenance.stop()  # or it would compact at another moment, and two runs would differ
    owner.compact()
    owner.append_states(3, Ack.SYNCED)
    owner.close()


STEPS = {step.__name__: step for step in (live, recover, leave_unclosed, leave_states, compact)}


def main(
    root: Path, tell: Tell, steps: str, first_number: int = 0, *, go_on: bool = False, kill: bool = False
) -> None:
    """Run the steps. With `go_on` the cause is gone afterwards, and the store must work at once; with `kill` the
    process ends as by kill -9."""
    owner = Owner(root, tell, first_number)
    STEPS[steps](owner)
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
    if go_on:
        disarm()
        assert owner.open(), "the cause is gone"
        assert owner.append(2, Ack.SYNCED), "the cause is gone"
        owner.close()
        tell("alive")

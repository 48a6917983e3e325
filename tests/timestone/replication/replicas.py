"""Two replicas of one log, and shipping from one to the other."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.recording_files import RecordingFiles
from tests.support.step_clock import StepClock
from tests.support.workload import crash_config
from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.errors import StoreClosed
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch


@contextmanager
def replicated(path: Path) -> Iterator[ReplicatedLog]:
    """Open the log of a store whose logs are replicas."""
    with Store(path, crash_config(), log_type=ReplicatedLog) as store:
        log = store.log("telemetry")
        assert isinstance(log, ReplicatedLog)
        yield log


def leading(store: Store, count: int = 0) -> ReplicatedLog:
    """Return the log of a store as the leader of generation 1, after `count` appends of one record."""
    log = store.log("telemetry")
    assert isinstance(log, ReplicatedLog)
    log.lead(1)
    for number in range(count):
        submitted(log, b"%d" % number)
    return log


def recorded(path: Path, files: RecordingFiles) -> Store:
    """Open a store whose logs are replicas, of small segments, on files that are recorded."""
    return Store(
        path, crash_config(segment_entries=8), files=files, clock=StepClock(), log_type=ReplicatedLog
    )


def commit_alone(log: ReplicatedLog) -> None:
    """Flush and show what is written to a log, in a thread, until it is closed: what a leader does that is alone."""
    written = threading.Event()

    def run() -> None:
        with suppress(StoreClosed):
            while True:
                written.wait(0.05)
                written.clear()
                log.show(log.sync())

    threading.Thread(target=run, daemon=True).start()
    log.on_written = written.set


def submitted(log: ReplicatedLog, *payloads: bytes, topic: str = "t") -> Submission:
    """Submit records to a leader, and flush them."""
    found = log.submit(WriteBatch(payloads, log.topic_id(topic)), ack=Ack.SYNCED)
    log.sync()
    return found


def ship(source: ReplicatedLog, target: ReplicatedLog, generation: int, *, max_bytes: int = 1 << 20) -> None:
    """Append everything that the target lacks, and flush it."""
    while target.written_offset < source.written_offset:
        found = source.read_stored(target.written_offset, source.written_offset, max_bytes=max_bytes)
        first = target.names_count
        names = [source.topic_name(number) or "" for number in range(first, found.names)]
        target.append_replica(
            generation,
            found.first,
            found.entries,
            found.data,
            first,
            names,
            begins_segment=found.begins_segment,
        )
    target.sync()


def payloads(log: ReplicatedLog) -> list[bytes]:
    """Return what readers see."""
    return [bytes(record.payload) for record in log]

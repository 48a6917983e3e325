"""The promises of a store after a crash, checked against one image.

(i)   every record acknowledged as synced is there, byte for byte (after kill -9: also those acknowledged as written);
(ii)  every record that is there was appended, at that offset;
(iii) the records are a prefix: none behind a lost one;
(iv)  opening a second time gives the same result;
(v)   a crash during recovery recovers too (the caller repeats the whole check on images of the recovery);
(vi)  the next offset was never shown to a reader;
(vii) the log begins at or behind every reported start, and not behind what retention may have deleted;
(viii) the commit of a named reader and the settings are the last acknowledged ones, or those in progress.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.recording_files import Noted, Operation
from tests.support.step_clock import BOOT_ID, NEXT_BOOT_ID, START_US, StepClock
from tests.support.workload import (
    LOG_NAME,
    READER,
    Attempt,
    Attempted,
    Committed,
    Committing,
    Configured,
    Configuring,
    Content,
    Deleted,
    Deleting,
    Promised,
    Refused,
    Shown,
    crash_config,
)
from timestone.config import Ack, LogConfig
from timestone.store import Store

DAY_US = 86_400_000_000
MARKER = b"appended after the crash"


@dataclass(slots=True)
class Promises:
    """The promises at one moment of a recorded run."""

    attempted: int = 0
    refused: set[int] = field(default_factory=set)
    written: int = 0
    synced: int = 0
    shown: int = 0
    start: int = 0
    deletable: int = 0
    commits: set[int | None] = field(default_factory=lambda: {None})
    """The possible commits of the reader: the last, and the one in progress."""
    topic_counts: set[int] = field(default_factory=set)
    """The possible settings, as with the commits; empty until it was changed."""

    def note(self, operation: Operation) -> None:
        if not isinstance(operation, Noted):
            return
        match operation.value:
            case Attempted(count):
                self.attempted = count
            case Refused(number):
                self.refused.add(number)
            case Promised(level, end):
                self.written = max(self.written, end)
                if level is Ack.SYNCED:
                    self.synced = max(self.synced, end)
            case Shown(end):
                self.shown = max(self.shown, end)
            case Deleting(end):
                self.deletable = max(self.deletable, end)
            case Deleted(start):
                self.start = max(self.start, start)
            case Committing(offset):
                self.commits.add(offset)
            case Committed(offset):
                self.commits = {offset}
            case Configuring(count):
                self.topic_counts |= {LogConfig().topic_count, count} if not self.topic_counts else {count}
            case Configured(count):
                self.topic_counts = {count}


def check_store(
    root: Path, attempts: Sequence[Attempt], promises: Promises, *, power_lost: bool, at_once: bool = True
) -> None:
    """Open the files of a crash at `root` and check the promises; leaves the store closed. at_once: it is sealed before
    the open returns, not in the background."""
    boot_id = NEXT_BOOT_ID if power_lost else BOOT_ID
    config = crash_config(sealed_at_open=int(at_once))
    store = Store(root, config, clock=StepClock(START_US + DAY_US, boot_id))
    try:
        store.maintenance.stop()
        log = store.log(LOG_NAME)
        commitment = store.committed(READER)
        committed = None if commitment is None else commitment.offset
        assert committed in promises.commits, f"(viii) committed was one of {promises.commits}"
        assert log.config.topic_count in (promises.topic_counts or {log.config.topic_count}), "(viii)"
        if log.config.retention_bytes:
            log.configure(retention_bytes=0)  # interrupted between these two: see Workload.delete
        found = read_all(store)
        assert log.start_offset >= promises.start, "(vii) what was deleted is back"
        assert log.start_offset <= promises.deletable or not found, "(vii) more is gone than was deleted"
        _check_contents(found, attempts, promises, log.start_offset, power_lost=power_lost)
        marker = log.append(MARKER, ack="written")
        assert marker >= promises.shown, f"(vi) {marker} was given out though {promises.shown - 1} was shown"
        assert marker > max(found, default=-1)
        if not power_lost:
            last = max(found, default=-1)
            assert marker == last + 1, "after a mere kill -9 nothing is missing and no offset is left out"
    finally:
        store.close()
    with Store(root, crash_config(), clock=StepClock(START_US + DAY_US, boot_id)) as again:
        assert again.recoveries == (), "(iv) the first open left something to recover"
        assert read_all(again) == {**found, marker: Content(MARKER, None)}, (
            "(iv) the second open found something else"
        )


def _check_contents(
    found: dict[int, Content],
    attempts: Sequence[Attempt],
    promises: Promises,
    start: int,
    *,
    power_lost: bool,
) -> None:
    expected: dict[int, Content] = {}
    refused: dict[int, list[Content]] = {}
    for number, attempt in enumerate(attempts[: promises.attempted]):
        for offset, content in enumerate(attempt.contents, attempt.first_offset):
            if offset < min(start, promises.deletable):
                continue
            if number in promises.refused:
                refused.setdefault(offset, []).append(content)
            else:
                expected[offset] = content
    must = promises.synced if power_lost else promises.written
    lost = [offset for offset in expected if offset < must and offset not in found]
    assert not lost, f"(i) acknowledged offsets {lost} are gone"
    for offset, content in found.items():
        # A failed append was undone; a power loss may restore its bytes on the disk.
        revived = power_lost and offset >= must and content in refused.get(offset, ())
        assert revived or content == expected.get(offset), f"(ii) offset {offset} holds {content}"
    offsets = sorted({*expected, *refused})
    assert sorted(found) == offsets[: len(found)], f"(iii) {sorted(found)} has holes"


def read_all(store: Store) -> dict[int, Content]:
    """Return all records of the log, by offset."""
    log = store.log(LOG_NAME)
    records = {}
    offset = log.start_offset
    while batch := log.read(offset):
        for record in batch:
            assert record.offset not in records
            records[record.offset] = Content(record.payload, record.topic)
        offset = batch.next_offset
    return records

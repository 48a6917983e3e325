"""The process dies by kill -9, at every single operation and at random moments, and no acknowledged record is lost.

Each round is a separate process that kills itself or is killed. More rounds for a soak run:

    TIMESTONE_CRASH_ROUNDS=1000 TIMESTONE_SEED=random pytest tests/crash/test_kill.py
"""

import os
import random
import shutil
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import timestone
from tests.support.child_process import in_child
from tests.support.crash_oracle import Promises, check_store
from tests.support.faulty_files import FaultyFiles, kill_process
from tests.support.killed_appender import (
    ACKNOWLEDGED,
    COMMITTED,
    CONFIG,
    LOG_NAME,
    READER,
    READY,
    STARTED,
    STATE,
    STATES_CONFIG,
    STATES_NAME,
    Appender,
    expected_payload,
    topic_of,
)
from tests.support.recording_files import Noted
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.workload import (
    Attempted,
    Deleted,
    Deleting,
    Fact,
    Promised,
    Refused,
    Shown,
    Workload,
    crash_config,
)
from timestone import Ack, Log, LogView, StoreView

pytestmark = pytest.mark.crash

ROUNDS = rounds(50, "TIMESTONE_CRASH_ROUNDS")
MOST_TIMES = 10

_MESSAGE = struct.Struct("<BQ")
_KINDS: list[Callable[[int], Fact]] = [
    Attempted,
    Shown,
    lambda end: Promised(Ack.WRITTEN, end),
    lambda end: Promised(Ack.SYNCED, end),
    Refused,
    Deleting,
    Deleted,
]


def _encode(fact: Fact) -> bytes:
    match fact:
        case Attempted(count):
            return _MESSAGE.pack(0, count)
        case Shown(end):
            return _MESSAGE.pack(1, end)
        case Refused(number):
            return _MESSAGE.pack(4, number)
        case Promised(level, end):
            return _MESSAGE.pack(3 if level is Ack.SYNCED else 2, end)
        case Deleting(end):
            return _MESSAGE.pack(5, end)
        case Deleted(start):
            return _MESSAGE.pack(6, start)
    raise AssertionError(f"{fact} is not a fact of these runs")


def steps(work: Workload) -> None:
    """Run every operation that changes the disk: append, batch, roll, seal, delete, close, open."""
    work.append(Ack.WRITTEN, topic="devices/1")
    work.append_many(Ack.WRITTEN, 3, topic="devices/2")
    work.append_many(Ack.SYNCED, 2)
    work.wait_for_seals()
    work.append(Ack.SYNCED, size=2000)
    work.reopen()
    work.append_many(Ack.WRITTEN, 5, topic="devices/1")
    work.append_many(Ack.WRITTEN, 5)
    work.wait_for_seals()
    work.delete()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", ["before", "middle"])
@pytest.mark.parametrize("sealing", [True, False], ids=["sealing", "not sealing"])
def test_process_killed_at_each_operation_loses_no_written_record(
    moment: str, sealing: bool, quick_directory: Path
) -> None:
    config = crash_config(segment_entries=4)
    whole = Workload(quick_directory / "whole", config, sealing)
    whole.run(steps)
    count = len(whole.files.calls)
    assert count > 60
    for number in range(1 if moment == "before" else 2, count + 1):
        root = quick_directory / "killed"

        def run(pipe: int, number: int = number, root: Path = root) -> None:
            def arm(files: FaultyFiles) -> None:
                files.kill(number, moment, kill_process)

            Workload(root, config, sealing, note=lambda fact: _report(pipe, fact), arm=arm).run(steps)

        status, report = in_child(run)
        with told_on_failure(operation=number, moment=moment, call=whole.files.calls[number - 1]):
            assert status in (signal.SIGKILL, 0), "the child ends by its own kill, or after all operations"
            promises = Promises()
            for kind, value in _MESSAGE.iter_unpack(report):
                promises.note(Noted(_KINDS[kind](value)))
            check_store(root, whole.attempts, promises, power_lost=False, at_once=number % 2 == 0)
        shutil.rmtree(root)


def _report(pipe: int, fact: Fact) -> None:
    os.write(pipe, _encode(fact))


ROUND_NUMBERS = 1_000_000
"""Numbers available to one round; the number of a record determines its round."""


class Consumer:
    """Reads during all kills, as another process does, and remembers the record at each offset."""

    def __init__(self, root: Path, most_records: int) -> None:
        self.seen: dict[int, int] = {}
        self._root = root
        self._most_records = most_records
        self._view: StoreView | None = None

    def poll(self) -> None:
        """Check the next records: none missing, none twice, none out of order."""
        if self._view is None:
            if not (self._root / f"{LOG_NAME}-0" / "topics").exists():
                return
            self._view = timestone.view(self._root)
        batch = self._view.log(LOG_NAME).read(len(self.seen), max_records=self._most_records)
        for record in batch:
            assert record.offset == len(self.seen), "after kill -9 no offset is left out"
            (number,) = struct.unpack_from("<Q", record.payload)
            assert number > self.seen.get(record.offset - 1, -1)
            self.seen[record.offset] = number

    def close(self) -> None:
        if self._view is not None:
            self._view.close()


class KillLoop:
    """Rounds of appending processes on one store, each killed at a random moment, and their acknowledged records."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.rng = rng
        self.acknowledged: dict[int, int] = {}
        self.states: dict[int, int] = {}
        """Of the compacted log: acknowledged offsets by number."""
        self.unchecked: dict[int, int] = {}
        self.committed = 0
        """The last offset that a reader has committed."""
        self.checked_offset = 0
        self.killed_in_recovery = 0
        self.found_count = 0
        self.consumers = [Consumer(root, 7), Consumer(root, 2000)]

    def round(self, number: int) -> None:
        """Start a process, kill it while it recovers or some time after, and store its reports."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                # Alternately both logs are sealed in the background, or only the second one.
                config = replace(CONFIG, sealed_at_open=number % 2)
                Appender(self.root, number * ROUND_NUMBERS, writer, config=config).run()
            finally:
                os._exit(1)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read(len(STARTED)) == STARTED
            if self.rng.random() < 0.3:
                said = b""
                time.sleep(self.rng.uniform(0, 0.1))
            else:
                said = pipe.read(len(READY))
                assert said == READY
                self._consume(self.rng.uniform(0.001, 0.2))
            os.kill(pid, signal.SIGKILL)
            said += pipe.read()
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        facts = list(ACKNOWLEDGED.iter_unpack(said[: len(said) // ACKNOWLEDGED.size * ACKNOWLEDGED.size]))
        self.killed_in_recovery += not facts
        for record_number, offset in facts[1:]:
            if record_number == COMMITTED:
                self.committed = offset
                continue
            assert record_number not in self.acknowledged
            assert record_number not in self.states
            if record_number >= STATE:
                self.states[record_number] = offset
                continue
            self.acknowledged[record_number] = self.unchecked[record_number] = offset

    def _consume(self, seconds: float) -> None:
        """Let time pass, reading during it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for consumer in self.consumers:
                consumer.poll()
            time.sleep(0.005)

    def means_something(self, rounds: int) -> bool:
        """Return whether enough rounds had enough to lose, and every consumer has seen some of it."""
        seen = all(consumer.seen for consumer in self.consumers)
        return seen and len(self.acknowledged) > 10 * rounds

    def check_view(self) -> None:
        """Check what another process reads from the crashed store before its recovery."""
        if not (self.root / f"{LOG_NAME}-0" / "topics").exists():
            assert not self.acknowledged
            return
        with timestone.view(self.root) as view:
            self._check(view.log(LOG_NAME))
            if (self.root / f"{STATES_NAME}-0" / "topics").exists():
                self.check_states(view.log(STATES_NAME))

    def check_store(self, *, from_the_start: bool = False) -> None:
        """Check the recovered store: the records that no check has seen yet, or all."""
        if from_the_start:
            self.unchecked, self.checked_offset = self.acknowledged, 0
        with timestone.open(self.root, config=CONFIG) as store:
            self.checked_offset = self._check(store.log(LOG_NAME))
            self.check_states(store.log(STATES_NAME, config=STATES_CONFIG))
            commitment = store.committed(READER)
            assert (commitment.offset if commitment else 0) >= self.committed, "a commit is gone"
            if from_the_start:
                self.check_consumers(store.log(LOG_NAME))
        self.unchecked = {}

    def rewrite_all(self) -> tuple[int, int]:
        """Compress and compact what the kills have left unfinished; return how many segments are compressed then, and
        how many records removed."""
        with timestone.open(self.root, config=CONFIG) as store:
            log, states = store.log(LOG_NAME), store.log(STATES_NAME)
            log.apply_compression()
            states.apply_compaction()
            trailers = [segment.trailer for segment in log.segment_list.segments if segment.trailer]
            removed = [
                segment.trailer.removed_count for segment in states.segment_list.segments if segment.trailer
            ]
            return sum(trailer.frames is not None for trailer in trailers), sum(removed)

    def check_states(self, log: Log | LogView) -> None:
        """Check the compacted log: an acknowledged record is removed only for a newer one of its topic."""
        last: dict[str | None, int] = {}
        found: dict[int, int] = {}
        for record in log.reader("earliest"):
            (number,) = struct.unpack_from("<Q", record.payload)
            assert record.payload == expected_payload(number), (
                f"offset {record.offset} is not a record of this test"
            )
            assert record.topic == topic_of(number)
            assert number > max(last.values(), default=-1), "in the order of submission, none twice"
            found[number] = record.offset
            last[record.topic] = number
        for number, offset in self.states.items():
            assert found.get(number, offset) == offset
            assert number in found or last.get(topic_of(number), -1) > number, (
                f"state {number - STATE} is lost"
            )

    def check_consumers(self, log: Log) -> None:
        """Check that every record that any consumer has seen, before any kill, is still at its offset."""
        for consumer in self.consumers:
            consumer.close()
            for offset in list(consumer.seen)[:: 1 + len(consumer.seen) // 5000]:
                (number,) = struct.unpack_from("<Q", log.record(offset).payload)
                assert number == consumer.seen[offset], f"offset {offset} was another record before"

    def _check(self, log: Log | LogView) -> int:
        found: dict[int, int] = {}
        previous = (-1, -1)
        offset = self.checked_offset
        while batch := log.read(offset):
            for record in batch:
                (number,) = struct.unpack_from("<Q", record.payload)
                assert record.payload == expected_payload(number), (
                    f"offset {record.offset} is not a record of this test"
                )
                assert record.topic == topic_of(number)
                assert (record.offset, number) > previous, "in order, by offset and by number"
                assert number > previous[1], "in the order of submission, none twice"
                previous = (record.offset, number)
                found[number] = record.offset
            offset = batch.next_offset
        lost = {number: at for number, at in self.unchecked.items() if found.get(number) != at}
        assert not lost, f"{len(lost)} acknowledged records are gone or elsewhere: {sorted(lost.items())[:5]}"
        self.found_count = len(found)
        return offset


@pytest.mark.timeout(0)
def test_acknowledged_records_survive_kill_9_at_random_moments(quick_directory: Path) -> None:
    seed = run_seed("kill -9")
    loop = KillLoop(quick_directory / "store", random.Random(seed))
    number = 0
    # On a slow machine, more rounds are needed until they have tested enough.
    while number < ROUNDS or not (loop.means_something(ROUNDS) or number == MOST_TIMES * ROUNDS):
        with told_on_failure(TIMESTONE_SEED=seed, round=number):
            loop.round(number)
            if number % 3 == 0:
                loop.check_view()
            if number % 3 == 1:
                loop.check_store()  # else the next process recovers, and may be killed while it does
        number += 1
    compressed, removed = loop.rewrite_all()
    loop.check_store(from_the_start=True)
    print(
        f"{compressed} segments are compressed, {removed} of {len(loop.states)} states removed for newer ones"
    )
    assert compressed
    assert removed
    print(f"{number} kills, {loop.killed_in_recovery} of them while the store was being opened, seed {seed}:")
    print(f"{len(loop.acknowledged)} acknowledged records, 0 lost, {loop.found_count} found, 0 invented")
    seen = [len(consumer.seen) for consumer in loop.consumers]
    print(f"consumers saw {seen} records before the kill, all still in their place")
    assert loop.means_something(ROUNDS), "the rounds are too short"

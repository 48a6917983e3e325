"""Any sequence of append, roll, seal, close, kill and read, against a list.

A soak run does more and longer sequences:

    TIMESTONE_MODEL_EXAMPLES=2000 pytest tests/crash/test_model.py
"""

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.support.faulty_files import FaultyFiles
from tests.support.killed_store import kill_store
from tests.support.quick_directory import MEMORY
from tests.support.seeds import rounds
from tests.support.step_clock import StepClock
from timestone.config import Ack, LogConfig, StoreConfig
from timestone.errors import OffsetOutOfRange
from timestone.filters import topic_matches
from timestone.kernel.entries import NO_TOPIC
from timestone.log import Log
from timestone.reader import Reader
from timestone.reading.batch import Batch
from timestone.record import Header, HeaderKind, encode_headers
from timestone.store import Store
from timestone.view import StoreView, view_store
from timestone.writing.write_batch import WriteBatch

pytestmark = pytest.mark.crash

LOG_NAME = "telemetry"
TOPICS = st.sampled_from([None, "a", "a/b", "a/b/c", "d/b", "$s/b", "e"])
FILTERS = st.sampled_from(["a", "a/#", "+/b", "#", "d/+", "x/#", "$s/+"])
PAYLOADS = st.one_of(st.binary(max_size=40), st.sampled_from([b"", bytes(300), b"x" * 1000]))
RECORDS = st.lists(st.tuples(PAYLOADS, TOPICS, st.booleans()), min_size=1, max_size=12)
LEVELS = st.sampled_from([Ack.WRITTEN, Ack.SYNCED])


class Expected(NamedTuple):
    """A record of the model."""

    offset: int
    timestamp_us: int
    topic: str | None
    payload: bytes
    headers: tuple[tuple[str, bytes], ...]


class LogAgainstList(RuleBasedStateMachine):
    """The store is closed, killed and opened; the list only grows."""

    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.clock = StepClock()
        self.records: list[Expected] = []
        self.view: StoreView | None = None

    @initialize(
        segment_bytes=st.sampled_from([1, 100, 1500, 10**6]),
        segment_entries=st.sampled_from([1, 3, 20, 10**6]),
        tail_bytes=st.sampled_from([0, 600, 5000, 10**7]),
    )
    def create(self, segment_bytes: int, segment_entries: int, tail_bytes: int) -> None:
        log = LogConfig(segment_bytes=segment_bytes, segment_entries=segment_entries, segment_age_ms=1000)
        self.config = StoreConfig(
            min_free_bytes=0, sync_interval_ms=10**9, tail_bytes=tail_bytes, open_segment_count=2, log=log
        )
        self.open()

    def open(self) -> None:
        self.files = FaultyFiles()
        self.store = Store(self.root, self.config, files=self.files, clock=self.clock)
        self.log: Log = self.store.log(LOG_NAME)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        if self.view is not None:
            self.view.close()
        shutil.rmtree(self.root)

    # Writing.

    @rule(records=RECORDS, ack=LEVELS, submitted=st.booleans())
    def append(self, records: list[tuple[bytes, str | None, bool]], ack: Ack, submitted: bool) -> None:
        blocks = [
            encode_headers([Header(HeaderKind.USER, "n", b"v")]) if headed else b""
            for _, _, headed in records
        ]
        write_batch = WriteBatch(
            [block + payload for block, (payload, _, _) in zip(blocks, records, strict=True)],
            [NO_TOPIC if topic is None else self.log.topic_id(topic) for _, topic, _ in records],
            header_lengths=[len(block) for block in blocks],
        )
        end = self.log.end_offset
        if submitted:
            offsets = self.log.submit(write_batch, ack=ack).wait(10)
        else:
            offsets = self.log.append_batch(write_batch, ack=ack)
        assert offsets == range(end, end + len(records))
        timestamp_us = self.log.record(end).timestamp_us
        for offset, (payload, topic, headed) in zip(offsets, records, strict=True):
            headers = (("n", b"v"),) if headed else ()
            self.records.append(Expected(offset, timestamp_us, topic, payload, headers))
        if ack is Ack.SYNCED:
            assert self.log.synced_offset == self.log.end_offset

    @rule(ms=st.sampled_from([1, 2000, -5000]))
    def let_time_pass(self, ms: int) -> None:
        """Let enough time pass for the next append to roll, or set the clock back, as an operator may."""
        self.clock.advance(ms)

    @rule()
    def sync(self) -> None:
        assert self.log.sync() == self.log.end_offset

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.open()
        assert self.store.recoveries == ()

    @rule()
    def kill_and_open(self) -> None:
        kill_store(self.store, self.files)
        self.open()
        assert self.log.epoch == 0

    # Reading.

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "log"):
            assert self.log.end_offset == len(self.records)
            assert self.log.start_offset == 0
            assert self.log.synced_offset <= self.log.end_offset

    @rule(data=st.data(), max_records=st.integers(1, 30), max_bytes=st.sampled_from([0, 1, 200, 5000, 10**6]))
    def read(self, data: st.DataObject, max_records: int, max_bytes: int) -> None:
        offset = data.draw(st.integers(0, len(self.records)))
        batch = self.log.read(offset, max_records=max_records, max_bytes=max_bytes)
        self.check_batch(batch, self.records[offset : batch.next_offset])
        assert len(batch) <= max_records
        assert bool(batch) == (offset < len(self.records))
        assert len(batch) <= 1 or int(batch.lengths.sum()) <= max_bytes

    @rule(data=st.data())
    def read_one(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.records)))
        if offset == len(self.records):
            with pytest.raises(OffsetOutOfRange):
                self.log.record(offset)
        else:
            record = self.log.record(offset)
            assert (
                Expected(record.offset, record.timestamp_us, record.topic, record.payload, record.headers)
                == (self.records[offset])
            )

    @rule(data=st.data(), past=st.integers(-2, 2))
    @precondition(lambda self: self.records)
    def find_by_time(self, data: st.DataObject, past: int) -> None:
        timestamp_us = data.draw(st.sampled_from([record.timestamp_us for record in self.records])) + past
        later = [record.offset for record in self.records if record.timestamp_us >= timestamp_us]
        assert self.log.offset_at(timestamp_us) == min(later, default=len(self.records))

    @rule(filters=st.lists(FILTERS, min_size=1, max_size=3), max_records=st.sampled_from([1, 4, 1000]))
    def read_topics(self, filters: list[str], max_records: int) -> None:
        reader = self.log.reader("earliest", topics=filters)
        found: list[Expected] = []
        while batch := reader.read(max_records=max_records):
            assert len(batch) <= max_records
            found += expected_of(batch)
        assert found == [record for record in self.records if wanted(record, filters)]
        assert reader.offset == len(self.records)
        reader.close()

    @rule()
    def read_as_another_process(self) -> None:
        if self.view is None:
            self.view = view_store(self.root)
        log = self.view.log(LOG_NAME)
        log.refresh()
        assert log.end_offset == len(self.records)
        found: list[Expected] = []
        while batch := log.read(len(found)):
            found += expected_of(batch)
        assert found == self.records
        bounds = log.segment_bounds()
        assert [offset for low, high in bounds for offset in range(low, high)] == list(
            range(len(self.records))
        )

    # Readers that live on between the steps.

    @rule(target=readers, filters=st.none() | st.lists(FILTERS, min_size=1, max_size=2))
    def start_reader(self, filters: list[str] | None) -> tuple[Reader, list[str] | None]:
        return self.log.reader("latest", topics=filters), filters

    @rule(chosen=readers)
    def park_and_read(self, chosen: tuple[Reader, list[str] | None]) -> None:
        """Check that records for which a parked reader was not woken do not match; its next read returns the next
        matching one."""
        reader, filters = chosen
        if reader.log is not self.log:
            return  # its store was closed
        start = reader.offset
        batch = reader.read()
        missed = [record for record in self.records[start : batch.next_offset] if wanted(record, filters)]
        assert expected_of(batch) == missed
        if reader.caught_up:
            assert reader.park()

    @rule(chosen=consumes(readers))
    def stop_reader(self, chosen: tuple[Reader, list[str] | None]) -> None:
        chosen[0].close()

    def check_batch(self, batch: Batch, expected: list[Expected]) -> None:
        assert expected_of(batch) == expected


def wanted(record: Expected, filters: list[str] | None) -> bool:
    topic = record.topic
    return filters is None or (topic is not None and any(topic_matches(one, topic) for one in filters))


def expected_of(batch: Batch) -> list[Expected]:
    return [Expected(r.offset, r.timestamp_us, r.topic, r.payload, r.headers) for r in batch]


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(
    max_examples=rounds(60, "TIMESTONE_MODEL_EXAMPLES"),
    stateful_step_count=rounds(40, "TIMESTONE_MODEL_STEPS"),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

"""One rewriter for a segment, and readers that wait while files are renamed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.step_clock import StepClock
from timestone import LogConfig, StoreConfig
from timestone.config import Ack
from timestone.index import Trailer
from timestone.log import Log
from timestone.segment import Segment
from timestone.store import Store
from timestone.upkeep.segment_compaction import CompactedCopy


@pytest.fixture
def log(quick_directory: Path) -> Iterator[Log]:
    config = StoreConfig(ack=Ack.WRITTEN, min_free_bytes=0, log=LogConfig(segment_entries=2))
    with Store(quick_directory / "store", config, clock=StepClock()) as store:
        log = store.log("a")
        for number in range(4):
            log.append(b"%d" % number)
        store.sealer.settle()
        yield log


def test_segment_has_one_claim_at_a_time_and_is_free_afterwards(log: Log) -> None:
    first, second = log.segment_list.segments
    with log.rewrites.claim(first) as free:
        assert free
        assert log.rewrites.is_claimed(first)
        assert not log.rewrites.is_claimed(second)
        with log.rewrites.claim(first) as again, log.rewrites.claim(second) as other:
            assert (again, other) == (False, True)
        assert log.rewrites.is_claimed(first), "the claim that failed takes nothing away"
    assert not log.rewrites.is_claimed(first)


def test_segment_that_left_the_log_cannot_be_claimed(log: Log) -> None:
    first = log.segment_list.segments[0]
    log.configure(retention_bytes=1)
    log.apply_retention()  # or the background did
    assert first not in log.segment_list.segments
    with log.rewrites.claim(first) as free:
        assert not free
    assert not log.rewrites.is_claimed(first)


def test_claim_ends_when_the_rewrite_fails(log: Log) -> None:
    first = log.segment_list.segments[0]
    with pytest.raises(OSError, match="the disk"), log.rewrites.claim(first):
        raise OSError("the disk")
    assert not log.rewrites.is_claimed(first)


def test_settling_waits_until_the_files_have_been_renamed(log: Log) -> None:
    settled = threading.Event()

    def settle() -> None:
        log.rewrites.settle()
        settled.set()

    with log.rewrites.lock:
        waiting = threading.Thread(target=settle)
        waiting.start()
        assert not settled.wait(0.05)
    waiting.join(10)
    assert settled.is_set()


@pytest.mark.parametrize("who", ["compaction", "scrub"])
def test_reader_that_sees_new_files_before_the_log_waits_for_the_swap(
    log: Log, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """The renamed index names another segment file; that is not damage."""
    log.configure(compact=True)
    store, first = log._store, log.segment_list.segments[0]
    assert isinstance(store, Store)
    renamed, waited_for = threading.Event(), threading.Event()
    exchange, settle = log.exchange, log.rewrites.settle

    def exchange_when_waited_for(segment: Segment, trailer: Trailer) -> None:
        renamed.set()
        assert waited_for.wait(60)
        exchange(segment, trailer)

    def settle_and_say_so() -> None:
        waited_for.set()
        settle()

    monkeypatch.setattr(log, "exchange", exchange_when_waited_for)
    copy = CompactedCopy(store.files, first, np.zeros(first.count, dtype=np.bool_))
    assert list(copy.slices())
    replacing = threading.Thread(target=log.rewrites.replace, args=(first, copy.replacement, copy.trailer))
    replacing.start()
    try:
        assert renamed.wait(60)
        monkeypatch.setattr(log.rewrites, "settle", settle_and_say_so)
        store.open_segments.clear()
        assert (log.apply_compaction() == 0) if who == "compaction" else (store.scrub() == [])
    finally:
        waited_for.set()
        replacing.join(60)
    assert log.segment_list.segments[0] is not first
    assert [record.payload for record in log.reader()] == [b"0", b"1", b"2", b"3"]

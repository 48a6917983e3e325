"""One rewriter a segment, and readers that wait while files are renamed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.step_clock import StepClock
from timestone import LogConfig, StoreConfig
from timestone.config import Ack
from timestone.log import Log
from timestone.store import Store


@pytest.fixture
def log(quick_directory: Path) -> Iterator[Log]:
    config = StoreConfig(ack=Ack.WRITTEN, min_free_bytes=0, log=LogConfig(segment_entries=2))
    with Store(quick_directory / "store", config, clock=StepClock()) as store:
        log = store.log("a")
        for number in range(4):
            log.append(b"%d" % number)
        yield log


def test_a_segment_is_claimed_by_one_at_a_time_and_free_again_afterwards(log: Log) -> None:
    first, second = log.history.segments
    with log.rewrites.claim(first) as free:
        assert free
        assert log.rewrites.is_claimed(first)
        assert not log.rewrites.is_claimed(second)
        with log.rewrites.claim(first) as again, log.rewrites.claim(second) as other:
            assert (again, other) == (False, True)
        assert log.rewrites.is_claimed(first), "the claim that failed takes nothing away"
    assert not log.rewrites.is_claimed(first)


def test_a_segment_that_is_no_longer_the_logs_is_free_for_nobody(log: Log) -> None:
    first = log.history.segments[0]
    log.configure(retention_bytes=1)
    assert log.apply_retention() > 0
    with log.rewrites.claim(first) as free:
        assert not free
    assert not log.rewrites.is_claimed(first)


def test_a_claim_ends_when_the_rewriting_fails(log: Log) -> None:
    first = log.history.segments[0]
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

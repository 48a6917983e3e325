"""Retention deletes no retained message before its document is saved."""

from concurrent.futures import ThreadPoolExecutor

from mqtt_front.retained.retention_hold import READER
from tests.mqtt_front.retained.test_keeper import Parts, append, executor
from tests.support.waiting import wait_for
from timestone.store import Store

__all__ = ["executor"]


def expire(store: Store) -> int:
    """Retention wants everything but one more record; the first offset that is left."""
    log = store.log("mqtt")
    log.roll()
    append(log, "more", b"x", retain=False)
    wait_for(lambda: len(log.segment_list.sealed()) == len(log.segment_list.segments) - 1)
    log.configure(retention_bytes=1)
    log.apply_retention()
    return log.start_offset


def test_retained_value_survives_a_kill_before_its_save_and_a_long_downtime(
    store: Store, executor: ThreadPoolExecutor
) -> None:
    parts, log = Parts(store, executor), store.log("mqtt")
    append(log, "saved", b"1")
    append(log, "cleared", b"2")
    parts.retaining.follow()
    parts.save()
    log.roll()
    append(log, "not saved", b"3")
    append(log, "cleared", b"")
    parts.retaining.follow()
    assert expire(store) == 2, "up to where the documents are complete"
    assert Parts(store, executor).values() == {"saved": b"1", "not saved": b"3"}


def test_saved_records_are_released_for_retention(store: Store, executor: ThreadPoolExecutor) -> None:
    parts, log = Parts(store, executor), store.log("mqtt")
    append(log, "a", b"1")
    parts.retaining.follow()
    assert expire(store) == 0
    parts.save()
    assert expire(store) == 1
    assert Parts(store, executor).values() == {"a": b"1"}


def test_hold_is_bounded_and_ends_with_the_front(store: Store, executor: ThreadPoolExecutor) -> None:
    parts, log = Parts(store, executor), store.log("mqtt")
    append(log, "a", b"1")
    parts.retaining.follow()
    parts.retaining.release()
    held = log.named_readers.committed(READER)
    assert held is not None and held.offset == 0, "there is something to save yet"
    assert held.pin is not None and held.pin.max_bytes == 2 * log.config.segment_bytes + (256 << 20)
    parts.save()
    parts.retaining.release()
    assert log.named_readers.committed(READER) is None

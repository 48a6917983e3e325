"""Counts of logs in a real store, also after one of them was deleted."""

from pathlib import Path

import timestone


def test_a_log_counts_records_bytes_writes_and_flushes_since_it_was_opened(tmp_path: Path) -> None:
    with timestone.open(tmp_path, min_free_bytes=0) as store:
        store.log("telemetry").append(b"before")
    with timestone.open(tmp_path, min_free_bytes=0) as store:
        log = store.log("telemetry")
        assert log.counts[:2] == (0, 0)
        log.append_many([b"abc", b"de"], ack="written")
        log.append(b"f", ack="synced")
        counts = log.counts
        assert (counts.appended_records, counts.appended_bytes) == (3, 6)
        assert (counts.writes.count, counts.flushes.count) == (2, 1)
        assert counts.writes.sum_ns > 0 and 0 < counts.flushes.sum_ns < 60e9


def test_durations_of_a_store_include_those_of_deleted_logs(tmp_path: Path) -> None:
    with timestone.open(tmp_path, min_free_bytes=0) as store:
        for name in ("one", "two"):
            store.log(name).append(b"x", ack="written")
        store.delete_log("one")
        assert store.durations().writes.count == 2
        assert store.log("two").counts.writes.count == 1, "adding them up changes none"

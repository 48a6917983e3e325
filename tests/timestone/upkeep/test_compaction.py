"""Compaction keeps the last record of each topic and changes nothing else about a log."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timestone
from tests.support.compacted import Appended, append, check, shown
from tests.support.damaged_json import DAMAGED_JSON
from tests.support.expiring_store import HOUR_MS, ExpiringStore
from timestone import CorruptRecord, Log, OffsetOutOfRange, WriteBatch
from timestone.kernel.entries import ENTRY, entry_position
from timestone.record import FLAG_REMOVED, FLAG_RETAIN, FLAG_TOMBSTONE
from timestone.repair.inspection import EXIT_CLEAN, inspect_store
from timestone.upkeep.compaction import SPACE, LatestOffsets, Progress


class Place(ExpiringStore):
    """A store that remembers the appended records."""

    def __init__(self, path: Path) -> None:
        # The background gets no further than a slice until it is stopped.
        super().__init__(path, delete_delay_ms=0, compact_bytes_per_s=1)
        self.appended: list[Appended] = []

    def log(self, **settings: Any) -> Log:
        return super().log(**{"compact": True, "tombstone_ms": HOUR_MS, **settings})

    def append(self, log: Log, *records: tuple[str | None, bytes]) -> None:
        append(log, self.appended, *records)


@pytest.fixture
def place(quick_directory: Path) -> Iterator[Place]:
    place = Place(quick_directory / "data")
    yield place
    place.store.close()


def topics(log: Log) -> list[tuple[int, str | None]]:
    return [(offset, record.topic) for offset, record in shown(log).items()]


def test_last_record_of_each_topic_stays_at_its_offset(place: Place) -> None:
    log = place.log()
    place.append(log, ("a", b"1"), ("b", b"2"), ("a", b"3"), (None, b"4"), ("c", b"5"), ("a", b"6"))
    place.seal(log)
    assert log.apply_compaction() == 2
    assert topics(log) == [(1, "b"), (3, None), (4, "c"), (5, "a")]
    check(log, place.appended)
    assert (log.start_offset, log.end_offset) == (0, 6)
    place.append(log, ("b", b"7"))
    place.seal(log)
    assert log.apply_compaction() == 1
    assert topics(log) == [(3, None), (4, "c"), (5, "a"), (6, "b")]
    log = place.reopen()
    assert topics(log) == [(3, None), (4, "c"), (5, "a"), (6, "b")]
    assert place.store.recoveries == ()
    assert place.store.scrub() == []


def test_segment_compacted_during_a_compression_estimate_keeps_its_new_files(place: Place) -> None:
    log = place.log()
    place.append(log, ("a", b"1" * 900), ("b", b"2" * 900), ("a", b"3" * 900), ("c", b"4" * 900))
    place.seal(log)
    (segment,) = log.segment_list.sealed()
    compressing = log.compression._compress(segment)
    next(compressing)
    assert log.apply_compaction() == 1
    assert list(compressing) == []
    check(log, place.appended)
    log = place.reopen()
    check(log, place.appended)
    assert topics(log) == [(1, "b"), (2, "a"), (3, "c")]
    assert place.store.recoveries == ()
    assert place.store.scrub() == []


def test_unsealed_records_are_not_removed_and_remove_no_others(place: Place) -> None:
    """The growing segment may not survive a power loss; then the older record is all there is."""
    log = place.log()
    place.append(log, ("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", b"4"), ("a", b"5"), ("a", b"6"))
    place.seal(log)
    place.append(log, ("a", b"7"), ("a", b"8"), ("b", b"9"))
    log.apply_compaction()
    assert topics(log) == [(3, "b"), (5, "a"), (6, "a"), (7, "a"), (8, "b")]


def test_log_without_the_setting_keeps_all_records(place: Place) -> None:
    log = place.log(compact=False)
    place.append(log, *[("a", b"x")] * 9)
    place.seal(log)
    assert log.apply_compaction() == 0
    assert len(shown(log)) == 9
    log.configure(compact=True)
    assert log.apply_compaction() == 8


def test_all_reads_skip_gaps(place: Place) -> None:
    log = place.log(segment_entries=6)
    for number in range(60):
        place.append(log, (f"t/{number % 3 if number < 50 else number}", b"%d" % number))
    place.seal(log)
    log = place.reopen()
    log.apply_compaction()
    found = check(log, place.appended)
    offsets = [47, 48, 49, *range(50, 60)]
    assert list(found) == offsets
    # By offset: at a gap, the next remaining record; a removed record is not replaced by another one.
    for start in (0, 5, 6, 46, 47, 48):
        batch = log.read(start, max_records=1)
        assert batch.offsets.tolist() == [next(one for one in offsets if one >= start)]
        assert batch.next_offset == batch.offsets[0] + 1
    with pytest.raises(OffsetOutOfRange):
        log.record(46)
    assert log.record(47).payload == b"47"
    # By time: for a removed record, its offset; reading continues behind it.
    moment = log.record(50).timestamp_us
    assert log.offset_at(moment) == 50
    assert log.offset_at(0) == 0
    # By topic.
    assert [record.offset for record in log.reader(topics="t/1")] == [49]
    assert [record.offset for record in log.reader(topics="t/+")] == offsets
    # In columns.
    batch = log.read(0)
    assert batch.offsets.tolist() == offsets[: len(batch)]
    assert batch.payloads() == [b"%d" % offset for offset in batch.offsets.tolist()]
    assert batch.to_arrow().column("value").to_pylist() == batch.payloads()
    assert (batch.flags & FLAG_REMOVED).sum() == 0
    # By name, and by another process.
    with log.reader(name="x") as reader:
        reader.read(max_records=1)
        reader.commit()
        assert reader.committed_offset == 48
    with timestone.view(place.path) as view:
        assert shown(view.log("a")) == found
        assert view.log("a").segment_bounds() == log.segment_bounds()


def test_segment_that_lost_all_its_records_is_a_gap(place: Place) -> None:
    log = place.log()
    place.append(log, *[("a", bytes(100))] * 12, ("a", b"last"))
    place.seal(log)
    log = place.reopen()
    assert log.apply_compaction() == 12
    assert [segment.segment_path.stat().st_size for segment in log.segment_list.segments] == [0, 0, 0, 4]
    batch = log.read(0)
    assert (batch.offsets.tolist(), batch.payloads()) == ([12], [b"last"])
    assert [record.offset for record in log.reader(topics="a")] == [12]
    place.append(log, ("a", b"more"))
    assert topics(log) == [(12, "a"), (13, "a")]


def test_view_continues_reading_while_a_pass_replaces_files(place: Place) -> None:
    log = place.log()
    place.append(log, *[(f"t{number % 5}", b"%d" % number) for number in range(40)])
    place.seal(log)
    with timestone.view(place.path) as view:
        reader = view.log("a").reader()
        first = [record.offset for record in reader.read(max_records=6)]
        log.apply_compaction()
        place.store.deleted_files.unlink_due()
        rest = [record.offset for record in reader]
        assert first + rest == sorted({*first, *rest})
        assert {35, 36, 37, 38, 39} <= {*first, *rest}
        check(view.log("a"), place.appended)


# Tombstones.


def test_tombstone_is_kept_for_its_time_after_the_older_records(place: Place) -> None:
    log = place.log()
    place.append(log, ("a", b"1"), ("b", b"2"), ("a", b""), ("b", b"3"))
    place.seal(log)
    place.clock.advance(5 * HOUR_MS)
    log.apply_compaction()
    assert topics(log) == [(2, "a"), (3, "b")], "old, but the record that it deletes was there until now"
    place.clock.advance(HOUR_MS // 2)
    log.apply_compaction()
    assert topics(log) == [(2, "a"), (3, "b")]
    log = place.reopen()
    assert log.apply_compaction() == 0, "a clock that is far ahead at an open is not believed for an hour"
    place.clock.advance(3 * HOUR_MS)
    assert log.apply_compaction() == 1
    assert topics(log) == [(3, "b")]
    check(log, place.appended)


def test_retained_record_is_removed_only_for_a_newer_retained_one(place: Place) -> None:
    """The MQTT front finds out by reading the log which messages are retained, also after a kill; a record that is not
    to be retained replaces none that is."""
    log = place.log(tombstone_ms=0)
    log.append(b"on", topic="lamp", flags=FLAG_RETAIN)
    log.append(b"sample", topic="lamp")
    log.append(b"newer sample", topic="lamp")
    log.append(b"", topic="lamp")  # a tombstone for others, nothing to retained messages
    place.seal(log)
    for _ in range(3):
        place.clock.advance(HOUR_MS)
        log.apply_compaction()
        assert topics(log) == [(0, "lamp"), (3, "lamp")], "and the tombstone stays while an older record does"
    log.append(b"off", topic="lamp", flags=FLAG_RETAIN)
    place.seal(log)
    log.apply_compaction()
    assert topics(log) == [(4, "lamp")]
    log.append(b"", topic="lamp", flags=FLAG_RETAIN)
    place.seal(log)
    log.apply_compaction()
    assert topics(log) == [(5, "lamp")], "cleared: the tombstone is the newest retained record"
    place.clock.advance(HOUR_MS)
    assert log.apply_compaction() == 1
    assert topics(log) == []


def test_tombstone_is_a_flag_or_an_empty_payload_without_headers(place: Place) -> None:
    log = place.log(tombstone_ms=0)
    log.append(b"", topic="a", headers=[("unit", b"C")])
    log.append(b"data", topic="b", flags=FLAG_TOMBSTONE)
    log.append(b"", topic=None)
    log.append(b"x", topic="c")
    place.seal(log)
    log.apply_compaction()
    place.clock.advance(1)
    assert log.apply_compaction() == 2
    assert topics(log) == [(2, None), (3, "c")]


def test_tombstone_stays_while_a_damaged_segment_keeps_the_older_record(place: Place) -> None:
    log = place.log(tombstone_ms=0, compact=False)
    place.append(log, ("a", b"1"), ("b", b"2"), ("c", b"3"), ("c", b"4"))
    place.append(log, ("a", b""), ("b", b"5"), ("c", b"6"), ("d", b"7"))
    place.seal(log)
    log = place.reopen()
    path = log.segment_list.segments[0].segment_path
    whole = path.read_bytes()
    path.write_bytes(whole[:3] + b"X")  # the second record of c
    log.configure(compact=True)
    for _ in range(3):
        place.clock.advance(HOUR_MS)
        assert log.apply_compaction() == 0
    path.write_bytes(whole)
    assert log.apply_compaction() == 4
    place.clock.advance(HOUR_MS)
    assert log.apply_compaction() == 1
    assert topics(log) == [(5, "b"), (6, "c"), (7, "d")]


def test_damaged_record_removes_no_older_one(place: Place) -> None:
    log = place.log(compact=False)
    place.append(log, ("a", b"1"), ("b", b"2"), ("c", b"3"), ("c", b"4"))
    place.append(log, ("a", b"5"), ("b", b"6"))
    place.seal(log)
    log = place.reopen()
    log.segment_list.segments[1].segment_path.write_bytes(b"X6")
    log.configure(compact=True)
    assert log.apply_compaction() == 2
    assert [record.offset for record in log.read(0)] == [0, 3]


def test_segment_with_a_damaged_header_page_is_skipped_until_the_next_open(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Every pass ended there with an error that is recovery's own, and nothing of the log was compacted any more."""
    log = place.log()
    for payload in (b"1", b"2", b"3"):
        place.append(log, ("a", payload), ("b", payload))
        place.seal(log)
    with log.segment_list.segments[0].index_path.open("r+b") as index:
        index.seek(40)
        index.write(b"X")
    assert log.apply_compaction() == 2
    assert topics(log) == [(0, "a"), (1, "b"), (4, "a"), (5, "b")]
    assert "is not compacted: header checksum does not match" in caplog.text
    log = place.reopen()
    assert log.apply_compaction() == 2
    assert topics(log) == [(4, "a"), (5, "b")]


# Passes.


def test_background_pass_begins_when_half_is_new_and_runs_in_slices(place: Place) -> None:
    log = place.log()

    def until_done() -> int:
        slices = 0
        while (wait_s := log.compaction.run()) is not None:
            assert wait_s >= 0
            slices += 1
        return slices

    assert until_done() == 0
    place.append(log, *[(f"t{number % 10}", b"x") for number in range(40)])
    place.seal(log)
    assert until_done() > 10
    assert len(shown(log)) == 10
    place.append(log, *[("t1", b"y")] * 4)
    place.seal(log)
    assert until_done() == 0, "too little is new"
    place.append(log, *[("t1", b"y")] * 80)
    place.seal(log)
    assert until_done() > 0
    assert len(check(log, place.appended)) == 10


def test_damaged_record_that_looks_removed_raises_an_error(place: Place) -> None:
    """A single bit makes an entry claim that its record was removed; its checksum proves the opposite."""
    log = place.log()
    place.append(log, ("a", b"1"), ("a", b"2"), ("b", b"3"), ("a", b"4"))
    place.seal(log)
    log.apply_compaction()
    assert topics(log) == [(2, "b"), (3, "a")]
    index = next(log.folder.glob("*.index"))
    content = bytearray(index.read_bytes())
    content[entry_position(2) + 22] ^= FLAG_REMOVED
    index.write_bytes(content)
    log = place.reopen()
    for start in (0, 1, 2):
        with pytest.raises(CorruptRecord) as caught:
            log.read(start)
        assert caught.value.offset == 2
    assert log.read(3).offsets.tolist() == [3]


def test_interrupted_pass_leaves_no_files(place: Place) -> None:
    log = place.log()
    place.append(log, *[("a", b"x")] * 9)
    place.seal(log)
    while not list(log.folder.glob("*.1.segment")):
        assert log.compaction.run() is not None
    place.store.close()
    assert not list(log.folder.glob("*.1.segment"))
    place.store = place._opened()
    log = place.store.log("a")
    check(log, place.appended)
    assert log.apply_compaction() == 8


def test_segment_under_another_rewrite_is_skipped(place: Place) -> None:
    log = place.log()
    place.append(log, *[("a", b"x")] * 8)
    place.seal(log)
    first = log.segment_list.segments[0]
    with log.rewrites.claim(first) as free:
        assert free
        with log.rewrites.claim(first) as second:
            assert not second
        assert log.apply_compaction() == 3
    assert log.apply_compaction() == 4


def test_full_disk_ends_a_pass_and_the_next_one_completes_it(place: Place) -> None:
    log = place.log()
    place.append(log, *[("a", b"x")] * 9)
    place.seal(log)
    place.files.fail("pwrite", 28, path=".1.segment")
    place.files.fail("pwrite", 28, path=".tmp", nth=2)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            log.apply_compaction()
        assert not [name for name in log.folder.iterdir() if name.suffix == ".tmp"]
        check(log, place.appended)
    log.apply_compaction()
    assert len(check(log, place.appended)) == 1


@pytest.mark.slow
def test_random_histories_keep_their_last_states(quick_directory: Path) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        place = Place(quick_directory / str(seed))
        log = place.log(segment_entries=rng.choice([2, 5, 30]), tombstone_ms=1000)
        for _ in range(12):
            place.append(
                log,
                *[
                    (rng.choice(["a", "b", "c", "d/1", "d/2", None]), rng.choice([b"", b"x", bytes(50)]))
                    for _ in range(rng.randrange(20))
                ],
            )
            place.seal(log)
            place.clock.advance(rng.randrange(3000))
            if rng.random() < 0.6:
                log.apply_compaction()
            if rng.random() < 0.3:
                log = place.reopen()
            check(log, place.appended)
        assert place.store.scrub() == []
        place.store.close()


def test_invalid_progress_is_ignored(place: Place) -> None:
    assert Progress.decode(None) == Progress()
    wrong = (b'{"clean_to": "y"}', b'{"clean_to": -1}', b'{"sweeps": [1]}', b'{"sweeps": 5}')
    for document in (*wrong, *DAMAGED_JSON.values()):
        assert Progress.decode(document) == Progress()
    progress = Progress(7, False, ((1, 2), (3, 4)))
    assert Progress.decode(progress.encode()) == progress
    assert [progress.horizon(us) for us in (0, 1, 2, 3, 9)] == [0, 2, 2, 4, 4]
    log = place.log()
    place.append(log, *[("a", b"x")] * 4)
    place.seal(log)
    log.apply_compaction()
    assert json.loads(place.store.documents.items(SPACE)["a-0"])["clean_to"] == 4


def test_number_of_remembered_passes_is_bounded(place: Place) -> None:
    progress = Progress()
    for number in range(1000):
        progress = progress.swept(number * 10, number, 100)
    assert len(progress.sweeps) <= 32
    assert progress.clean_to == 999


def test_latest_offsets_of_an_empty_list_of_topics_are_empty() -> None:
    latest = LatestOffsets(0)
    assert latest.of(np.empty(0, dtype=ENTRY)).tolist() == []


def test_append_refuses_records_marked_as_removed(place: Place) -> None:
    with pytest.raises(ValueError, match="removed"):
        place.log().append(b"x", flags=FLAG_REMOVED)
    with pytest.raises(ValueError, match="removed"):
        WriteBatch([b"x", b"y"], flags=[0, FLAG_REMOVED])


def test_inspection_counts_visible_and_compacted_records(place: Place) -> None:
    log = place.log()
    place.append(log, *[("a", bytes(100))] * 8)
    place.seal(log)
    log.apply_compaction()
    place.store.close()
    report = inspect_store(place.path, deep=True)
    assert report.exit_code == EXIT_CLEAN
    (found,) = report.logs
    assert (found.records, found.removed, found.bytes, found.end_offset) == (1, 7, 100, 8)
    assert [(one.records, one.removed) for one in found.segments] == [(0, 4), (1, 3)]

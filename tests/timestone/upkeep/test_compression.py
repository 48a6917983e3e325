"""Which segments are compressed, when, and with which dictionary; readers do not notice."""

import errno
import gc
import logging
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timestone
from tests.support.compressed import (
    damage_of,
    expected,
    fill,
    forget_tail,
    open_compressed,
    payload_of,
    read_all,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.waiting import wait_for, wait_for_seals
from timestone import CorruptRecord, LogConfig
from timestone.compressed.frame_table import walk
from timestone.disk.catalog import Catalog
from timestone.format import names
from timestone.log import Log
from timestone.recovery.segment_report import State
from timestone.recovery.segment_scan import examine
from timestone.repair.inspection import EXIT_CLEAN, EXIT_CORRUPT, inspect_store
from timestone.segment import Segment


def compressed(log: Log) -> list[bool]:
    return [bool(segment.trailer and segment.trailer.frames) for segment in log.segment_list.segments]


def dictionaries(log: Log) -> list[int]:
    trailers = [segment.trailer for segment in log.segment_list.segments]
    return [trailer.frames.dictionary if trailer and trailer.frames else 0 for trailer in trailers]


def frame_start(segment: Segment, number: int) -> int:
    """Where a frame begins in the file, from the frames' own tags."""
    data = segment.segment_path.read_bytes()
    trailer = segment.trailer
    assert trailer is not None
    table, _ = walk(
        lambda at, length: data[at : at + length],
        len(data),
        log_id=trailer.log_id,
        base_offset=trailer.base_offset,
    )
    return int(table.positions[number])


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_sealed_segments_are_compressed_and_the_growing_one_is_not(quick_directory: Path) -> None:
    with open_compressed(quick_directory / "store") as store:
        log = store.log("a")
        fill(log, 250)
        assert log.apply_compression() == 2
        assert compressed(log) == [True, True, False]
        assert log.apply_compression() == 0
        forget_tail(store)
        assert read_all(log) == expected(0, 250)
        store.deleted_files.unlink_due()
        log.roll()
    with open_compressed(quick_directory / "store") as store:
        assert store.recoveries == ()
        assert store.log("a").apply_compression() == 1
        assert read_all(store.log("a")) == expected(0, 250)
        assert damage_of(store, store.log("a")) == []


def test_compression_runs_in_the_background_and_is_off_by_default(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "store", min_free_bytes=0, log=LogConfig(segment_entries=50)) as store:
        log = store.log("a")
        fill(log, 101)
        assert log.apply_compression() == 0
        log.configure(compression="zstd")
        wait_for(lambda: compressed(log) == [True, True, False])
        fill(log, 50)
        wait_for(lambda: compressed(log) == [True, True, True, False])
        log.roll()
    with timestone.open(tmp_path / "store") as store:
        wait_for(lambda: all(compressed(store.log("a"))))
        assert read_all(store.log("a")) == expected(0, 151)


def test_settings_are_kept_in_the_catalogue(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "store") as store:
        store.log("a", config=LogConfig(compression="zstd", compression_level=7))  # type: ignore[arg-type]
    catalog = Catalog(tmp_path / "store" / names.CATALOG_NAME)
    config = catalog.logs()["a", 0].config
    catalog.close()
    assert (config.compression, config.compression_level) == (timestone.Compression.ZSTD, 7)


def test_segment_stays_raw_when_compression_saves_too_little(quick_directory: Path) -> None:
    rng = random.Random(1)
    with open_compressed(quick_directory / "store", segment_entries=4) as store:
        log = store.log("a")
        for _ in range(9):
            log.append(rng.randbytes(5000))
        wait_for_seals(log)
        before = sorted(path.name for path in log.folder.iterdir())
        assert log.apply_compression() == 0
        assert sorted(path.name for path in log.folder.iterdir()) == before


def test_segments_of_empty_records_are_not_compressed(quick_directory: Path) -> None:
    with open_compressed(quick_directory / "store", segment_entries=4) as store:
        log = store.log("a")
        for _ in range(9):
            log.append(b"")
        wait_for_seals(log)
        assert log.apply_compression() == 0


def test_compression_keeps_the_segment_and_retries_when_the_disk_is_full(quick_directory: Path) -> None:
    files = FaultyFiles()
    with open_compressed(quick_directory / "store", files) as store:
        log = store.log("a")
        fill(log, 101)
        before = sorted(path.name for path in log.folder.iterdir())
        fault = files.fail("pwrite", errno.ENOSPC, path=".1.segment", written_bytes=100)
        with pytest.raises(OSError, match="No space"):
            log.apply_compression()
        assert fault.hits == 1
        assert sorted(path.name for path in log.folder.iterdir()) == before
        assert log.apply_compression() == 1
        assert read_all(log) == expected(0, 101)


def test_compression_leaves_the_space_that_appends_need(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFiles()
    with open_compressed(quick_directory / "store", files) as store:
        log = store.log("a")
        fill(log, 101)
        monkeypatch.setattr(files, "free_bytes", lambda path: 100)
        with pytest.raises(OSError, match="rewriting needs"):
            log.apply_compression()
        assert compressed(log) == [False, False]


def test_damaged_segment_keeps_its_files(quick_directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_compressed(quick_directory / "store") as store:
        log = store.log("a")
        fill(log, 201)
        flip(log.segment_list.segments[0].segment_path, 500)
        with caplog.at_level(logging.ERROR):
            assert log.apply_compression() == 1
        assert compressed(log) == [False, True, False]
        assert "stays as it is: offset" in caplog.text
        assert log.apply_compression() == 0


def test_compression_leaves_no_files_when_the_store_is_closed_during_it(quick_directory: Path) -> None:
    root = quick_directory / "store"
    with open_compressed(root) as store:
        log = store.log("a")
        fill(log, 101)
        before = {path.name for path in log.folder.iterdir()}
        assert log.compression.run() is not None
        assert log.compression.run() is not None
        assert len({path.name for path in log.folder.iterdir()} - before) == 1
    assert {path.name for path in (root / "a-0").iterdir()} == before


def test_retention_counts_compressed_bytes(quick_directory: Path) -> None:
    with open_compressed(quick_directory / "store") as store:
        log = store.log("a")
        fill(log, 401)
        raw = sum(segment.trailer.segment_bytes for segment in log.segment_list.segments if segment.trailer)
        log.apply_compression()
        log.configure(retention_bytes=raw)
        assert log.apply_retention() == 0, "raw it would be more than that, stored it is less"
        log.configure(retention_bytes=1)
        assert log.apply_retention() == 4
        store.deleted_files.unlink_due()
        assert list(log.folder.glob("*.1.segment*")) == []


def test_decoded_frames_are_counted_in_the_memory_budget(quick_directory: Path) -> None:
    with open_compressed(quick_directory / "store") as store:
        fill(store.log("a"), 101)
        store.log("a").apply_compression()
    with open_compressed(quick_directory / "store") as store:
        assert store.tail_budget.used_bytes == 0
        store.log("a").record(51)
        trailer = store.log("a").segment_list.segments[0].trailer
        assert trailer is not None
        assert store.tail_budget.used_bytes == trailer.segment_bytes, "one frame, which is all of it"


def test_unreadable_segment_does_not_stop_compression_of_others(quick_directory: Path) -> None:
    files = FaultyFiles()
    with open_compressed(quick_directory / "store", files) as store:
        log = store.log("a")
        fill(log, 201)
        fault = files.fail("pread", errno.EIO, path=f"{0:020d}.segment", forever=True)
        assert log.apply_compression() == 1
        assert fault.hits
        assert compressed(log) == [False, True, False]


def test_close_does_not_wait_for_pending_compression(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_compressed(quick_directory / "store") as store:
        log = store.log("a")
        fill(log, 501)
        replace, replaced = log.rewrites.replace, threading.Event()

        def replace_and_wait(*what: Any) -> bool:
            """The thread that closes comes after the first segment, however slow it is."""
            found = replace(*what)
            replaced.set()
            wait_for(lambda: log.compression._passes._closed)
            return found

        monkeypatch.setattr(log.rewrites, "replace", replace_and_wait)
        worker = threading.Thread(target=log.apply_compression)
        worker.start()
        assert replaced.wait(60)
        log.compression.close()
        worker.join(60)
        assert not worker.is_alive()
        assert compressed(log) == [True, *[False] * 5]
        assert log.apply_compression() == 0


# Dictionaries.


def test_dictionary_is_trained_when_there_is_enough_and_used_where_it_helps(quick_directory: Path) -> None:
    root = quick_directory / "store"
    with open_compressed(root, segment_entries=40, compression_dictionary=True) as store:
        log = store.log("a")
        fill(log, 40 * 12 + 1)
        assert log.apply_compression() == 12
        assert dictionaries(log).count(1) > 6, "where it helps"
        assert (log.folder / "1.dictionary").exists()
        stored = sum(segment.trailer.stored_bytes for segment in log.segment_list.segments if segment.trailer)
    with open_compressed(root, compression_dictionary=False) as store:
        forget_tail(store)
        assert read_all(store.log("a")) == expected(0, 481), "read long after the setting has changed"
    other = quick_directory / "other"
    with open_compressed(other, segment_entries=40) as store:
        log = store.log("a")
        fill(log, 481)
        log.apply_compression()
        plain = sum(segment.trailer.stored_bytes for segment in log.segment_list.segments if segment.trailer)
    assert stored < plain


def test_next_dictionary_is_trained_after_many_segments_and_the_old_one_stays(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timestone.upkeep.compression._DICTIONARY_SEGMENTS", 6)
    with open_compressed(quick_directory / "store", segment_entries=40, compression_dictionary=True) as store:
        log = store.log("a")
        fill(log, 40 * 10 + 1)
        log.apply_compression()
        assert dictionaries(log) == [1] * 6 + [2] * 4 + [0]
        forget_tail(store)
        assert read_all(log) == expected(0, 401)


def test_too_little_data_is_compressed_without_a_dictionary(quick_directory: Path) -> None:
    with open_compressed(quick_directory / "store", segment_entries=20, compression_dictionary=True) as store:
        log = store.log("a")
        for offset in range(21):
            log.append(payload_of(1 + offset % 4))
        wait_for_seals(log)
        assert log.apply_compression() == 1
        assert dictionaries(log) == [0, 0]
        assert not list(log.folder.glob("*.dictionary"))


def test_reads_of_a_segment_name_its_missing_dictionary(quick_directory: Path) -> None:
    root = quick_directory / "store"
    with open_compressed(root, segment_entries=40, compression_dictionary=True) as store:
        fill(store.log("a"), 481)
        store.log("a").apply_compression()
        number = dictionaries(store.log("a")).index(1)
        segment = store.log("a").segment_list.segments[number]
    (root / "a-0" / "1.dictionary").unlink()
    with timestone.view(root) as view:
        with pytest.raises(CorruptRecord, match="its dictionary is missing or damaged"):
            view.log("a").read(segment.base_offset + 1)
        assert view.log("a").record(480).payload == payload_of(480), "which is not in a compressed segment"
    report = inspect_store(root, deep=True)
    assert report.exit_code == EXIT_CORRUPT
    assert "1.dictionary is missing" in report.logs[0].segments[number].reason


# Damage.


@pytest.mark.slow
def test_damage_to_one_frame_costs_the_records_in_it_and_no_other(quick_directory: Path) -> None:
    root = quick_directory / "store"
    with open_compressed(root, segment_entries=4000) as store:
        log = store.log("a")
        fill(log, 4001, batch=500)
        log.apply_compression()
        segment = log.segment_list.segments[0]
        path, start = segment.segment_path, frame_start(segment, 1)
        entries = segment.read_entries(0, 4000)
        ends = entries["position"].astype(int) + entries["length"]
        touched = set(((ends > 262144) & (entries["position"] < 2 * 262144)).nonzero()[0].tolist())
    flip(path, start + 60 + 9)  # early in the frame, so that little of it comes out
    with timestone.view(root) as view:
        other = view.log("a")
        found = read_all(other)
        lost = set(range(4001)) - set(found)
        assert lost
        assert lost <= touched
        assert found == {offset: payload_of(offset) for offset in found}
        with pytest.raises(
            CorruptRecord, match=r"\.1\.segment: .*frame 1 of the file: its bytes do not match"
        ):
            other.record(min(lost))
    report = inspect_store(root, deep=True)
    assert report.exit_code == EXIT_CORRUPT
    assert set(report.logs[0].segments[0].damaged_offsets) == lost
    with open_compressed(root) as store:
        found_damage = damage_of(store, store.log("a"))
        assert {offset for one in found_damage for offset in range(one.first, one.end)} == lost


def test_deep_inspection_and_scrubber_find_every_flipped_bit_of_a_compressed_file(
    quick_directory: Path,
) -> None:
    root = quick_directory / "store"
    with open_compressed(root, segment_entries=30) as store:
        fill(store.log("a"), 30)
        store.log("a").roll()
        fill(store.log("a"), 1)
        assert store.log("a").apply_compression() == 1
        path = store.log("a").segment_list.segments[0].segment_path
        size = path.stat().st_size
        assert inspect_store(root, deep=True).logs[0].segments[0].state == "sealed"
        whole = path.read_bytes()
        in_tag, in_table = range(3, 480, 19), range(size * 8 - 240, size * 8, 13)
        for bit in (*in_tag, *range(480, 560), *range(560, size * 8, 311), *in_table):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            found = examine(store.files, path.parent, 0, store.log("a").id, deep=True)
            assert found.state is State.DAMAGED, bit
            assert found.reason
            if bit % 7 == 0:
                assert damage_of(store, store.log("a")) != [], bit
        path.write_bytes(whole)
        assert inspect_store(root, deep=True).exit_code != EXIT_CORRUPT
        assert damage_of(store, store.log("a")) == []


def test_damaged_trailer_is_rebuilt_from_the_frames(quick_directory: Path) -> None:
    root = quick_directory / "store"
    with open_compressed(root, segment_entries=40, compression_dictionary=True) as store:
        fill(store.log("a"), 481)
        store.log("a").apply_compression()
        before = store.log("a").segment_list.segments[3].trailer
    assert before is not None
    flip(names.index_path(root / "a-0", before.base_offset), before.file_bytes - 30)
    for _ in range(2):
        with open_compressed(root) as store:
            forget_tail(store)
            assert read_all(store.log("a")) == expected(0, 481)
            after = store.log("a").segment_list.segments[3].trailer
            assert after is not None
            assert after.recovered
            assert (after.frames, after.generation) == (before.frames, before.generation)
            assert (after.stored_bytes, after.segment_bytes) == (before.stored_bytes, before.segment_bytes)
    assert inspect_store(root, deep=True).exit_code == EXIT_CLEAN


def test_first_tag_and_trailer_may_both_be_damaged(quick_directory: Path) -> None:
    """A file that no longer begins like a compressed one was once taken for a raw one, all of whose records are
    damaged."""
    root = quick_directory / "store"
    with open_compressed(root, segment_entries=4000) as store:
        fill(store.log("a"), 4001, batch=500)
        store.log("a").apply_compression()
        segment = store.log("a").segment_list.segments[0]
    assert segment.trailer is not None
    flip(segment.segment_path, 20)
    flip(segment.index_path, segment.trailer.file_bytes - 30)
    with open_compressed(root) as store:
        forget_tail(store)
        assert read_all(store.log("a")) == expected(0, 4001), "the table finds what the tag does not name"


# No difference can be observed.


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same records twice, raw and compressed."""
    roots = []
    for name, how in (("raw", {"compression": "none"}), ("zstd", {"compression_dictionary": True})):
        roots.append(tmp_path_factory.mktemp(name) / "store")
        with open_compressed(roots[-1], segment_entries=700, **how) as store:
            fill(store.log("a"), 3000, batch=100)
            store.log("a").apply_compression()
            assert any(compressed(store.log("a"))) == (name == "zstd")
    with timestone.view(roots[0]) as raw, timestone.view(roots[1]) as zstd:
        yield raw.log("a"), zstd.log("a")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_raw_and_compressed_give_the_same_reads(twins: tuple[Any, Any], data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, 3000))
    max_records = data.draw(st.integers(1, 1500))
    max_bytes = data.draw(st.sampled_from([0, 100, 5000, 1 << 18, 1 << 20]))
    topics = data.draw(st.sampled_from([None, ["t/1"], ["t/+"], ["t/0", "t/2"], ["other"]]))
    seen = []
    for log in twins:
        reader = log.reader(offset, topics=topics)
        batch = reader.read(max_records=max_records, max_bytes=max_bytes)
        seen.append([(one.offset, one.topic, one.payload) for one in batch] + [reader.offset])
    assert seen[0] == seen[1]


def test_compressed_segments_that_are_not_read_any_more_are_closed_at_once(tmp_path: Path) -> None:
    """Each referred to itself, so its descriptors stayed until garbage collection, regardless of the limit."""
    config = LogConfig(segment_entries=20, compression="zstd")  # type: ignore[arg-type]
    with timestone.open(
        tmp_path / "store", min_free_bytes=0, tail_bytes=0, open_segment_count=2, log=config
    ) as store:
        store.maintenance.stop()
        log = store.log("a")
        for number in range(200):
            log.append(b"%d" % number * 50, ack="written")
        log.roll()
        wait_for_seals(log)
        assert log.apply_compression() == 10
        gc.disable()
        try:
            before = len(os.listdir("/proc/self/fd"))
            assert [len(log.record(offset).payload) for offset in range(0, 200, 20)]
            assert len(os.listdir("/proc/self/fd")) <= before + 2 * 2, "a segment, and the map of its index"
        finally:
            gc.enable()

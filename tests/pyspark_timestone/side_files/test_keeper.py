"""The keeper of side files writes missing ones and removes unused ones, at any state of the owner."""

import errno
import os
import random
import signal
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import timestone
from pyspark_timestone.errors import SideFilesBusy
from pyspark_timestone.side_files.keeper import SideFileKeeper, SideFilePass
from pyspark_timestone.side_files.listing import side_files_within
from tests.support.access import check_modes
from tests.support.stores import LOG, drop_first_segment, fill
from tests.support.waiting import wait_for_seals
from timestone import LogConfig
from timestone.errors import NotAStore


def look(store: Path, **settings: float) -> SideFilePass:
    with SideFileKeeper(store, **settings) as keeper:  # type: ignore[arg-type]
        return keeper.run()


def files(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "parquet" / "telemetry-0").iterdir())


def offsets_in_side_files(store: Path) -> list[int]:
    """Also checks that each record is the one of the log."""
    with timestone.view(store) as view:
        log = view.log(LOG)
        found = list(side_files_within(store, log, 0, log.end_offset))
        for segment, path in found:
            rows = pq.read_table(path, columns=["offset", "value"]).to_pylist()
            records = log.read(segment.base_offset, max_records=segment.entry_count, max_bytes=1 << 30)
            assert [(row["offset"], row["value"]) for row in rows] == list(
                zip(records.offsets.tolist(), records.payloads(), strict=True)
            )
    return [offset for segment, _ in found for offset in range(segment.base_offset, segment.end_offset)]


def test_each_sealed_segment_gets_its_file_once(tmp_path: Path) -> None:
    fill(tmp_path, 2500)
    assert look(tmp_path) == SideFilePass(written=3, there=0, removed=0, left_out=0)
    before = {path: path.stat().st_ino for path in (tmp_path / "parquet").rglob("*.parquet")}
    fill(tmp_path, 1000)
    assert look(tmp_path) == SideFilePass(written=1, there=3, removed=0, left_out=0)
    assert {path: path.stat().st_ino for path in before} == before
    assert offsets_in_side_files(tmp_path) == list(range(3500))


def test_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill(store, 2500)
    look(store)
    drop_first_segment(store)
    look(store)
    assert any(name.endswith(".unneeded") for name in files(store))
    check_modes(store)


def test_log_that_is_deleted_meanwhile_is_passed_over_and_its_files_go_later(tmp_path: Path) -> None:
    fill(tmp_path, 2500)
    with timestone.open(tmp_path, delete_delay_ms=0) as store, SideFileKeeper(tmp_path, keep_s=0) as keeper:
        store.log("other").append(b"x")
        delete = [store.delete_log]
        keeper.run(written=lambda segment, path: delete.pop()(LOG) if delete else None)
        keeper.run()
        keeper.run()
    assert not list((tmp_path / "parquet").rglob("*.parquet"))


def test_what_a_killed_keeper_has_left_of_a_deleted_log_is_cleared_away(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    unfinished = tmp_path / "parquet" / "gone-0" / "00000000000000000000-00000000.parquet.tmp"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_text("half")
    with SideFileKeeper(tmp_path) as keeper:
        keeper.run()
    assert not unfinished.exists()


def test_files_of_deleted_segments_go_after_a_while(tmp_path: Path) -> None:
    fill(tmp_path, 3000)
    look(tmp_path)
    first, *others = files(tmp_path)
    drop_first_segment(tmp_path)
    assert look(tmp_path).removed == 0
    assert files(tmp_path) == [first, f"{first}.unneeded", *others]
    assert look(tmp_path).removed == 0, "still young"
    assert look(tmp_path, keep_s=0).removed == 1
    assert files(tmp_path) == others


def test_a_file_that_is_needed_again_stays(tmp_path: Path) -> None:
    fill(tmp_path, 2000)
    look(tmp_path)
    aside = tmp_path / "aside"
    aside.mkdir()
    moved = [path.rename(aside / path.name) for path in (tmp_path / "telemetry-0").glob("0*0000.*")]
    look(tmp_path)
    assert len(files(tmp_path)) == 2 + len(moved) // 2
    for path in moved:
        path.rename(tmp_path / "telemetry-0" / path.name)
    assert look(tmp_path, keep_s=0) == SideFilePass(written=0, there=2, removed=0, left_out=0)
    assert len(files(tmp_path)) == 2


def test_a_log_made_again_under_its_name_gets_new_files(tmp_path: Path) -> None:
    fill(tmp_path, 2000)
    look(tmp_path)
    old = files(tmp_path)
    for path in (tmp_path / "telemetry-0").iterdir():
        path.unlink()
    (tmp_path / "telemetry-0").rmdir()
    assert look(tmp_path, keep_s=0) == SideFilePass(written=0, there=0, removed=2, left_out=0)
    (tmp_path / "catalog.db").unlink()
    fill(tmp_path, 2000)
    assert look(tmp_path).written == 2
    assert not set(files(tmp_path)) & set(old)
    assert offsets_in_side_files(tmp_path) == list(range(2000))


def test_compaction_of_a_segment_makes_its_file_anew(tmp_path: Path) -> None:
    with timestone.open(tmp_path, min_free_bytes=0) as store:
        store.maintenance.stop()  # not yet
        log = store.log(LOG, config=LogConfig(segment_entries=100, compact=True))
        for number in range(300):
            log.append(b"%d" % number, topic=f"t/{number % 7}", ack="written")
        wait_for_seals(log)
    look(tmp_path)
    with timestone.open(tmp_path, min_free_bytes=0) as store:
        store.log(LOG).compaction.apply()
    assert look(tmp_path, keep_s=0).written > 0
    with timestone.view(tmp_path) as view:
        log_view = view.log(LOG)
        found = [path for _, path in side_files_within(tmp_path, log_view, 0, log_view.end_offset)]
        rows = [row["offset"] for path in found for row in pq.read_table(path).to_pylist()]
        shown = [record.offset for record in log_view.reader("earliest")]
    assert len(shown) < 300 and set(rows) <= set(shown)
    assert sorted(path.name for path in found) == files(tmp_path)


def test_a_damaged_file_is_written_again_and_a_damaged_segment_gets_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 3000)
    look(tmp_path)
    first, second, third = (tmp_path / "parquet" / "telemetry-0" / name for name in files(tmp_path))
    first.write_bytes(first.read_bytes()[:-3])
    second.unlink()
    segment = tmp_path / "telemetry-0" / "00000000000000001000.segment"
    segment.write_bytes(b"?" + segment.read_bytes()[1:])
    assert look(tmp_path) == SideFilePass(written=1, there=1, removed=0, left_out=1)
    assert files(tmp_path) == [first.name, third.name]
    assert "is written again" in caplog.text and "offset 1000" in caplog.text


def test_strangers_are_left_alone_and_leftovers_are_cleared_away(tmp_path: Path) -> None:
    fill(tmp_path, 1000)
    look(tmp_path)
    folder = tmp_path / "parquet" / "telemetry-0"
    (folder / "notes.txt").write_text("mine")
    (folder / f"{files(tmp_path)[0]}.tmp").write_text("half")
    look(tmp_path, keep_s=0)
    assert [name for name in files(tmp_path) if not name.endswith(".parquet")] == ["notes.txt"]
    with timestone.open(tmp_path) as store:
        assert store.log(LOG).end_offset == 1000


def test_there_is_one_keeper_and_it_needs_a_store_and_space(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        look(tmp_path / "nothing")
    fill(tmp_path, 1000)
    with SideFileKeeper(tmp_path), pytest.raises(SideFilesBusy, match="another process"):
        look(tmp_path)
    with pytest.raises(OSError, match="bytes free") as raised:
        look(tmp_path, min_free_bytes=2**62)
    assert raised.value.errno == errno.ENOSPC
    assert files(tmp_path) == []


@pytest.mark.slow
def test_a_keeper_that_is_killed_leaves_nothing_half(tmp_path: Path) -> None:
    fill(tmp_path, 20_000, segment_entries=2000)
    chance = random.Random(7)
    for _ in range(6):
        pid = os.fork()
        if pid == 0:
            try:
                for path in (tmp_path / "parquet").rglob("*-*.parquet"):
                    if chance.random() < 0.5:
                        path.unlink()
                look(tmp_path)
            finally:
                os._exit(0)
        time.sleep(chance.uniform(0.005, 0.08))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        there = offsets_in_side_files(tmp_path)
        assert len(set(there)) == len(there)
    look(tmp_path)
    assert offsets_in_side_files(tmp_path) == list(range(20_000))
    assert all(name.endswith(".parquet") for name in files(tmp_path))


def test_it_works_beside_an_owner_that_rolls_and_deletes(tmp_path: Path) -> None:
    config = LogConfig(segment_entries=50, retention_bytes=40_000)
    with timestone.open(tmp_path, delete_delay_ms=0, min_free_bytes=0) as store:
        log = store.log(LOG, config=config)
        log.append(b"first", ack="written")
        ended = threading.Event()

        def own() -> None:
            for number in range(4000):
                log.append(b"record %d" % number, topic="t", ack="written")
            ended.set()

        owner = threading.Thread(target=own)
        owner.start()
        with SideFileKeeper(tmp_path, keep_s=0, min_free_bytes=0) as keeper:
            while not ended.is_set():
                keeper.run()
            owner.join()
            wait_for_seals(log)
            log.retention.apply()
            keeper.run()
        there = offsets_in_side_files(tmp_path)
        assert there == list(range(log.start_offset, log.segment_list.segments[-1].base_offset))
        assert len(files(tmp_path)) == len(log.segment_list.segments) - 1
        assert log.start_offset > 0

"""Which records are saved, which are missing, and where the copy continues."""

import errno
import shutil
from pathlib import Path

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.step_clock import StepClock
from timestone import LogConfig
from timestone.disk.clock import Clock
from timestone.disk.files import Files
from timestone.format import names
from timestone.repair.log_salvager import LogSalvager, Salvaged
from timestone.writing.segment_writer import RESERVE_OFFSETS


def salvaged(store: Path, target: Path) -> Salvaged:
    target.mkdir()
    return LogSalvager(Files(), Clock(), store, target, ("a", 0), None, None).run()


def left_behind(store: timestone.Store, place: Path) -> Path:
    """The files as a kill -9 would leave them."""
    left = place / "left"
    shutil.copytree(store.path, left)
    return left


def test_records_written_again_after_a_failed_flush_are_saved_once(tmp_path: Path) -> None:
    files = FaultyFiles()
    with timestone.open(tmp_path / "a", files=files, ack="written") as store:
        log = store.log("a")
        log.append_many([b"1", b"2"], ack="synced")
        log.append(b"3")
        # So the segment that is cut stays unsealed, as after a kill.
        files.fail("truncate", errno.EIO, forever=True)
        files.fail("fdatasync", errno.EIO, path=".segment")
        log.append(b"4", ack="synced")
        assert log.epoch == 1
        left = left_behind(store, tmp_path)
    found = salvaged(left, tmp_path / "b")
    assert (found.report.records, found.report.saved, found.report.lost) == (4, ((0, 4),), ())
    assert found.epoch == 2
    with timestone.view(tmp_path / "b") as view:
        assert [record.payload for record in view.log("a").reader()] == [b"1", b"2", b"3", b"4"]
        assert view.log("a").segment_bounds() == [(0, 2), (2, 4)]


def test_salvaged_unclosed_log_continues_at_its_reserve_ceiling(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "a", ack="synced") as store:
        store.log("a").append(b"1")
        left = left_behind(store, tmp_path)
    found = salvaged(left, tmp_path / "b").report
    assert (found.records, found.end_offset) == (1, RESERVE_OFFSETS)


def test_salvaged_log_continues_behind_all_possible_offsets_of_a_lost_last_index(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "a", ack="synced") as store:
        log = store.log("a", config=LogConfig(segment_entries=2))
        for _ in range(5):
            log.append(b"1")
    names.index_path(tmp_path / "a" / "a-0", 4).unlink()
    found = salvaged(tmp_path / "a", tmp_path / "b").report
    assert found.saved == ((0, 4),)
    assert found.end_offset > LogConfig().segment_entries
    assert found.notes == ("segment 4 has no index: its 1 bytes cannot be separated into records",)


def test_torn_tail_is_distinguished_from_damage(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "a", ack="written", sync_interval_ms=10**9) as store:
        log = store.log("a")
        for number in range(10):
            log.append(b"%05d" % number)
            if number == 4:
                log.sync()
        left = left_behind(store, tmp_path)
    segment = names.segment_path(left / "a-0", 0)
    data = bytearray(segment.read_bytes())
    data[13] ^= 1
    data[38] ^= 1
    segment.write_bytes(data)
    found = salvaged(left, tmp_path / "b").report
    assert [(loss.first, loss.end, loss.reason) for loss in found.lost] == [
        (2, 3, "the bytes do not match their checksum"),
        (7, 8, "the bytes do not match their checksum; never acknowledged as synced"),
    ]
    assert found.saved == ((0, 2), (3, 7), (8, 10))


def test_salvage_of_a_salvage_loses_nothing_more(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "a", clock=StepClock()) as store:
        log = store.log("a", config=LogConfig(segment_entries=4))
        for number in range(12):
            log.append(b"%05d" % number)
    names.segment_path(tmp_path / "a" / "a-0", 4).write_bytes(b"00004xxxxx0000600007")
    first = salvaged(tmp_path / "a", tmp_path / "b").report
    assert first.saved == ((0, 5), (6, 12))
    second = salvaged(tmp_path / "b", tmp_path / "c").report
    assert (second.saved, second.lost) == (first.saved, ())


def test_salvaged_empty_log_continues_at_the_offset_of_the_catalogue(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "a", ack="written") as store:
        log = store.log("a")
        log.append(b"1")
        row = store.documents.logs()["a", 0]._replace(next_offset=50, epoch=3)
    for path in (tmp_path / "a" / "a-0").glob("0*"):
        path.unlink()
    (tmp_path / "b").mkdir()
    found = LogSalvager(Files(), Clock(), tmp_path / "a", tmp_path / "b", ("a", 0), row, None).run()
    assert (found.report.end_offset, found.report.records, found.epoch) == (50, 0, 3)

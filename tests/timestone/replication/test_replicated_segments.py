"""Segments of a replicated log: generations, committed offsets, cuts, and what a failed flush leaves."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.power_loss import Disk, Loss
from tests.support.recording_files import RecordingFiles, Unlinked
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import leading, payloads, recorded, replicated, ship, submitted
from timestone.errors import CorruptLog
from timestone.index import COMMITTED_POSITIONS, IndexHeader
from timestone.kernel.entries import HEADER_BYTES
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store


def indexes(folder: Path) -> list[str]:
    return [f"{int(path.stem)}" for path in sorted(folder.glob("telemetry-0/*.index"))]


def test_segment_has_records_of_one_generation(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        for generation in (1, 1, 4):
            log.lead(generation)
            submitted(log, b"a", b"b")
            log.follow()
        epochs = [(one.base_offset, one.epoch) for one in log.segment_list.segments]
        assert epochs == [(0, 1 << 32), (4, 4 << 32)]
    page = (tmp_path / "telemetry-0" / f"{4:020d}.index").read_bytes()
    assert IndexHeader.decode(page, tmp_path).is_replicated
    assert page[8] == 2


def test_committed_offset_is_found_when_the_newest_slot_is_damaged(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        submitted(log, b"a", b"b", b"c")
        for offset in (1, 2, 3):
            log.show(offset)
    path = tmp_path / "telemetry-0" / f"{0:020d}.index"
    page = bytearray(path.read_bytes())
    newest = max(COMMITTED_POSITIONS, key=lambda at: page[at])
    page[newest] ^= 1
    path.write_bytes(page)
    with replicated(tmp_path) as log:
        assert (log.end_offset, log.written_offset) == (2, 3)


def test_committed_offset_is_kept_when_no_segment_grows(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        submitted(log, b"a", b"b")
        log.roll()
        log.seal_rolled()
    with replicated(tmp_path) as log:
        assert log.end_offset == 0
        log.show(1)
    with replicated(tmp_path) as log:
        assert log.end_offset == 1


def test_cut_removes_whole_segments_and_shortens_one(tmp_path: Path) -> None:
    with Store(tmp_path, crash_config(segment_entries=4), log_type=ReplicatedLog) as store:
        log = leading(store, 14)
        assert indexes(tmp_path) == ["0", "4", "8", "12"]
        log.cut(6, 1)
        assert indexes(tmp_path) == ["0", "4"]
        log.show(6)
        assert payloads(log) == [b"%d" % number for number in range(6)]
        log.cut(6, 1)
        submitted(log, b"next")
        log.show(7)
        assert payloads(log)[-2:] == [b"5", b"next"]
        assert log.lost_offsets(0, 7) == []


def test_failed_flush_of_a_replica_keeps_the_generation(tmp_path: Path) -> None:
    files = FaultyFiles()
    with (
        replicated(tmp_path / "a") as one,
        Store(tmp_path / "b", crash_config(), files=files, log_type=ReplicatedLog) as store,
    ):
        two = store.log("telemetry")
        assert isinstance(two, ReplicatedLog)
        one.lead(3)
        submitted(one, b"a", b"b")
        ship(one, two, 3)
        submitted(one, b"c")
        found = one.read_stored(2, 3, max_bytes=100)
        two.append_replica(3, 2, found.entries, found.data, 1, [])
        files.fail("fdatasync")
        two.sync()
        assert two.epoch == (3 << 32) + 1
        submitted(one, b"d")
        ship(one, two, 3)
        two.show(4)
        assert payloads(two) == [b"a", b"b", b"c", b"d"]
        two.cut(4, 1)
    with replicated(tmp_path / "b") as two:
        assert [run.generation for run in two.generations()] == [3]


def test_failed_cut_leaves_the_log_usable(tmp_path: Path) -> None:
    files = FaultyFiles()
    with Store(tmp_path, crash_config(), files=files, log_type=ReplicatedLog) as store:
        log = leading(store)
        submitted(log, b"a", b"b", b"c")
        files.fail("rename")
        with pytest.raises(OSError):
            log.cut(1, 1)
        log.cut(1, 1)
        submitted(log, b"d")
        log.show(2)
        assert payloads(log) == [b"a", b"d"]


def test_replica_is_never_whole_again_when_recovery_did_not_know_its_generation(tmp_path: Path) -> None:
    """Without the generation of its last record a leader would take it for one that has the same records."""
    with replicated(tmp_path) as log:
        log.lead(7)
        submitted(log, b"a", b"b", b"c")
        log.show(2)
        assert log.is_whole
    path = tmp_path / "telemetry-0" / f"{0:020d}.index"
    page = bytearray(path.read_bytes())
    page[40] ^= 1
    path.write_bytes(page)
    for _ in range(2):
        with replicated(tmp_path) as log:
            assert (log.is_whole, log.end_offset, log.written_offset) == (False, 2, 3)
        assert IndexHeader.decode(path.read_bytes(), path).is_replicated
        assert timestone.view(tmp_path).log("telemetry").end_offset == 2
        with pytest.raises(CorruptLog, match="is a replica of a cluster"):
            timestone.open(tmp_path)


@pytest.mark.parametrize("lost", ["segment", "entries"])
def test_replica_is_never_whole_again_when_it_has_lost_durable_records_at_its_end(
    lost: str, tmp_path: Path
) -> None:
    with Store(tmp_path, crash_config(segment_entries=2), log_type=ReplicatedLog) as store:
        log = leading(store, 5)
        log.seal_rolled()
        log.show(5)
        assert log.is_whole
    path = tmp_path / "telemetry-0" / f"{4:020d}.{'segment' if lost == 'segment' else 'index'}"
    if lost == "entries":
        os.truncate(path, HEADER_BYTES)
    else:
        path.unlink()
    for _ in range(2):
        with replicated(tmp_path) as log:
            assert (log.is_whole, log.written_offset) == (False, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "remove",
    [lambda log: log.cut(5, 1), lambda log: log.reset(5), lambda log: log.reset(1000)],
    ids=["cut", "reset", "reset far ahead"],
)
def test_replica_stays_whole_when_a_power_loss_undoes_any_of_the_unlinks_of_a(
    remove: Callable[[ReplicatedLog], None], tmp_path: Path
) -> None:
    files = RecordingFiles(tmp_path / "a")
    store = recorded(tmp_path / "a", files)
    log = leading(store, 30)
    log.follow()
    before = len(files.operations)
    remove(log)
    operations = list(files.operations)
    store.close()
    disk, checked = Disk(files), 0
    for number, operation in enumerate(operations):
        disk.apply(number, operation)
        if number < before or not isinstance(operation, Unlinked):
            continue
        for seed in range(6):
            image = tmp_path / f"{number}-{seed}"
            disk.image(random.Random(seed), Loss.SECTORS).write(image)
            with replicated(image) as left:
                assert left.is_whole, (number, operation, seed)
            checked += 1
    assert checked >= 36


def test_scrubber_takes_a_committed_offset_for_no_damage(tmp_path: Path) -> None:
    with Store(tmp_path, crash_config(segment_entries=8), log_type=ReplicatedLog) as store:
        log = leading(store)
        for number in range(20):
            submitted(log, b"%d" % number)
            log.show(number + 1)
        store.sealer.settle()
        assert store.scrub() == []
        index = tmp_path / "telemetry-0" / "00000000000000000000.index"
        page = bytearray(index.read_bytes())
        page[COMMITTED_POSITIONS[0] + 100] = 1  # behind a slot
        index.write_bytes(page)
        assert "not empty where it should be" in f"{store.scrub()[0]}"

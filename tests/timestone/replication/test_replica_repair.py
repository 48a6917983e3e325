"""A damaged replica is repaired with the records of another one: each bit of each of its files."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.seeds import run_seed, told_on_failure
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import leading, payloads, ship, submitted
from timestone.errors import CorruptRecord
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store

COUNT = 20
"""Two full segments, and a third."""


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    with Store(path, crash_config(segment_entries=8), log_type=ReplicatedLog) as store:
        yield store


def log_of(store: Store) -> ReplicatedLog:
    log = store.log("telemetry")
    assert isinstance(log, ReplicatedLog)
    return log


@contextmanager
def pair(path: Path) -> Iterator[tuple[Store, Store]]:
    """Yield the stores of a leader and a follower with the same committed records of three topics, all sealed."""
    with opened(path / "a") as one, opened(path / "b") as two:
        source = leading(one)
        for number in range(COUNT):
            submitted(source, b"%d" % number * 9, topic=f"t{number // 8}")
        target = log_of(two)
        ship(source, target, 1)
        for log in (source, target):
            log.show(COUNT)
            log.roll()
        one.sealer.settle()
        two.sealer.settle()
        yield one, two


def repaired(source: ReplicatedLog, target: ReplicatedLog) -> None:
    """Repair all that is known to be damaged, a few records at a time."""
    repair = target.repair
    if (first := repair.lost_name) is not None:
        repair.restore_names(
            first, [source.topic_name(one) or "" for one in range(first, source.names_count)]
        )
    for base in repair.bases():
        segment = repair.wanted(base)
        assert segment is not None
        new = repair.begin(segment, 1)
        while new.next_offset < segment.end_offset:
            found = source.read_stored(new.next_offset, segment.end_offset, max_bytes=50)
            new.add(1, found.first, found.entries, found.data)
        repair.finish(new)
        new.close()


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def check_equal(source: ReplicatedLog, target: ReplicatedLog) -> None:
    assert target.is_whole and not target.repair.bases()
    assert payloads(target) == payloads(source)
    assert [one.topic for one in target] == [one.topic for one in source]
    assert [one.timestamp for one in target] == [one.timestamp for one in source]
    assert target.generations() == source.generations()


def test_damage_that_a_reader_finds_is_noted_once_and_repaired(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two):
        source, target = log_of(one), log_of(two)
        flip(target.folder / f"{8:020d}.segment", 7)
        target.tail_lost()  # or the record is read from memory
        assert len(target.read(0)) == 8
        (found,) = two.damage()
        assert (found.log, found.base_offset) == ("telemetry", 8)
        two.documents.put_many("scrub", {key: None for key in two.documents.items("scrub")})
        with pytest.raises(CorruptRecord):
            target.read(8)
        assert two.damage() == [], "noted once"
        target.repair.note(8, found.reason)
        repaired(source, target)
        check_equal(source, target)


def test_scrubbed_segment_is_written_again_and_stays_so(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two):
        source, target = log_of(one), log_of(two)
        files = sorted([*target.folder.glob("*.index"), *target.folder.glob("*.segment")])
        assert len(files) == 6
        for path in files:
            flip(path, 8 * 4100 if path.suffix == ".index" else 8 * 20)
            two.open_segments.clear()
        assert {found.base_offset for found in two.scrub()} == {0, 8, 16}
        repaired(source, target)
        assert two.scrub() == two.damage() == []
        check_equal(source, target)
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as two:
        assert two.recoveries == () and two.scrub() == []
        check_equal(log_of(one), log_of(two))
        log_of(two).reset(COUNT)  # removes the files of each generation
        left = {path.name for path in log_of(two).folder.iterdir()}
        assert left == {"topics"}


def test_any_bit_of_the_files_of_a_replica_is_repaired(tmp_path: Path, quick_directory: Path) -> None:
    seed = run_seed("repair")
    rng = random.Random(seed)
    for round_number in range(24):
        root = quick_directory / f"{round_number}"
        with pair(root):
            pass
        folder = root / "b" / "telemetry-0"
        files = sorted(path for path in folder.iterdir() if path.stat().st_size)
        path = files[round_number % len(files)]
        # The rest of a page is empty: half of the bits are those of the header and the slots.
        used = 68 if round_number // len(files) % 2 else path.stat().st_size
        bit = rng.randrange(8 * min(used, path.stat().st_size))
        flip(path, bit)
        with (
            told_on_failure(TIMESTONE_SEED=seed, round=round_number, file=path.name, bit=bit),
            opened(root / "a") as one,
            opened(root / "b") as two,
        ):
            source, target = log_of(one), log_of(two)
            for scan in (one for recovered in two.recoveries for one in recovered.scans):
                if scan.reason:
                    target.repair.note(scan.base_offset, scan.reason)
            two.scrub()
            repaired(source, target)
            assert two.scrub() == []
            check_equal(source, target)


def test_records_of_another_place_generation_or_content_are_refused(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two):
        source, target = log_of(one), log_of(two)
        target.repair.note(8, "as if")
        segment = target.repair.wanted(8)
        assert segment is not None
        with pytest.raises(ValueError, match="expected those of generation 1, got 2"):
            target.repair.begin(segment, 2)
        new = target.repair.begin(segment, 1)
        found = source.read_stored(0, 8, max_bytes=1 << 20)
        with pytest.raises(ValueError, match=r"in \[8, 16\), got 8 of generation 1 from 0 on"):
            new.add(1, found.first, found.entries, found.data)
        found = source.read_stored(8, 16, max_bytes=1 << 20)
        with pytest.raises(ValueError, match="generation 2 from 8 on"):
            new.add(2, found.first, found.entries, found.data)
        with pytest.raises(ValueError, match="do not match their checksums"):
            new.add(1, 8, found.entries, b"x" + found.data[1:])
        new.close()
        assert not list(target.folder.glob("*.1.segment")) and payloads(target) == payloads(source)


def test_segment_with_records_that_are_not_committed_waits(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as two:
        source, target = leading(one, 8), log_of(two)
        ship(source, target, 1)
        target.repair.note(0, "as if")
        with pytest.raises(ValueError, match="segment 0 is not sealed yet"):
            target.repair.wanted(0)
        two.sealer.settle()
        with pytest.raises(ValueError, match="not committed"):
            target.repair.wanted(0)
        target.show(8)
        assert target.repair.wanted(0) is not None


def test_names_that_contradict_the_own_ones_are_refused(tmp_path: Path) -> None:
    with pair(tmp_path):
        pass
    path = tmp_path / "b" / "telemetry-0" / "topics"
    flip(path, 8 * (path.stat().st_size - 9))  # of the second name
    with opened(tmp_path / "b") as two:
        repair = log_of(two).repair
        assert repair.lost_name == 1 and not log_of(two).is_whole
        for wrong in (["t1"], ["t1", "t3"], ["t0", "t2"], ["t2", "t2"]):
            with pytest.raises(ValueError, match="invalid topic names"):
                repair.restore_names(1, wrong)
        repair.restore_names(1, ["t1", "t2"])
        assert log_of(two).is_whole
    with opened(tmp_path / "b") as two:
        assert [one.topic for one in log_of(two)][7:9] == ["t0", "t1"]


def test_names_that_only_a_damaged_record_uses_are_restored_when_the_dictionary_is_lost(
    tmp_path: Path,
) -> None:
    with pair(tmp_path):
        pass
    folder = tmp_path / "b" / "telemetry-0"
    for name, left_bytes in (("topics", 0), (f"{16:020d}.index", 4096 + 32), (f"{16:020d}.segment", 11)):
        (folder / name).write_bytes((folder / name).read_bytes()[:left_bytes])
    with opened(tmp_path / "b") as two:
        log = log_of(two)
        assert (len(log.topics), log.names_count, log.repair.lost_name) == (3, 3, 0)
        log.repair.restore_names(0, ["t0", "t1", "t2"])
        assert (log.topics.names(), log.repair.lost_name) == (["t0", "t1", "t2"], None)


def test_compacted_log_and_segment_that_is_being_rewritten_are_left_alone(tmp_path: Path) -> None:
    with pair(tmp_path) as (_, two):
        target = log_of(two)
        target.repair.note(8, "as if")
        segment = target.repair.wanted(8)
        assert segment is not None
        with target.rewrites.claim(segment), pytest.raises(ValueError, match="8 is being rewritten"):
            target.repair.begin(segment, 1)
        target.configure(compact=True)
        with pytest.raises(ValueError, match="records of a compacted log are damaged"):
            target.repair.wanted(8)

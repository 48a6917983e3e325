"""A segment that is gone as a whole is told to whoever reads over it, by its offsets; what is meant to be missing is
not."""

import os
import shutil
from pathlib import Path

import pytest

import timestone
from tests.support.step_clock import BOOT_ID, NEXT_BOOT_ID, START_US, StepClock
from timestone import CorruptLog, Log, LogConfig, LogView, OffsetsLost, Reader
from timestone.config import Ack
from timestone.kernel.entries import ENTRY_BYTES, HEADER_BYTES
from timestone.repair.inspection import inspect_store

pytestmark = pytest.mark.crash

NAME = "telemetry"
SEGMENTS, EACH = 4, 10
COUNT = SEGMENTS * EACH


@pytest.fixture
def root(quick_directory: Path) -> Path:
    """Four sealed segments of ten records on two topics, and nothing else."""
    root = quick_directory / "store"
    with opened(root) as store:
        log = store.log(NAME, config=LogConfig(segment_entries=EACH))
        for number in range(COUNT):
            log.append(b"%d" % number, topic=f"devices/{number % 2}", ack="written")
    return root


def opened(root: Path, boot_id: bytes = BOOT_ID) -> timestone.Store:
    clock = StepClock(START_US + 10**9, boot_id)
    return timestone.open(root, min_free_bytes=0, scrub_bytes_per_s=0, clock=clock)


def file(root: Path, base: int, suffix: str) -> Path:
    return root / f"{NAME}-0" / f"{base:020d}.{suffix}"


def read_over(reader: Reader) -> tuple[list[int], list[tuple[int, int]]]:
    """The offsets read, and those that were told to be lost; continues behind them as the documentation says."""
    read: list[int] = []
    told: list[tuple[int, int]] = []
    told_so: list[bool] = []
    while not reader.caught_up:
        try:
            read += [record.offset for record in reader.read()]
        except OffsetsLost as error:
            told.append((error.offset, error.next_offset))
            lost = f"{NAME}-0: offsets {error.offset} to {error.next_offset - 1} are lost"
            told_so.append(lost in str(error))
            reader.seek(error.next_offset)
    assert all(told_so), "the error names the log and the offsets"
    return read, told


def check(log: Log | LogView, lost: list[tuple[int, int]], topics: list[str] | None = None) -> None:
    read, told = read_over(log.reader("earliest", topics=topics))
    assert told == lost
    missing = {offset for first, end in lost for offset in range(first, end)}
    step = 2 if topics else 1
    assert read == [offset for offset in range(0, COUNT, step) if offset not in missing]
    assert log.lost_offsets(0, log.end_offset) == lost


DAMAGES = {"index": ("index",), "segment file": ("segment",), "both": ("index", "segment")}


def lose(root: Path, base: int, what: str) -> None:
    for suffix in DAMAGES[what]:
        file(root, base, suffix).unlink()


@pytest.mark.parametrize("what", DAMAGES)
def test_segment_lost_in_the_middle_is_told_once_to_every_reader(root: Path, what: str) -> None:
    """Recovery put the rest of it aside, `inspect` said so, and readers continued behind it as if nothing had been."""
    lost = [(20, 30)]
    lose(root, 20, what)
    if what != "segment file":  # a reader finds that it is missing, and says so with its name
        with timestone.view(root) as before:
            check(before.log(NAME), lost)
    for _ in range(2):
        with opened(root) as store:
            for topics in (None, ["devices/0"]):
                check(store.log(NAME), lost, topics)
            with pytest.raises(OffsetsLost):
                store.log(NAME).record(25)
        with timestone.view(root) as after:
            check(after.log(NAME), lost, ["devices/0"])


@pytest.mark.parametrize("left_bytes", [0, HEADER_BYTES, HEADER_BYTES + ENTRY_BYTES - 1])
def test_index_without_entries_is_told_to_who_begins_there_and_to_who_filters(
    root: Path, left_bytes: int
) -> None:
    """Without an owner who has put it aside, its name stands in the list of segments."""
    os.truncate(file(root, 20, "index"), left_bytes)
    with timestone.view(root) as view:
        log = view.log(NAME)
        for topics in (None, ["devices/0"]):
            check(log, [(20, 30)], topics)
        for start in (20, 23):
            assert read_over(log.reader(start)) == (list(range(30, COUNT)), [(start, 30)])


def test_who_steps_behind_the_first_lost_offset_is_told_once(root: Path) -> None:
    """The loss of a last segment is told with the jump behind it, 134 million offsets: a program that seeks to
    `error.offset + 1`, as one does behind a damaged record, was told of each of them."""
    lose(root, 30, "index")
    with opened(root) as store:
        reader = store.log(NAME).reader(30)
        with pytest.raises(OffsetsLost):
            reader.read()
        with pytest.raises(OffsetsLost) as told:  # who does not step at all is told again
            reader.read()
        reader.seek(told.value.offset + 1)
        assert not reader.read()
        assert reader.caught_up


def test_neighbours_that_are_lost_are_told_together(root: Path) -> None:
    for base in (10, 20):
        file(root, base, "index").unlink()
    with opened(root) as store:
        check(store.log(NAME), [(10, 30)])


@pytest.mark.parametrize("what", ["index", "segment file"])
def test_loss_of_the_last_segment_is_told_also_behind_the_jump(root: Path, what: str) -> None:
    """What the offsets jump over is told with it: nobody knows any more how many of them there were."""
    lose(root, 30, what)
    with opened(root) as store:
        log = store.log(NAME)
        end = log.end_offset
        assert read_over(log.reader("earliest")) == ([*range(30)], [(30, end)])
        assert log.append(b"next") == end
        assert read_over(log.reader("earliest")) == ([*range(30), end], [(30, end)])
    with timestone.view(root) as view:
        assert read_over(view.log(NAME).reader("earliest")) == ([*range(30), end], [(30, end)])


def test_last_segment_that_is_gone_with_its_index_is_told_by_what_the_catalogue_knows(root: Path) -> None:
    """`inspect` called the store clean, and readers passed over its offsets in silence until the next append."""
    lose(root, 30, "both")
    (report,) = inspect_store(root).logs
    assert report.missing == ((30, COUNT),)
    with pytest.raises(CorruptLog, match="offsets 30 to 39"):
        timestone.open(root, recovery="strict")
    for number in range(2):
        with opened(root) as store:
            assert bool(store.recoveries) is (number == 0), "noted once"
            check(store.log(NAME), [(30, COUNT)])
            assert store.log(NAME).end_offset == COUNT
    with opened(root) as store:
        assert store.log(NAME).append(b"next") == COUNT
        assert store.log(NAME).lost_offsets(0, COUNT + 1) == [(30, COUNT)]


def test_records_that_were_never_durable_and_are_gone_are_no_loss(root: Path, quick_directory: Path) -> None:
    """The catalogue has noted an end that a power loss took back: changed settings write it down."""
    left = quick_directory / "left"
    with opened(root) as store:
        log = store.log(NAME)
        shutil.copytree(root, left)
        log.append(b"not synced", ack=Ack.WRITTEN)
        log.configure(retention_bytes=1 << 30)
        shutil.copy(root / "catalog.db", left)
        for suffix in ("index", "segment"):
            shutil.copy(file(root, COUNT, suffix), file(left, COUNT, suffix))
    index = file(left, COUNT, "index")
    index.write_bytes(index.read_bytes()[:4096])
    with opened(left, NEXT_BOOT_ID) as store:
        log = store.log(NAME)
        assert log.append(b"behind the jump") > COUNT
        assert log.lost_offsets(0, log.end_offset) == []


@pytest.mark.parametrize(
    ("left_bytes", "lost_from"), [(0, 30), (4000, 30), (4096, 30), (4096 + 32 * 4 + 5, 34)]
)
def test_last_index_that_was_cut_costs_the_records_behind_the_cut_and_says_which(
    root: Path, left_bytes: int, lost_from: int
) -> None:
    """It was put aside or cut as if a power loss had torn it, and the log continued behind the jump without a word."""
    index = file(root, 30, "index")
    index.write_bytes(index.read_bytes()[:left_bytes])
    with opened(root) as store:
        log = store.log(NAME)
        read, told = read_over(log.reader("earliest"))
        assert read == [*range(lost_from)]
        assert [first for first, _ in told] == [lost_from]
        assert told[0][1] >= COUNT


def test_two_damaged_indexes_at_the_end_are_both_told(root: Path) -> None:
    """The last segment, its index emptied, was taken for one behind a torn tail, because the index in front of it was
    cut: never durable, so nobody was told of it."""
    index = file(root, 20, "index")
    index.write_bytes(index.read_bytes()[: 4096 + 32])
    file(root, 30, "index").write_bytes(b"")
    with opened(root) as store:
        log = store.log(NAME)
        assert read_over(log.reader("earliest")) == ([*range(21)], [(21, 30), (30, log.end_offset)])


def test_record_that_is_damaged_too_does_not_hide_what_is_lost_in_front_of_it(root: Path) -> None:
    """The error of the first record behind the gap came first, and who stepped over that one was told nothing."""
    file(root, 10, "index").unlink()
    segment = file(root, 20, "segment")
    segment.write_bytes(bytes(1) + segment.read_bytes()[1:])
    with opened(root) as store:
        reader = store.log(NAME).reader(10)
        with pytest.raises(OffsetsLost) as lost:
            reader.read()
        reader.seek(lost.value.next_offset)
        with pytest.raises(timestone.CorruptRecord, match="offset 20"):
            reader.read()


def test_loss_of_the_first_segment_moves_the_start(root: Path) -> None:
    file(root, 0, "index").unlink()
    with opened(root) as store:
        log = store.log(NAME)
        assert log.start_offset == 10
        with pytest.raises(timestone.OffsetOutOfRange):
            log.read(0)
        assert read_over(log.reader("earliest")) == ([*range(10, COUNT)], [])


def test_offsets_that_a_power_loss_has_left_out_are_no_loss(root: Path, quick_directory: Path) -> None:
    left = quick_directory / "left"
    with opened(root) as store:
        log = store.log(NAME)
        log.append(b"not synced", ack=Ack.WRITTEN)
        shutil.copytree(root, left)
    with opened(left, NEXT_BOOT_ID) as store:
        log = store.log(NAME)
        jumped = log.append(b"behind the jump")
        assert jumped > COUNT + 1
        assert read_over(log.reader("earliest")) == ([*range(COUNT + 1), jumped], [])
        assert log.lost_offsets(0, log.end_offset) == []


def test_records_that_compaction_has_removed_are_no_loss(root: Path) -> None:
    with opened(root) as store:
        log = store.log(NAME)
        log.configure(compact=True)
        assert log.apply_compaction() > 0
        read, told = read_over(log.reader("earliest"))
        assert len(read) < COUNT
        assert told == []
        assert log.lost_offsets(0, log.end_offset) == []


def test_loss_behind_removed_records_is_told(root: Path) -> None:
    with opened(root) as store:
        log = store.log(NAME)
        log.configure(compact=True)
        assert log.apply_compaction() > 0
    file(root, 20, "index").unlink()
    with opened(root) as store:
        assert read_over(store.log(NAME).reader("earliest"))[1] == [(20, 30)]

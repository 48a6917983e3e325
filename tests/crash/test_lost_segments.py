"""A completely lost segment is reported with its offsets to every reader that reaches it; intended gaps are not."""

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
    """A store with four sealed segments of ten records on two topics."""
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
    """Return the offsets read, and those reported as lost; continue behind them as the documentation says."""
    read: list[int] = []
    told: list[tuple[int, int]] = []
    told_so: list[bool] = []
    while not reader.caught_up:
        try:
            read += [record.offset for record in reader.read()]
        except OffsetsLost as error:
            told.append((error.offset, error.next_offset))
            lost = f": offsets {error.offset} to {error.next_offset - 1} are lost"
            told_so.append(lost in str(error) and f"{NAME}-0" in str(error))
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
def test_segment_lost_in_the_middle_is_reported_once_to_every_reader(root: Path, what: str) -> None:
    """Recovery put the rest of it aside, `inspect` reported it, and readers silently continued behind it."""
    lost = [(20, 30)]
    lose(root, 20, what)
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


@pytest.mark.timeout(20)
@pytest.mark.parametrize("topics", [None, ["devices/0"]], ids=["all", "filtered"])
@pytest.mark.parametrize("misnamed", [(10,), (10, 20), (20, 30), (10, 30), (30,)], ids=str)
def test_index_under_a_foreign_name_is_reported_by_a_view_with_both_offsets(
    root: Path, misnamed: tuple[int, ...], topics: list[str] | None
) -> None:
    """With two such files, a view removed one and restored the other with each listing of the folder, endlessly."""
    own = {base: file(root, base, "index").read_bytes() for base in range(0, COUNT, EACH)}
    for base in misnamed:
        file(root, base, "index").write_bytes(own[(base + EACH) % COUNT])
    with timestone.view(root) as view:
        log = view.log(NAME)
        read, told = read_over(log.reader("earliest", topics=topics))
        lost = {offset for first, end in told for offset in range(first, end)}
        assert lost == {offset for base in misnamed for offset in range(base, base + EACH)}
        step = 2 if topics else 1
        assert read == [offset for offset in range(0, COUNT, step) if offset not in lost]
        where = f"{misnamed[0]:020d}.index: the index is that of base offset"
        with pytest.raises(OffsetsLost, match=f"{where} {(misnamed[0] + EACH) % COUNT}, not {misnamed[0]}"):
            log.reader(misnamed[0], topics=topics).read()
        log.offset_at(START_US), log.segment_bounds(), log.segment_sizes()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("suffixes", [("index",), ("index", "segment")], ids=["index", "pair"])
def test_files_under_a_foreign_name_hide_no_records_of_the_surrounding_segment(
    root: Path, suffixes: tuple[str, ...]
) -> None:
    for suffix in suffixes:
        shutil.copy(file(root, 10, suffix), file(root, 25, suffix))
    with timestone.view(root) as view:
        check(view.log(NAME), [])
    with opened(root) as store:
        check(store.log(NAME), [])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("base", [0, 10, 30])
@pytest.mark.parametrize("left", [-1, 0, 3])
@pytest.mark.parametrize("owned", [True, False], ids=["owner", "view"])
def test_index_cut_under_an_open_store_costs_the_records_behind_the_cut(
    root: Path, base: int, left: int, owned: bool
) -> None:
    """The error named the first record behind the cut for every offset: a reader that continued at its `next_offset`
    met the same error endlessly, and a negative offset when not even the header page was left."""
    with opened(root) if owned else timestone.view(root) as store:
        log = store.log(NAME)
        os.truncate(file(root, base, "index"), max(0, HEADER_BYTES + left * ENTRY_BYTES))
        lost = (base + max(left, 0), base + EACH)
        assert read_over(log.reader("earliest", topics=["#"]))[1] == [lost]
        read, told = read_over(log.reader("earliest"))
        assert told == [lost]
        assert read == [offset for offset in range(COUNT) if not lost[0] <= offset < lost[1]]
        assert read_over(log.reader(base + 5))[1] == [(base + 5, base + EACH)]
        with pytest.raises(OffsetsLost):
            log.record(base + 5)


@pytest.mark.parametrize("left_bytes", [0, HEADER_BYTES, HEADER_BYTES + ENTRY_BYTES - 1])
def test_index_without_entries_is_reported_to_readers_that_begin_there_or_filter(
    root: Path, left_bytes: int
) -> None:
    """If no owner has put it aside, its name is still in the list of segments."""
    os.truncate(file(root, 20, "index"), left_bytes)
    with timestone.view(root) as view:
        log = view.log(NAME)
        for topics in (None, ["devices/0"]):
            check(log, [(20, 30)], topics)
        for start in (20, 23):
            assert read_over(log.reader(start)) == (list(range(30, COUNT)), [(start, 30)])


def test_reader_behind_the_first_lost_offset_gets_one_error(root: Path) -> None:
    """The loss of a last segment is reported with the jump behind it, 134 million offsets: a program that seeks to
    `error.offset + 1`, as after a damaged record, got an error for each of them."""
    lose(root, 30, "index")
    with opened(root) as store:
        reader = store.log(NAME).reader(30)
        with pytest.raises(OffsetsLost):
            reader.read()
        with pytest.raises(OffsetsLost) as told:  # a reader that does not move gets the error again
            reader.read()
        reader.seek(told.value.offset + 1)
        assert not reader.read()
        assert reader.caught_up


def test_neighbouring_lost_segments_are_reported_together(root: Path) -> None:
    for base in (10, 20):
        file(root, base, "index").unlink()
    with opened(root) as store:
        check(store.log(NAME), [(10, 30)])


@pytest.mark.parametrize("topics", [None, ["devices/0"]], ids=["all", "filtered"])
@pytest.mark.parametrize("index_bytes", [b"", bytes(3 * HEADER_BYTES)], ids=["empty", "zeros"])
@pytest.mark.parametrize("has_catalogue", [True, False])
def test_destroyed_index_of_the_last_segment_is_named_by_a_view_also_without_the_catalogue(
    root: Path, has_catalogue: bool, index_bytes: bytes, topics: list[str] | None
) -> None:
    """Without the end that the catalogue has, a view ended in front of these records and reported nothing."""
    file(root, 30, "index").write_bytes(index_bytes)
    if not has_catalogue:
        (root / "catalog.db").write_bytes(b"damaged")
    with timestone.view(root) as view:
        log = view.log(NAME)
        assert read_over(log.reader("earliest", topics=topics))[1] == [(30, COUNT if has_catalogue else 31)]
        with pytest.raises(
            OffsetsLost, match=r"30\.index: only 0 bytes of header|30\.index: header checksum does not match"
        ):
            log.reader(30, topics=topics).read()


def test_new_segment_without_records_is_no_loss(root: Path) -> None:
    with opened(root) as store:
        store.log(NAME).append(b"next")
        (root / "catalog.db").rename(root / "aside")
        index, bytes_file = (file(root, COUNT, suffix) for suffix in ("index", "segment"))
        for left in (bytes(HEADER_BYTES), b""):
            index.write_bytes(left)
            bytes_file.write_bytes(b"")
            with timestone.view(root) as view:
                assert (view.log(NAME).end_offset, view.log(NAME).lost_offsets(0, 99)) == (COUNT, [])
        (root / "aside").rename(root / "catalog.db")


@pytest.mark.parametrize("what", ["index", "segment file"])
def test_loss_of_the_last_segment_is_reported_also_behind_the_jump(root: Path, what: str) -> None:
    """The skipped offsets are reported with it: how many of them were assigned is no longer known."""
    lose(root, 30, what)
    with opened(root) as store:
        log = store.log(NAME)
        end = log.end_offset
        assert read_over(log.reader("earliest")) == ([*range(30)], [(30, end)])
        assert log.append(b"next") == end
        assert read_over(log.reader("earliest")) == ([*range(30), end], [(30, end)])
    with timestone.view(root) as view:
        assert read_over(view.log(NAME).reader("earliest")) == ([*range(30), end], [(30, end)])


def test_last_segment_missing_with_its_index_is_reported_from_the_catalogue(root: Path) -> None:
    """`inspect` reported the store as clean, and readers silently passed its offsets until the next append."""
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


def test_missing_records_that_were_never_durable_are_not_a_loss(root: Path, quick_directory: Path) -> None:
    """The catalogue has an end that a power loss took back: changed settings write it."""
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
def test_cut_last_index_costs_the_records_behind_the_cut_and_names_them(
    root: Path, left_bytes: int, lost_from: int
) -> None:
    """It was put aside or cut as if a power loss had torn it, and the log silently continued behind the jump."""
    index = file(root, 30, "index")
    index.write_bytes(index.read_bytes()[:left_bytes])
    with opened(root) as store:
        log = store.log(NAME)
        read, told = read_over(log.reader("earliest"))
        assert read == [*range(lost_from)]
        assert [first for first, _ in told] == [lost_from]
        assert told[0][1] >= COUNT


def test_two_damaged_indexes_at_the_end_are_both_reported(root: Path) -> None:
    """The last segment, its index emptied, counted as one behind a torn tail, because the index before it was cut:
    never durable, so its loss was not reported."""
    index = file(root, 20, "index")
    index.write_bytes(index.read_bytes()[: 4096 + 32])
    file(root, 30, "index").write_bytes(b"")
    with opened(root) as store:
        log = store.log(NAME)
        assert read_over(log.reader("earliest")) == ([*range(21)], [(21, 30), (30, log.end_offset)])


def test_damaged_record_does_not_hide_lost_records_before_it(root: Path) -> None:
    """The error of the first record behind the gap came first, and a reader that stepped over that record got no error
    for the gap."""
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


@pytest.mark.parametrize("topics", [None, ["devices/0"]], ids=["all", "filtered"])
@pytest.mark.parametrize("what", ["index", "segment file"])
@pytest.mark.parametrize("base", [0, 30], ids=["first", "last"])
def test_segment_lost_at_an_end_is_reported_before_and_after_recovery(
    root: Path, base: int, what: str, topics: list[str] | None
) -> None:
    """A view silently passed both ends, and so did the owner at the front: its log began behind."""
    lose(root, base, what)
    with timestone.view(root) as before:
        view = before.log(NAME)
        check(view, [(base, base + EACH)], topics)
        assert (view.start_offset, view.end_offset) == (0, COUNT)
        with pytest.raises(OffsetsLost):
            view.record(base + 5)
    (report,) = inspect_store(root).logs
    assert (report.start_offset, report.end_offset) == (0, COUNT)
    assert (base, base + EACH) in report.missing
    for _ in range(2):
        with opened(root) as store:
            log = store.log(NAME)
            end = COUNT if base == 0 else log.end_offset
            assert log.start_offset == 0
            assert log.lost_offsets(0, end) == [(base, base + EACH if base == 0 else end)]
            read, told = read_over(log.reader("earliest", topics=topics))
            assert told == log.lost_offsets(0, end)
            left = range(10, COUNT) if base == 0 else range(30)
            assert read == [offset for offset in left if not topics or offset % 2 == 0]
    (report,) = inspect_store(root).logs
    assert report.start_offset == 0
    assert [first for first, _ in report.missing] == [base]


@pytest.mark.parametrize("left_bytes", [0, HEADER_BYTES, HEADER_BYTES + 3 * ENTRY_BYTES])
@pytest.mark.parametrize("base", [0, 30], ids=["first", "last"])
def test_index_cut_at_an_end_is_reported_by_a_view(root: Path, base: int, left_bytes: int) -> None:
    os.truncate(file(root, base, "index"), left_bytes)
    kept = max(0, left_bytes - HEADER_BYTES) // ENTRY_BYTES
    with timestone.view(root) as view:
        check(view.log(NAME), [(base + kept, base + EACH)])
        assert view.log(NAME).offset_at(START_US) == 0


def test_last_segment_missing_with_its_index_is_reported_by_a_view(root: Path) -> None:
    """The catalogue has the end of the log, and only a loss explains the difference: the epoch is the same."""
    lose(root, 30, "both")
    with timestone.view(root) as view:
        check(view.log(NAME), [(30, COUNT)])


def test_loss_of_all_segments_is_reported(root: Path) -> None:
    for base in range(0, COUNT, EACH):
        lose(root, base, "index")
    with timestone.view(root) as view:
        assert read_over(view.log(NAME).reader("earliest")) == ([], [(0, COUNT)])
    for _ in range(2):
        with opened(root) as store:
            log = store.log(NAME)
            read, told = read_over(log.reader("earliest"))
            assert (read, told[0][0], told[-1][1]) == ([], 0, log.end_offset)


def test_reader_by_time_begins_with_lost_records_that_may_match(root: Path) -> None:
    with timestone.view(root) as view:
        times = [view.log(NAME).record(offset).timestamp_us for offset in range(COUNT)]
    for base in (0, 20, 30):
        lose(root, base, "index")
    with timestone.view(root) as view:
        log = view.log(NAME)
        assert [log.offset_at(times[offset]) for offset in (0, 5, 10, 19, 20, 25, 35)] == [
            0,
            0,
            0,
            19,
            20,
            20,
            20,
        ]


def test_retention_behind_a_lost_segment_ends_the_loss(root: Path) -> None:
    """The start never decreases, and a log that retention keeps short does not report a loss permanently."""
    lose(root, 0, "index")
    os.truncate(file(root, 10, "index"), HEADER_BYTES + 5 * ENTRY_BYTES)
    with opened(root) as store:
        log = store.log(NAME)
        assert log.lost_offsets(0, COUNT) == [(0, 10), (15, 20)]
        log.configure(retention_bytes=1)
        assert log.apply_retention() == 2
        assert log.start_offset == 30
        with timestone.view(root) as view:
            assert (view.log(NAME).start_offset, view.log(NAME).lost_offsets(0, COUNT)) == (30, [])
    for _ in range(2):
        with opened(root) as store:
            assert (store.log(NAME).start_offset, store.log(NAME).lost_offsets(0, COUNT)) == (30, [])


def test_offsets_left_out_by_a_power_loss_are_not_a_loss(root: Path, quick_directory: Path) -> None:
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


def test_records_removed_by_compaction_are_not_a_loss(root: Path) -> None:
    with opened(root) as store:
        log = store.log(NAME)
        log.configure(compact=True)
        assert log.apply_compaction() > 0
        read, told = read_over(log.reader("earliest"))
        assert len(read) < COUNT
        assert told == []
        assert log.lost_offsets(0, log.end_offset) == []


def test_loss_behind_removed_records_is_reported(root: Path) -> None:
    with opened(root) as store:
        log = store.log(NAME)
        log.configure(compact=True)
        assert log.apply_compaction() > 0
    file(root, 20, "index").unlink()
    with opened(root) as store:
        assert read_over(store.log(NAME).reader("earliest"))[1] == [(20, 30)]

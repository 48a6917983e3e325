"""Files that were cut, flipped, zeroed, swapped or mixed up: undamaged records are still read, and no others.

Exhaustive over bytes; over all eight bits of each as well with TIMESTONE_BITS=8.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.specimen import FOLDER, INDEX, SEGMENT, TOPICS, Change, Look, Specimen, make_specimen
from tests.support.step_clock import StepClock
from timestone.config import LogConfig
from timestone.index import SLOT_BYTES, SLOT_POSITIONS
from timestone.kernel.entries import ENTRY_BYTES, HEADER_BYTES
from timestone.record import encode_headers
from timestone.repair.salvage import salvage_store

pytestmark = pytest.mark.faults

BITS = rounds(1, "TIMESTONE_BITS")
"""Number of flipped bits of each byte, one at a time."""

KINDS: dict[str, dict[str, Any]] = {
    "sealed": {"closed": True},
    "unclosed, synced": {"closed": False},
    "unclosed, partly synced": {"closed": False, "unsynced": 3},
}


@pytest.fixture(scope="module", params=list(KINDS.values()), ids=list(KINDS))
def specimen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    return make_specimen(tmp_path_factory.mktemp("specimen") / "store", **request.param)


def check(specimen: Specimen, damaged: Specimen, root: Path, *, most_lost: int | None = None) -> Look:
    """Check that damage invents, alters and moves no record, loses no durable record behind a lost one, is reported,
    and reuses no offset."""
    found = damaged.look(root)
    for offset, record in found.records.items():
        assert record == specimen.records.get(offset), f"offset {offset} is not what was appended"
    missing = set(specimen.records) - set(found.records)
    assert found.told or not missing - found.corrupt, f"{missing} are lost without a word"
    for offset in missing:
        if offset >= specimen.durable:
            assert not [later for later in found.records if later > offset], (
                f"records behind {offset}, a torn one"
            )
    if most_lost is not None:
        assert len([offset for offset in missing if offset < specimen.durable]) <= most_lost, (
            f"{missing} are lost"
        )
    assert found.next_offset >= specimen.durable, "an offset is given out a second time"
    return found


def flips(size: int, ranges: list[tuple[int, int]], seed: int) -> Iterator[tuple[int, Change]]:
    """Yield each byte of some ranges with one of its bits flipped, with several in turn in a soak run."""
    rng = random.Random(seed)
    for start, end in ranges:
        for position in range(start, min(end, size)):
            for bit in rng.sample(range(8), BITS):
                yield position, lambda data, position=position, bit=bit: _flip(data, position, bit)  # type: ignore[misc]


def _flip(data: bytes, position: int, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[position] ^= 1 << bit
    return bytes(flipped)


@pytest.mark.timeout(600)
def test_flipped_bit_in_the_segment_costs_only_its_record(specimen: Specimen, quick_directory: Path) -> None:
    seed = run_seed("segment bits")
    size = len(specimen.files[SEGMENT])
    for position, change in flips(size, [(0, size)], seed):
        with told_on_failure(TIMESTONE_SEED=seed, position=position):
            found = check(specimen, specimen.changed(SEGMENT, change), quick_directory / "store", most_lost=1)
            assert len(found.records) < len(specimen.records), "it was noticed"


@pytest.mark.timeout(600)
def test_flipped_bit_in_the_index_costs_at_most_one_record(specimen: Specimen, quick_directory: Path) -> None:
    seed = run_seed("index bits")
    size = len(specimen.files[INDEX])
    used = HEADER_BYTES + (len(specimen.records) + 4) * ENTRY_BYTES
    ranges = [(0, 80), *((slot, slot + SLOT_BYTES + 4) for slot in SLOT_POSITIONS), (HEADER_BYTES, used)]
    ranges.append((max(used, size - 300), size))
    for position, change in flips(size, ranges, seed):
        with told_on_failure(TIMESTONE_SEED=seed, position=position):
            check(specimen, specimen.changed(INDEX, change), quick_directory / "store", most_lost=1)


@pytest.mark.timeout(600)
def test_flipped_bit_in_the_topic_dictionary_costs_at_most_one_name(
    specimen: Specimen, quick_directory: Path
) -> None:
    seed = run_seed("topic bits")
    size = len(specimen.files[TOPICS])
    for position, change in flips(size, [(0, 100), (500, size)], seed):
        with told_on_failure(TIMESTONE_SEED=seed, position=position):
            found = specimen.changed(TOPICS, change).look(quick_directory / "store")
            payloads = {offset: record.payload for offset, record in found.records.items()}
            assert payloads == {offset: specimen.records[offset].payload for offset in payloads}
            # A record that was never synced is accepted only with its topic name: names are flushed first.
            assert set(payloads) >= set(range(specimen.durable))
            wrong = [n for n, record in found.records.items() if record.topic != specimen.records[n].topic]
            assert {found.records[number].topic for number in wrong} <= {None}, (
                "a lost name never is another name"
            )
            assert len({specimen.records[number].topic for number in wrong}) <= 1
            assert found.told or not wrong


@pytest.mark.timeout(600)
def test_segment_cut_at_any_byte_keeps_the_records_before_the_cut(
    specimen: Specimen, quick_directory: Path
) -> None:
    ends = record_ends(specimen)
    for size in range(len(specimen.files[SEGMENT])):
        with told_on_failure(size=size):
            cut = specimen.changed(SEGMENT, lambda data, size=size: data[:size])  # type: ignore[misc]
            found = check(specimen, cut, quick_directory / "store")
            whole = {offset for offset, end in ends.items() if end <= size}
            assert set(found.records) == whole


@pytest.mark.timeout(600)
def test_index_cut_at_any_byte_keeps_the_records_of_the_remaining_entries(
    specimen: Specimen, quick_directory: Path
) -> None:
    size = len(specimen.files[INDEX])
    used = HEADER_BYTES + len(specimen.records) * ENTRY_BYTES
    headers = [*range(0, 90), *range(500, 600), *range(1010, 1100), *range(2000, HEADER_BYTES, 300)]
    for left in sorted({*headers, *range(HEADER_BYTES - 3, min(used + 300, size)), size - 1}):
        with told_on_failure(left=left):
            cut = specimen.changed(INDEX, lambda data, left=left: data[:left])  # type: ignore[misc]
            found = check(specimen, cut, quick_directory / "store")
            whole = max(0, left - HEADER_BYTES) // ENTRY_BYTES
            assert set(found.records) == set(range(min(whole, len(specimen.records))))


def record_ends(specimen: Specimen) -> dict[int, int]:
    """Return where each record ends in the segment; every record of a specimen is its payload, perhaps behind one
    header."""
    ends, position = {}, 0
    for offset, record in specimen.records.items():
        position += len(record.payload) + len(encode_headers(record.block))
        ends[offset] = position
    return ends


SECTOR, PAGE = 512, 4096
FILLS: dict[str, Callable[[int, random.Random], bytes]] = {
    "zeros": lambda size, rng: bytes(size),
    "ones": lambda size, rng: b"\xff" * size,
    "noise": lambda size, rng: rng.randbytes(size),
}


@pytest.fixture(scope="module", params=[True, False], ids=["sealed", "unclosed"])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    """Return a specimen with several pages of entries and of records, all different."""
    return make_specimen(
        tmp_path_factory.mktemp("large") / "store",
        closed=request.param,
        count=400,
        payload=lambda number: random.Random(number).randbytes(30 + number % 60),
    )


def touched(specimen: Specimen, path: Path, start: int, end: int) -> set[int]:
    """Return the records that have a byte of this range: one of theirs, or of their index entry."""
    if path == INDEX:
        first, last = start - HEADER_BYTES, end - HEADER_BYTES
        return set(range(max(0, first // ENTRY_BYTES), max(0, -(-last // ENTRY_BYTES))))
    position, found = 0, set()
    for offset, record_end in record_ends(specimen).items():
        if position < end and start < record_end:
            found.add(offset)
        position = record_end
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", [SEGMENT, INDEX], ids=["segment", "index"])
@pytest.mark.parametrize("unit", [SECTOR, PAGE], ids=["sector", "page"])
@pytest.mark.parametrize("fill", FILLS)
def test_overwritten_sector_or_page_costs_the_records_in_it(
    large: Specimen, path: Path, unit: int, fill: str, quick_directory: Path
) -> None:
    seed = run_seed(f"{path.suffix} {unit} {fill}")
    used = len(large.files[SEGMENT]) if path == SEGMENT else HEADER_BYTES + 400 * ENTRY_BYTES
    for start in range(0, used, unit):
        rng = random.Random(f"{seed}/{start}")
        page = FILLS[fill](min(unit, len(large.files[path]) - start), rng)
        with told_on_failure(TIMESTONE_SEED=seed, start=start):
            damaged = large.changed(path, lambda data, s=start, p=page: data[:s] + p + data[s + len(p) :])  # type: ignore[misc]
            found = check(large, damaged, quick_directory / "store")
            assert set(large.records) - set(found.records) <= touched(large, path, start, start + unit)


@pytest.mark.parametrize("path", [SEGMENT, INDEX], ids=["segment", "index"])
@pytest.mark.parametrize(("first", "second"), [(1, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("how", ["swapped", "written twice"])
def test_swapped_pages_cost_the_records_in_them(
    large: Specimen, path: Path, first: int, second: int, how: str, quick_directory: Path
) -> None:
    """A misdirected write: the bytes are valid, but at another place."""

    def change(data: bytes) -> bytes:
        pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
        pages[first], pages[second] = pages[second], pages[first] if how == "swapped" else pages[second]
        return b"".join(pages)

    found = check(large, large.changed(path, change), quick_directory / "store")
    lost = touched(large, path, first * PAGE, first * PAGE + PAGE)
    if how == "swapped":
        lost |= touched(large, path, second * PAGE, second * PAGE + PAGE)
    assert set(large.records) - set(found.records) <= lost
    assert lost & set(large.records) <= found.corrupt | set(found.records)


def test_page_of_another_segments_index_is_rejected(quick_directory: Path) -> None:
    config = LogConfig(segment_entries=200)
    specimen = make_specimen(quick_directory / "store", closed=True, count=400, config=config)
    second = FOLDER / "00000000000000000200.index"
    other = specimen.files[second]
    damaged = specimen.changed(INDEX, lambda data: data[:PAGE] + other[PAGE : 2 * PAGE] + data[2 * PAGE :])
    found = check(specimen, damaged, quick_directory / "store")
    assert found.corrupt == set(range(128))
    assert set(found.records) == set(range(128, 400))


def test_index_under_a_wrong_name_is_put_aside_and_the_rest_is_served(quick_directory: Path) -> None:
    config = LogConfig(segment_entries=200)
    specimen = make_specimen(quick_directory / "store", closed=True, count=400, config=config)
    second = FOLDER / "00000000000000000200.index"
    damaged = specimen.with_file(second, specimen.files[INDEX])
    found = check(specimen, damaged, quick_directory / "store")
    assert set(found.records) == set(range(200))
    assert found.told
    assert any("200.segment.lost" in name for name in found.files), "the records' bytes are kept"
    assert any("200.index.lost" in name for name in found.files)


def test_trailer_of_another_segment_does_not_seal(quick_directory: Path) -> None:
    config = LogConfig(segment_entries=4)
    specimen = make_specimen(quick_directory / "store", closed=True, count=8, config=config)
    other = specimen.files[FOLDER / "00000000000000000004.index"]
    own = specimen.files[INDEX]
    tail = HEADER_BYTES + 4 * ENTRY_BYTES
    assert len(own) == len(other)
    found = check(
        specimen, specimen.changed(INDEX, lambda data: data[:tail] + other[tail:]), quick_directory / "store"
    )
    assert found.records == specimen.records


@pytest.mark.parametrize("closed", [True, False], ids=["sealed", "unclosed"])
@pytest.mark.parametrize("left", ["zeros", "ones", "nothing", "no file"])
@pytest.mark.parametrize("path", [SEGMENT, INDEX], ids=["segment", "index"])
def test_emptied_file_is_reported_and_no_offset_is_reused(
    path: Path, left: str, closed: bool, quick_directory: Path
) -> None:
    """Other engines failed here: zeros decoded as valid entries, and offsets began again."""
    specimen = make_specimen(quick_directory / "store", closed=closed)
    size = len(specimen.files[path])
    content = {"zeros": bytes(size), "ones": b"\xff" * size, "nothing": b""}
    damaged = specimen.with_file(path, content[left]) if left in content else specimen.without(path)
    found = damaged.look(quick_directory / "store")
    empty = {offset for offset, record in specimen.records.items() if not record.payload}
    assert set(found.records) <= (empty if path == SEGMENT else set())
    assert found.told or found.corrupt
    assert found.next_offset >= specimen.durable


def test_valid_entries_behind_a_hole_of_zeros_are_kept(large: Specimen, quick_directory: Path) -> None:
    """Other engines failed here: an index with a prefix, a hole and a suffix. Durable records before and behind the
    hole are read; the hole is corrupt, record by record."""
    start, end = HEADER_BYTES + 100 * ENTRY_BYTES, HEADER_BYTES + 140 * ENTRY_BYTES
    damaged = large.changed(INDEX, lambda data: data[:start] + bytes(end - start) + data[end:])
    found = check(large, damaged, quick_directory / "store")
    assert found.corrupt == set(range(100, 140))
    assert set(found.records) == set(range(400)) - found.corrupt


# Compressed segments.

FRAMED = FOLDER / "00000000000000000010.1.segment"
RANDOM = rounds(40, "TIMESTONE_DAMAGE_ROUNDS")


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    """Four segments of ten records; the first three are compressed."""
    return make_specimen(
        tmp_path_factory.mktemp("compressed") / "store",
        closed=True,
        count=40,
        config=LogConfig(segment_entries=10),
        compressed=True,
        payload=lambda number: b"record %d and what is said of it " % number * 9,
    )


@pytest.mark.parametrize("kind", ["cut", "flip", "zero"])
def test_damage_in_a_compressed_segment_costs_at_most_its_own_records(
    compressed: Specimen, quick_directory: Path, kind: str
) -> None:
    size = len(compressed.files[FRAMED])
    for position in (*range(0, 80), *range(80, size, 11)):
        changes: dict[str, Change] = {
            "cut": lambda data, at=position: data[:at],  # type: ignore[misc]
            "flip": lambda data, at=position: _flip(data, at, at % 8),  # type: ignore[misc]
            "zero": lambda data, at=position: data[:at] + bytes(len(data[at : at + 40])) + data[at + 40 :],  # type: ignore[misc]
        }
        if kind == "cut" and position % 5:
            continue
        with told_on_failure(position=position):
            found = check(compressed, compressed.changed(FRAMED, changes[kind]), quick_directory / "store")
            assert set(compressed.records) - set(found.records) <= set(range(10, 20))


def test_no_record_is_invented_when_a_compressed_log_is_damaged(
    compressed: Specimen, quick_directory: Path
) -> None:
    seed = run_seed("compressed")
    for number in range(RANDOM):
        rng = random.Random(f"{seed}/{number}")
        damaged = compressed
        for _ in range(rng.randint(1, 4)):
            path = rng.choice([one for one in damaged.files if one.parent == FOLDER and one != TOPICS])
            data = bytearray(damaged.files[path])
            start = rng.randrange(len(data))
            end = min(len(data), start + rng.choice([1, 20, 512]))
            data[start:end] = rng.choice([bytes(end - start), rng.randbytes(end - start), b""])
            damaged = damaged.changed(path, lambda _, new=bytes(data): new)  # type: ignore[misc]
        with told_on_failure(TIMESTONE_SEED=seed, round=number):
            found = damaged.look(quick_directory / "store")
            assert {offset: compressed.records.get(offset) for offset in found.records} == found.records
            damaged.write(quick_directory / "source")
            salvage_store(quick_directory / "source", quick_directory / "target", clock=StepClock())
            with timestone.view(quick_directory / "target") as view:
                saved = {record.offset: record for record in view.log("telemetry").reader()}
            assert {offset: compressed.records.get(offset) for offset in saved} == saved
            assert set(found.records) <= set(saved), "salvage saves at least what is served"
        shutil.rmtree(quick_directory / "source")
        shutil.rmtree(quick_directory / "target")

"""Open records equal the files and are verified at each read; other reads use the general path. On both twins."""

import gc
import importlib.util
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.interleaved import interleaved
from timestone.kernel import open_records
from timestone.kernel import pure as pure_kernel
from timestone.kernel.entries import ENTRY_BYTES, HEADER_BYTES, NO_TOPIC
from timestone.record import FLAG_REMOVED, Record

SALT, BASE, NAMES = 0x1234_5678, 500, ["a", None, "c/d"]
PAYLOADS = [b"zero", b"", b"two" * 100, b"three"]


def native() -> Any:
    return (
        importlib.import_module("timestone.kernel._kernel")
        if importlib.util.find_spec("timestone.kernel._kernel")
        else None
    )


@pytest.fixture(params=["pure", "native"])
def twin(request: pytest.FixtureRequest) -> Any:
    found = open_records if request.param == "pure" else native()
    return found or pytest.skip("the compiled kernel was not built: make install")


def index_of(payloads: list[bytes] = PAYLOADS, *, topics: Any = 2, headers: Any = 0, flags: Any = 0) -> bytes:
    lengths = b"".join(len(payload).to_bytes(4, "little") for payload in payloads)
    return bytes(HEADER_BYTES) + pure_kernel.fill_entries(
        (b"".join(payloads),), lengths, topics, headers, flags,
        position=70, timestamp_us=99, ordinal=0, salt_crc=SALT,
    )  # fmt: skip


class Disk:
    """A segment file in memory, and how it was read."""

    def __init__(self, payloads: list[bytes] = PAYLOADS) -> None:
        self.data = bytes(70) + b"".join(payloads)
        self.calls: list[tuple[int, int, int]] = []

    def pread(self, fd: int, length: int, position: int) -> bytes:
        self.calls.append((fd, length, position))
        return self.data[position : position + length]


def segment(
    twin: Any, index: bytes, disk: Disk, *, base: int = BASE, salt: int = SALT, keeper: object = ""
) -> Any:
    count = (len(index) - HEADER_BYTES) // ENTRY_BYTES
    return twin.SegmentRecords(base, base + count, index, salt, disk.pread, 5, keeper)


def shown(twin: Any, *segments: Any) -> Any:
    records = twin.OpenRecords(NAMES)
    for one in segments:
        records.show(one)
    return records


def test_records_come_with_their_fields(twin: Any) -> None:
    disk = Disk()
    topics = b"".join(topic.to_bytes(4, "little") for topic in (0, 1, 2, NO_TOPIC))
    records = shown(twin, segment(twin, index_of(topics=topics, flags=6), disk))
    found = [records.record(BASE + number) for number in range(4)]
    topic_names = ["a", None, "c/d", None]
    assert found == [
        Record(BASE + number, 99, topic_names[number], PAYLOADS[number], (), 6) for number in range(4)
    ]
    assert {type(record) for record in found} == {Record}
    assert disk.calls == [(5, 4, 70), (5, 300, 74), (5, 5, 374)], "nothing is read of an empty one"


def test_unknown_offset_takes_the_general_path(twin: Any) -> None:
    disk = Disk()
    records = shown(twin, segment(twin, index_of(), disk), segment(twin, index_of(), disk, base=BASE + 10))
    for offset in (BASE - 1, BASE + 4, BASE + 9, BASE + 14, 0, -1, 1 << 63, -1 << 70, 1 << 200):
        assert records.record(offset) is None
    assert disk.calls == []
    assert shown(twin).record(0) is None
    with pytest.raises(TypeError):
        records.record("500")


def test_header_blocks_and_removed_records_take_the_general_path_unread(twin: Any) -> None:
    disk = Disk()
    for index in (index_of(headers=2), index_of(flags=FLAG_REMOVED)):
        assert shown(twin, segment(twin, index, disk)).record(BASE) is None
    assert disk.calls == []


def test_damaged_record_takes_the_general_path(twin: Any) -> None:
    index, disk = index_of(), Disk()
    for byte in range(ENTRY_BYTES):
        at = HEADER_BYTES + byte
        damaged = index[:at] + bytes([index[at] ^ 1]) + index[at + 1 :]
        assert shown(twin, segment(twin, damaged, disk)).record(BASE) is None
    assert shown(twin, segment(twin, index, disk, salt=SALT + 1)).record(BASE) is None
    moved = index[:HEADER_BYTES] + index[HEADER_BYTES + ENTRY_BYTES :]
    assert shown(twin, segment(twin, moved, disk)).record(BASE) is None, "an entry in the place of another"
    disk.data = bytes(70) + b"zerO"
    records = shown(twin, segment(twin, index, disk))
    assert records.record(BASE) is None
    assert records.record(BASE + 2) is None, "the file ends before it"
    disk.data = Disk().data
    assert records.record(BASE).payload == b"zero"


def test_errors_of_the_disk_are_raised(twin: Any) -> None:
    def pread(fd: int, length: int, position: int) -> bytes:
        raise OSError(5, "the disk", "a.segment")

    records = shown(twin, twin.SegmentRecords(BASE, BASE + 1, index_of(), SALT, pread, 5, ""))
    with pytest.raises(OSError, match=r"a\.segment"):
        records.record(BASE)


def test_read_uses_the_system_call_without_a_reader_function(twin: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.segment"
    path.write_bytes(Disk().data)
    fd = os.open(path, os.O_RDONLY)
    records = shown(twin, twin.SegmentRecords(BASE, BASE + 4, index_of(), SALT, None, fd, ""))
    assert [records.record(BASE + number).payload for number in range(4)] == PAYLOADS
    os.truncate(path, 75)
    assert [records.record(BASE + number) is None for number in range(4)] == [False, False, True, True]
    os.close(fd)
    assert records.record(BASE) is None, "the long way says what is wrong"


def test_closed_records_return_nothing(twin: Any) -> None:
    index = bytearray(index_of())
    one = segment(twin, index, Disk())  # type: ignore[arg-type]
    records = shown(twin, one)
    assert (one.base_offset, one.end_offset) == (BASE, BASE + 4)
    one.close()
    one.close()
    assert records.record(BASE) is None
    assert one.end_offset == BASE
    index.clear()  # no reference to the buffer is left


def test_files_stay_open_during_a_read(twin: Any) -> None:
    class Keeper:
        pass

    def pread(fd: int, length: int, position: int) -> bytes:
        one.close()
        alive.append(seen() is not None)
        return disk.data[position : position + length]

    keeper, disk, alive = Keeper(), Disk(), list[bool]()
    seen = weakref.ref(keeper)
    one = twin.SegmentRecords(BASE, BASE + 4, index_of(), SALT, pread, 5, keeper)
    records = shown(twin, one)
    del keeper
    assert records.record(BASE).payload == b"zero"
    gc.collect()
    assert (alive, seen()) == ([True], None)
    assert records.record(BASE) is None


def test_read_returns_the_record_or_takes_the_general_path_when_closed_during_it() -> None:
    """Of the twin in Python: another thread runs between any two of its instructions."""
    disk = Disk()
    found = list(
        interleaved(
            open_records,
            lambda: segment(open_records, index_of(), disk),
            lambda one: one.stored(BASE + 2),
            lambda one: one.close(),
        )
    )
    assert set(found) == {None, (99, 2, 0, PAYLOADS[2])}


def test_segment_is_registered_once_and_removed_when_it_is_closed(twin: Any) -> None:
    disks = [Disk([payload] * 3) for payload in (b"old", b"new", b"far")]
    old, new = (
        segment(twin, index_of([name] * 3), disk) for name, disk in zip((b"old", b"new"), disks, strict=False)
    )
    far = segment(twin, index_of([b"far"] * 3), disks[2], base=BASE + 3)
    records = shown(twin, far, old)
    assert [records.record(BASE + number).payload for number in (2, 3)] == [b"old", b"far"]
    records.show(new)
    assert [records.record(BASE + number).payload for number in (2, 3)] == [b"new", b"far"]
    far.close()
    records.show(segment(twin, index_of([b"old"] * 3), disks[0], base=BASE + 10))
    assert [records.record(BASE + number) is None for number in (2, 3, 10)] == [False, True, False]
    records.clear()
    assert [records.record(BASE + number) is None for number in (2, 3, 10)] == [True] * 3


def test_closing_one_segment_keeps_the_others_registered(twin: Any) -> None:
    disk = Disk()
    closed = segment(twin, index_of(), disk)
    records = shown(twin, segment(twin, index_of(), disk))
    closed.close()
    records.show(closed)
    assert records.record(BASE).payload == b"zero"


@pytest.mark.parametrize(
    ("base", "end", "size"), [(-1, 1, 5), (3, 2, 5), (0, 5, 4), (0, 1, 0), (0, 1 << 60, 5)]
)
def test_entries_behind_the_index_are_refused(twin: Any, base: int, end: int, size: int) -> None:
    index = bytes(HEADER_BYTES + size * ENTRY_BYTES - (size == 0))
    with pytest.raises(ValueError, match="no entries"):
        twin.SegmentRecords(base, end, index, SALT, None, 5, "")


@pytest.mark.skipif(native() is None, reason="the compiled kernel was not built: make install")
@given(
    st.lists(
        st.tuples(st.binary(max_size=30), st.integers(0, 4), st.integers(0, 2), st.integers(0, 31)),
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 7)), max_size=3),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 7)), max_size=2),
    st.integers(0, 300),
    st.integers(0, 40),
)
def test_twins_return_the_same_records(
    rows: list[tuple[bytes, int, int, int]],
    index_flips: list[tuple[int, int]],
    data_flips: list[tuple[int, int]],
    cut: int,
    base: int,
) -> None:
    payloads = [payload for payload, *_ in rows]
    topics = np.array([topic for _, topic, _, _ in rows], "<u4")
    headers = np.array([length for _, _, length, _ in rows], "<u2")
    flags = np.array([flag for *_, flag in rows], "<u2")
    index = index_of(payloads, topics=topics, headers=headers, flags=flags)
    entries = flipped(index[HEADER_BYTES:], index_flips)
    disk = Disk()
    disk.data = flipped(bytes(70) + b"".join(payloads), data_flips)[: -cut if cut < 100 and cut else None]
    both = [
        shown(twin, segment(twin, bytes(HEADER_BYTES) + entries, disk, base=base))
        for twin in (open_records, native())
    ]
    for offset in range(base - 1, base + len(rows) + 1):
        pure, compiled = (records.record(offset) for records in both)
        assert pure == compiled


def flipped(data: bytes, flips: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for at, bit in flips:
        if at < len(changed):
            changed[at] ^= 1 << bit
    return bytes(changed)

"""The contract of both kernels. Every test runs on the twin in Python and, where it was built, on the compiled one."""

import errno
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from timestone.kernel import pure
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, Entries

SALT = 0x1234_5678
U32_MAX = 0xFFFF_FFFF


def kernels() -> list[Any]:
    found: list[Any] = [pytest.param(pure, id="pure")]
    if importlib.util.find_spec("timestone.kernel._kernel") is not None:
        found.append(pytest.param(importlib.import_module("timestone.kernel._kernel"), id="native"))
    return found


@pytest.fixture(params=kernels())
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


def column(kind: str, values: list[int]) -> bytes:
    return np.array(values, dtype=kind).tobytes()


def filled(kernel: ModuleType, payloads: list[bytes], **changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "pieces": (b"".join(payloads),),
        "lengths": column("<u4", [len(payload) for payload in payloads]),
        "topic_ids": 7,
        "header_lengths": 0,
        "flags": 0,
        "position": 70,
        "timestamp_us": 99,
        "ordinal": 3,
        "salt_crc": SALT,
    }
    arguments.update(changes)
    columns = [arguments.pop(name) for name in ("pieces", "lengths", "topic_ids", "header_lengths", "flags")]
    entries: bytes = kernel.fill_entries(*columns, **arguments)
    return entries


def columns_of(entries: bytes) -> Entries:
    return np.frombuffer(entries, dtype=ENTRY)


def test_payloads_are_measured_one_by_one_and_together(kernel: ModuleType) -> None:
    _, lengths, total, _ = kernel.gathered((b"abc", b"", b"de"), 0)
    assert (np.frombuffer(lengths, "<u4").tolist(), total) == ([3, 0, 2], 5)
    assert kernel.gathered([], 9) == ((), b"", 0, b"")
    assert kernel.gathered([b"", b""], 0)[1:] == (bytes(8), 0, b"")


def test_small_payloads_become_one_piece_and_large_ones_stay_apart(kernel: ModuleType) -> None:
    payloads = (b"abc", b"", b"defgh" * 100)
    assert kernel.gathered(payloads, 168)[0] == (b"".join(payloads),)
    assert kernel.gathered(payloads, 167)[0] is payloads
    assert kernel.gathered((b"abc",), 1000)[0] == (b"abc",)
    many = tuple(bytes([number % 251]) * (number % 7) for number in range(300))
    assert kernel.gathered(many, 512)[0] == (b"".join(many),)


def test_copied_payloads_get_their_checksums(kernel: ModuleType) -> None:
    payloads = [b"abc", b"", b"123456789"]
    _, lengths, _, crcs = kernel.gathered(payloads, 512)
    assert np.frombuffer(crcs, "<u4").tolist() == [crc32c(payload) for payload in payloads]
    assert filled(kernel, payloads, lengths=lengths, data_crcs=crcs) == filled(kernel, payloads)
    assert kernel.gathered(payloads, 0)[3] == b""


def test_known_checksums_are_kept(kernel: ModuleType) -> None:
    """They are of the payloads that the caller gave; a byte that changed on the way is found by the first read."""
    known = columns_of(filled(kernel, [b"abc", b"de"], data_crcs=column("<u4", [7, 8])))
    assert known["data_crc"].tolist() == [7, 8]
    for count in (1, 3):
        with pytest.raises(ValueError):
            filled(kernel, [b"abc", b"de"], data_crcs=bytes(4 * count))
    with pytest.raises(ValueError):  # a record lies across two pieces nevertheless
        filled(kernel, [b"abc", b"de"], pieces=(b"ab", b"cde"), data_crcs=bytes(8))


def test_names_are_looked_up_together(kernel: ModuleType) -> None:
    known = kernel.NumberedNames()
    for number in range(10_000):
        known.add(f"topic/{number}", number * 7)
        known.add(f"topic/{number}", 1)  # it has one
    names = tuple(f"topic/{number}" for number in range(9999, -1, -3))
    found = np.frombuffer(known.find_all(names), "<u4")
    assert found.tolist() == [int(name[6:]) * 7 for name in names]
    assert [known.find(name) for name in names] == found.tolist()
    assert len(known) == 10_000
    assert known.find("other") is None
    assert known.find_all((*names, "other")) is None
    assert known.find_all(()) == b""


def test_names_that_are_not_str_and_numbers_beyond_u32_are_refused(kernel: ModuleType) -> None:
    known = kernel.NumberedNames()
    for number in (-1, 1 << 32, 1 << 64):
        with pytest.raises(OverflowError):
            known.add("a", number)
    for name in (None, 7, b"a"):
        with pytest.raises(TypeError):
            known.add(name, 1)
        with pytest.raises(TypeError):
            known.find(name)
    with pytest.raises(TypeError):
        known.find_all(["a"])
    assert len(known) == 0


def test_names_are_referenced_only_while_they_are_known(kernel: ModuleType) -> None:
    name = "".join(["to", "pic"])
    before = sys.getrefcount(name)
    known = kernel.NumberedNames()
    for _ in range(3):
        known.add(name, 5)
    assert sys.getrefcount(name) > before
    assert known.find_all((name, "".join(["top", "ic"]))) == bytes([5, 0, 0, 0] * 2)
    del known
    assert sys.getrefcount(name) == before


def test_pieces_reach_the_file_in_one_call(kernel: ModuleType, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    pieces = tuple(bytes([number % 251]) * (number % 5) for number in range(1024))
    assert kernel.pwritev(fd, pieces, 3) == len(b"".join(pieces))
    assert os.pread(fd, 10_000, 3) == b"".join(pieces)
    assert kernel.pwritev(fd, (), 0) == 0
    with pytest.raises((ValueError, OSError)):  # one more than the system takes
        kernel.pwritev(fd, (b"x",) * 1025, 0)
    os.close(fd)
    with pytest.raises(OSError) as caught:
        kernel.pwritev(fd, (b"a", b"b"), 0)
    assert caught.value.errno == errno.EBADF


class Text(bytes):
    """Its own type, still bytes; numpy has one of these."""


def test_payloads_may_be_of_a_subtype_of_bytes(kernel: ModuleType) -> None:
    assert kernel.gathered((Text(b"abc"),), 0) == kernel.gathered((b"abc",), 0)


@pytest.mark.parametrize(
    "payloads", [(b"a", bytearray(b"b")), ("a",), (None,), b"ab", "ab", 7, None, (memoryview(b""),)]
)
def test_payloads_are_refused_when_they_are_not_bytes(kernel: ModuleType, payloads: Any) -> None:
    with pytest.raises(TypeError):
        kernel.gathered(payloads, 0)
    with pytest.raises(TypeError):
        filled(kernel, [], pieces=payloads)


def test_pieces_must_be_a_tuple_because_another_thread_reads_them(kernel: ModuleType) -> None:
    with pytest.raises(TypeError):
        filled(kernel, [b"a"], pieces=[b"a"])


def test_entries_do_not_depend_on_how_the_records_lie_in_pieces(kernel: ModuleType) -> None:
    payloads = [b"abc", b"", b"de", b"f" * 700, b""]
    whole = filled(kernel, payloads)
    for pieces in (tuple(payloads), (b"", b"abcde", b"", b"f" * 700, b"")):
        assert filled(kernel, payloads, pieces=pieces) == whole


@pytest.mark.parametrize("pieces", [(b"ab", b"cde"), (b"abcd", b"e"), (b"a", b"b", b"c", b"de")])
def test_record_in_two_pieces_is_refused(kernel: ModuleType, pieces: tuple[bytes, ...]) -> None:
    """It would be read beyond the end of the first."""
    with pytest.raises(ValueError):
        filled(kernel, [b"abc", b"de"], pieces=pieces)


def test_entries_describe_records_that_lie_back_to_back(kernel: ModuleType) -> None:
    made = columns_of(filled(kernel, [b"abc", b"", b"de"], flags=column("<u2", [1, 0, 8])))
    assert made["position"].tolist() == [70, 73, 73]
    assert made["length"].tolist() == [3, 0, 2]
    assert made["timestamp_us"].tolist() == [99] * 3
    assert made["topic"].tolist() == [7] * 3
    assert made["flags"].tolist() == [1, 0, 8]
    assert made["header_length"].tolist() == [0] * 3
    assert made["data_crc"].tolist() == [crc32c(b"abc"), 0, crc32c(b"de")]


@pytest.mark.parametrize("count", [0, 1, 2, 11, 12, 13, 1025])
def test_entry_crc_continues_from_the_salt_and_covers_ordinal_and_entry(
    kernel: ModuleType, count: int
) -> None:
    raw = filled(kernel, [b"x" * number for number in range(count)])
    rows = [raw[at : at + ENTRY_BYTES] for at in range(0, len(raw), ENTRY_BYTES)]
    expected = [
        crc32c((3 + number).to_bytes(4, "little") + row[:28], SALT) for number, row in enumerate(rows)
    ]
    assert columns_of(raw)["entry_crc"].tolist() == expected
    assert np.frombuffer(kernel.entry_crcs(raw, SALT, 3), "<u4").tolist() == expected
    assert kernel.valid_count(raw, SALT, 3) == count


@pytest.mark.parametrize("size", [0, 1, 7, 8, 99, 1007, 1008, 1009, 4096, 12_287, 12_288, 40_000])
def test_records_of_every_size_get_the_crc_of_their_bytes(kernel: ModuleType, size: int) -> None:
    """The compiled kernel has another path for each range of sizes."""
    payloads = [np.random.default_rng(number).bytes(size + number) for number in range(3)]
    made = filled(kernel, payloads)
    assert columns_of(made)["data_crc"].tolist() == [crc32c(payload) for payload in payloads]
    assert kernel.proven_count(made, b"".join(payloads), 70) == 3


def test_large_batches_that_release_the_interpreter_lock_give_the_same_entries(kernel: ModuleType) -> None:
    data, count = np.random.default_rng(1).bytes(20_000 * 100), 20_000
    made = filled(kernel, [data[at : at + 100] for at in range(0, len(data), 100)])
    assert made == filled(pure, [data[at : at + 100] for at in range(0, len(data), 100)])
    assert kernel.valid_count(made, SALT, 3) == kernel.proven_count(made, data, 70) == count
    assert kernel.entry_crcs(made, SALT, 3) == columns_of(made)["entry_crc"].tobytes()


TOO_MUCH: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "lengths add up to less": ({"lengths": column("<u4", [1, 1])}, ValueError),
    "lengths add up to more": ({"lengths": column("<u4", [3, 3])}, ValueError),
    "lengths add up modulo 2**32": ({"lengths": column("<u4", [2**31 + 2, 2**31 + 2])}, ValueError),
    "a length is cut off": ({"lengths": b"\4\0\0\0\0\0\0"}, ValueError),
    "one topic for two records": ({"topic_ids": column("<u4", [1])}, ValueError),
    "topics of eight bytes": ({"topic_ids": column("<u8", [1, 2])}, ValueError),
    "flags of four bytes": ({"flags": column("<u4", [1, 2])}, ValueError),
    "no header lengths": ({"header_lengths": b""}, ValueError),
    "a topic beyond its field": ({"topic_ids": 2**32}, OverflowError),
    "a negative topic": ({"topic_ids": -1}, OverflowError),
    "flags beyond their field": ({"flags": 2**16}, OverflowError),
    "a header length beyond its field": ({"header_lengths": 2**16}, OverflowError),
    "a position below the segment": ({"position": -1}, OverflowError),
    "an end behind the longest segment": ({"position": U32_MAX - 3}, OverflowError),
    "an ordinal below the segment": ({"ordinal": -1}, OverflowError),
    "ordinals beyond 32 bits": ({"ordinal": U32_MAX}, OverflowError),
    "a timestamp beyond 64 bits": ({"timestamp_us": 2**63}, OverflowError),
    "a salt beyond 32 bits": ({"salt_crc": 2**32}, OverflowError),
    "a negative salt": ({"salt_crc": -1}, OverflowError),
    "a view for data": ({"data": memoryview(b"abcd")}, TypeError),
    "text for a column": ({"flags": "ab"}, TypeError),
    "nothing for a column": ({"topic_ids": None}, TypeError),
}


@pytest.mark.parametrize(("changes", "error"), TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_inconsistent_columns_are_refused(
    kernel: ModuleType, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        filled(kernel, [b"ab", b"cd"], **changes)


def test_last_positions_of_a_segment_can_be_used(kernel: ModuleType) -> None:
    made = filled(kernel, [b"ab", b"cd"], position=U32_MAX - 4, ordinal=U32_MAX - 1)
    assert columns_of(made)["position"].tolist() == [U32_MAX - 4, U32_MAX - 2]
    assert kernel.valid_count(made, SALT, U32_MAX - 1) == 2
    assert kernel.proven_count(made, b"abcd", U32_MAX - 4) == 2


@pytest.mark.parametrize("bad", [0, 1, 5, 19])
def test_count_ends_at_the_first_invalid_entry(kernel: ModuleType, bad: int) -> None:
    made = bytearray(filled(kernel, [b"abc"] * 20))
    made[bad * ENTRY_BYTES + 17] ^= 4
    assert kernel.valid_count(made, SALT, 3) == bad
    assert kernel.valid_count(made[ENTRY_BYTES * (bad + 1) :], SALT, 4 + bad) == 19 - bad


@pytest.mark.parametrize("timestamp_us", [0, -1])
def test_entry_without_a_time_is_invalid_with_any_crc(kernel: ModuleType, timestamp_us: int) -> None:
    made = filled(kernel, [b"abc"] * 2, timestamp_us=timestamp_us)
    assert kernel.valid_count(made, SALT, 3) == 0


UNPROVEN: dict[str, tuple[bytes, int, int]] = {
    "all there": (b"abcdef", 70, 3),
    "more than there has to be": (b"__abcdef__", 68, 3),
    "the last byte differs": (b"abcdeF", 70, 2),
    "the first byte differs": (b"Abcdef", 70, 0),
    "the end is missing": (b"abcde", 70, 2),
    "the beginning is missing": (b"bcdef", 71, 0),
    "nothing is there": (b"", 70, 0),
    "it lies elsewhere": (b"abcdef", 69, 0),
    "it lies far behind": (b"abcdef", U32_MAX, 0),
}


@pytest.mark.parametrize(("data", "position", "count"), UNPROVEN.values(), ids=UNPROVEN.keys())
def test_records_are_verified_up_to_the_first_without_its_bytes(
    kernel: ModuleType, data: bytes, position: int, count: int
) -> None:
    entries = filled(kernel, [b"ab", b"cd", b"ef"])
    assert kernel.proven_count(entries, data, position) == count


def test_random_entries_never_read_outside_the_data(kernel: ModuleType) -> None:
    """Lengths and positions from a damaged disk are as large as they like to be."""
    entries = np.zeros(4, dtype=ENTRY)
    entries["position"] = [U32_MAX, 0, 3, U32_MAX]
    entries["length"] = [U32_MAX, U32_MAX, 2, 1]
    for number in range(4):
        assert kernel.proven_count(entries[number:], b"abcd", 0) == 0
        assert kernel.proven_count(entries[number:], b"abcd", U32_MAX) == 0


@pytest.mark.parametrize("function", ["entry_crcs", "valid_count"])
def test_truncated_entries_and_invalid_ordinals_are_refused(kernel: ModuleType, function: str) -> None:
    call = getattr(kernel, function)
    with pytest.raises(ValueError):
        call(bytes(33), SALT, 0)
    for ordinal in (-1, U32_MAX, 2**64):
        with pytest.raises(OverflowError):
            call(bytes(64), SALT, ordinal)
    with pytest.raises(ValueError):
        kernel.proven_count(bytes(31), b"", 0)
    for position in (-1, 2**32):
        with pytest.raises(OverflowError):
            kernel.proven_count(b"", b"", position)


def test_views_with_gaps_are_refused_and_not_misread(kernel: ModuleType) -> None:
    entries = columns_of(filled(kernel, [b"abc"] * 4))
    with pytest.raises((ValueError, BufferError)):
        kernel.valid_count(entries[::2], SALT, 3)


def test_arguments_are_not_changed_and_can_be_freed(kernel: ModuleType) -> None:
    """A buffer that is still held could not be resized."""
    topics, entries = bytearray(column("<u4", [3])), bytearray(filled(kernel, [b"abc"]))
    filled(kernel, [b"abc"], topic_ids=topics)
    kernel.valid_count(entries, SALT, 3)
    with pytest.raises(ValueError):
        filled(kernel, [b"abc"], topic_ids=topics, flags=b"odd")
    topics += b"more"
    entries += b"more"


def index_of(kernel: ModuleType, payloads: list[bytes]) -> bytes:
    """Entries from ordinal 3 on, of records from position 70 on, behind a header of 64 bytes."""
    return bytes(64) + filled(kernel, payloads)


def test_records_that_fit_are_counted_with_position_and_bytes(kernel: ModuleType) -> None:
    index = index_of(kernel, [b"abc", b"", b"defg", b"", b"h" * 100])
    assert kernel.fitting(index, 64, 5, 7) == (4, 70, 7)
    assert kernel.fitting(index, 64, 5, 6) == (2, 70, 3)
    assert kernel.fitting(index, 64, 5, 0) == (1, 70, 3)
    assert kernel.fitting(index, 64, 3, 1 << 40) == (3, 70, 7)
    assert kernel.fitting(index, 96, 4, 4) == (3, 73, 4)
    assert kernel.fitting(index, 64 + 4 * 32, 1, 5) == (1, 77, 100)


@pytest.mark.parametrize(("place", "count"), [(64, 0), (64, -1), (-1, 1), (64, 6), (225, 1), (1 << 40, 1)])
def test_entries_behind_the_index_are_refused(kernel: ModuleType, place: int, count: int) -> None:
    with pytest.raises(ValueError):
        kernel.fitting(index_of(kernel, [b"a"] * 5), place, count, 100)

"""The fixed parts of an index as bytes: exact layouts, every bit protected, a newer version distinguished from
damage."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone.errors import UnsupportedFormat
from timestone.index import (
    COMMITTED_POSITIONS,
    COMPACTED_VERSION,
    REPLICATED_VERSION,
    SLOT_BYTES,
    SLOT_POSITIONS,
    TRAILER_BYTES,
    Checkpoint,
    DamagedIndex,
    IndexHeader,
    TopicCounts,
    Trailer,
    committed_offset,
    committed_slot,
)
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import HEADER_BYTES, NO_TOPIC, entry_position

PATH = Path("00000000000000001000.index")
HEADER = IndexHeader(0x1122334455667788, 1000, 1_700_000_000_000_000, 3, bytes(range(16)))
TRAILER = Trailer(
    log_id=HEADER.log_id,
    base_offset=1000,
    entry_count=5,
    segment_bytes=500,
    first_timestamp_us=1,
    last_timestamp_us=9,
    sealed_us=10,
    summary_count=2,
    summary_crc=7,
    entries_crc=8,
    headed_count=1,
    stored_bytes=500,
    recovered=True,
)


def test_header_has_the_bytes_that_the_format_page_shows() -> None:
    fixed = (
        b"TSTINDEX"
        + struct.pack("<IIQQqQ", 1, 32, HEADER.log_id, 1000, HEADER.created_us, 3)
        + bytes(range(16))
    )
    assert HEADER.encode() == fixed + struct.pack("<I", crc32c(fixed))


def test_trailer_has_the_bytes_that_the_format_page_shows() -> None:
    fixed = b"TSTSEALD" + struct.pack(
        "<IIQQQQqqqIIIIQ", 1, 1, HEADER.log_id, 1000, 5, 500, 1, 9, 10, 2, 7, 8, 1, 500
    )
    assert len(fixed) == 96
    fixed += bytes(28)
    assert TRAILER.encode() == fixed + struct.pack("<I", crc32c(fixed))
    assert TRAILER.file_bytes == 4096 + 5 * 32 + 2 * 12 + 128


def test_slot_has_the_bytes_that_the_format_page_shows() -> None:
    fixed = struct.pack("<QQQQQQ", 7, 5, 500, 2000, HEADER.log_id, 1000)
    assert Checkpoint(7, 5, 500, 2000).encode(HEADER.log_id, 1000) == fixed + struct.pack("<I", crc32c(fixed))


def test_header_and_trailer_are_decoded_to_their_input() -> None:
    assert IndexHeader.decode(HEADER.encode().ljust(HEADER_BYTES, b"\0"), PATH) == HEADER
    assert Trailer.decode(TRAILER.encode(), PATH) == TRAILER


DECODERS: dict[str, tuple[bytes, Callable[[bytes, Path], object]]] = {
    "header": (HEADER.encode(), IndexHeader.decode),
    "trailer": (TRAILER.encode(), Trailer.decode),
}


@pytest.mark.parametrize(("data", "decode"), DECODERS.values(), ids=DECODERS.keys())
def test_every_flipped_bit_is_damage_and_never_a_newer_version(
    data: bytes, decode: Callable[[bytes, Path], object]
) -> None:
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedIndex):
            decode(bytes(flipped), PATH)


@pytest.mark.parametrize(("data", "decode"), DECODERS.values(), ids=DECODERS.keys())
def test_every_truncated_page_is_damage(data: bytes, decode: Callable[[bytes, Path], object]) -> None:
    for size in range(len(data)):
        with pytest.raises(DamagedIndex):
            decode(data[:size], PATH)


@pytest.mark.parametrize("decode", [IndexHeader.decode, Trailer.decode])
@given(data=st.binary(max_size=200) | st.binary(min_size=TRAILER_BYTES, max_size=TRAILER_BYTES))
def test_random_bytes_are_reported_as_damage(decode: Callable[[bytes, Path], object], data: bytes) -> None:
    with pytest.raises(DamagedIndex):
        decode(data, PATH)


def with_version(data: bytes, version: int) -> bytes:
    fixed = data[:8] + struct.pack("<I", version) + data[12:-4]
    return fixed + struct.pack("<I", crc32c(fixed))


@pytest.mark.parametrize(("kind", "newest"), [("header", REPLICATED_VERSION), ("trailer", COMPACTED_VERSION)])
@pytest.mark.parametrize("version", [0, 4, 2**32 - 1])
def test_valid_page_of_another_version_raises_unsupported_format(
    kind: str, newest: int, version: int
) -> None:
    data, decode = DECODERS[kind]
    with pytest.raises(UnsupportedFormat) as caught:
        decode(with_version(data, version), PATH)
    assert (caught.value.path, caught.value.found, caught.value.supported) == (PATH, version, newest)


def test_trailer_of_a_rewritten_segment_is_of_a_version_that_older_readers_refuse() -> None:
    rewritten = TRAILER._replace(generation=3)
    data = rewritten.encode()
    assert (data[8], data[96:100], data[100:124]) == (2, b"\3\0\0\0", bytes(24))
    assert Trailer.decode(data, PATH) == rewritten


def test_trailer_of_a_compacted_segment_has_a_higher_version() -> None:
    compacted = TRAILER._replace(generation=1, removed_count=7)
    data = compacted.encode()
    assert (data[8], data[112:116]) == (3, b"\7\0\0\0")
    assert Trailer.decode(data, PATH) == compacted


def test_version_is_checked_before_fields_that_a_newer_one_may_change() -> None:
    fixed = HEADER.encode()[:12] + struct.pack("<I", 64) + HEADER.encode()[16:64]
    with pytest.raises(UnsupportedFormat):
        IndexHeader.decode(with_version(fixed + bytes(4), 2), PATH)


def test_slots_lie_in_separate_sectors() -> None:
    sectors = {position // 512 for position in (0, *SLOT_POSITIONS)}
    assert len(sectors) == 3
    assert all(position % 512 + SLOT_BYTES <= 512 for position in SLOT_POSITIONS)


def page_with(*checkpoints: Checkpoint, log_id: int = HEADER.log_id, base: int = 1000) -> bytearray:
    page = bytearray(HEADER.encode().ljust(HEADER_BYTES, b"\0"))
    for checkpoint in checkpoints:
        page[checkpoint.position : checkpoint.position + SLOT_BYTES] = checkpoint.encode(log_id, base)
    return page


def latest(page: bytes | bytearray) -> Checkpoint | None:
    return Checkpoint.latest(bytes(page), HEADER.log_id, 1000)


def test_checkpoints_alternate_between_the_slots() -> None:
    assert Checkpoint(1, 0, 0, 0).position != Checkpoint(2, 0, 0, 0).position
    assert Checkpoint(1, 0, 0, 0).position == Checkpoint(3, 0, 0, 0).position


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (8, 7)])
def test_newest_checkpoint_is_used(order: tuple[int, int]) -> None:
    page = page_with(*(Checkpoint(sequence, sequence * 10, 0, 0) for sequence in order))
    found = latest(page)
    assert found is not None
    assert found.sequence == max(order)


def test_older_checkpoint_is_used_when_any_bit_of_the_newer_one_is_flipped() -> None:
    older, newer = Checkpoint(4, 40, 400, 5000), Checkpoint(5, 50, 500, 6000)
    for bit in range(SLOT_BYTES * 8):
        page = page_with(older, newer)
        page[newer.position + bit // 8] ^= 1 << bit % 8
        assert latest(page) == older


def test_no_checkpoint_is_found_in_zeros_ones_or_a_short_page() -> None:
    assert latest(bytes(HEADER_BYTES)) is None
    assert latest(b"\xff" * HEADER_BYTES) is None
    whole = page_with(Checkpoint(1, 1, 1, 1))
    assert all(latest(whole[:size]) is None for size in range(SLOT_POSITIONS[1] + SLOT_BYTES))


@pytest.mark.parametrize(("log_id", "base"), [(1, 1000), (HEADER.log_id, 0)])
def test_checkpoint_of_another_log_or_segment_is_ignored(log_id: int, base: int) -> None:
    assert latest(page_with(Checkpoint(9, 1, 1, 1), log_id=log_id, base=base)) is None


def test_entries_start_behind_the_header_page_and_are_aligned_to_themselves() -> None:
    assert entry_position(0) == HEADER_BYTES
    assert entry_position(1) - entry_position(0) == 32


TOPIC_IDS = st.one_of(
    st.integers(0, 5), st.sampled_from([1000, (1 << 22) - 1, 1 << 22, NO_TOPIC - 1, NO_TOPIC])
)


@pytest.mark.slow
@given(st.lists(st.lists(TOPIC_IDS, max_size=10), max_size=6))
def test_topic_counts_agree_with_counting_by_hand(chunks: list[list[int]]) -> None:
    counts, flat = TopicCounts(), [topic for chunk in chunks for topic in chunk]
    ordinal = 0
    for chunk in chunks:
        counts.add(np.array(chunk, dtype=np.uint32), ordinal)
        ordinal += len(chunk)
    expected = [(topic, flat.count(topic), flat.index(topic)) for topic in sorted(set(flat))]
    assert counts.summary().tolist() == expected
    assert counts.summary().tolist() == expected, "asking changes nothing"


SLOT = bytes.fromhex("eb 03 00 00 00 00 00 00 88 77 66 55 44 33 22 11 e8 03 00 00 00 00 00 00 36 b2 09 cf")
"""The example of docs/formats/index-file.md."""


def committed_page(*slots: bytes) -> bytes:
    page = bytearray(4096)
    for at, slot in zip(COMMITTED_POSITIONS, slots, strict=False):
        page[at : at + len(slot)] = slot
    return bytes(page)


def test_committed_offset_is_the_higher_one_of_two_valid_slots() -> None:
    log_id, base = 0x1122334455667788, 1000
    assert committed_slot(1003, log_id, base) == SLOT
    later = committed_slot(1009, log_id, base)
    assert committed_offset(committed_page(SLOT, later), log_id, base) == 1009
    assert committed_offset(committed_page(later, SLOT), log_id, base) == 1009
    assert committed_offset(committed_page(SLOT, later[:-1] + b"?"), log_id, base) == 1003
    assert committed_offset(committed_page(SLOT), log_id + 1, base) is None
    assert committed_offset(committed_page(SLOT), log_id, base + 1) is None
    assert committed_offset(committed_page(), log_id, base) is None
    assert committed_offset(b"", log_id, base) is None


def test_header_of_a_replicated_log_is_of_a_version_that_older_readers_refuse() -> None:
    replicated = HEADER._replace(is_replicated=True)
    assert replicated.encode()[8] == 2
    assert IndexHeader.decode(replicated.encode(), PATH) == replicated

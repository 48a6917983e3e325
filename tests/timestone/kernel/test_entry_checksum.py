import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY, ENTRY_BYTES, NO_TOPIC, Entries
from timestone.kernel.entry_checksum import EntrySeal

LOG_ID, BASE = 0x1122334455667788, 1000


def sealed_entries(count: int, first_ordinal: int = 0, seal: EntrySeal | None = None) -> Entries:
    entries = np.zeros(count, dtype=ENTRY)
    entries["position"] = np.arange(count) * 100
    entries["length"] = 100
    entries["timestamp_us"] = 1_700_000_000_000_000 + np.arange(count)
    entries["topic"] = np.arange(count) % 7
    entries["data_crc"] = np.arange(count) * 77
    made = (seal or EntrySeal(LOG_ID, BASE)).placed(entries.tobytes(), ordinal=first_ordinal, position=0)
    return np.frombuffer(bytearray(made), dtype=ENTRY)


def test_entry_has_the_bytes_that_the_format_page_shows() -> None:
    entries = np.zeros(1, dtype=ENTRY)
    entries[0] = (0x01020304, 0x05060708, 0x1112131415161718, NO_TOPIC, 0x2122, 0x3132, 0x41424344, 0)
    made = EntrySeal(LOG_ID, BASE).placed(entries.tobytes(), ordinal=5, position=0x01020304)
    fixed = struct.pack(
        "<IIqIHHI", 0x01020304, 0x05060708, 0x1112131415161718, 0xFFFFFFFF, 0x2122, 0x3132, 0x41424344
    )
    assert made == fixed + struct.pack("<I", crc32c(struct.pack("<QQI", LOG_ID, BASE, 5) + fixed))


@pytest.mark.parametrize("count", [1, 2, 11, 12, 13, 1023, 1025])
def test_closed_entries_are_valid_for_any_count(count: int) -> None:
    seal, entries = EntrySeal(LOG_ID, BASE), sealed_entries(count, 3)
    assert seal.valid(entries, 3).all()
    assert seal.valid_count(entries, 3) == count


@pytest.mark.parametrize("bad", [0, 1, 14, 19])
def test_count_ends_at_the_first_invalid_entry(bad: int) -> None:
    seal, entries = EntrySeal(LOG_ID, BASE), sealed_entries(20)
    entries["topic"][[bad, 19]] += 1
    assert seal.valid_count(entries, 0) == bad


@pytest.mark.parametrize("count", [3, 20])
def test_any_flipped_bit_makes_that_entry_invalid_and_no_other(count: int) -> None:
    intact, seal = sealed_entries(count).tobytes(), EntrySeal(LOG_ID, BASE)
    for bit in range(ENTRY_BYTES * 8):
        raw = bytearray(intact)
        raw[ENTRY_BYTES + bit // 8] ^= 1 << bit % 8
        valid = seal.valid(np.frombuffer(bytes(raw), dtype=ENTRY), 0)
        assert np.flatnonzero(~valid).tolist() == [1], f"bit {bit}"


STRANGERS = {
    "another log": EntrySeal(LOG_ID + 1, BASE),
    "another segment": EntrySeal(LOG_ID, BASE + 1),
    "log and segment swapped": EntrySeal(BASE, LOG_ID),
}


@pytest.mark.parametrize("seal", STRANGERS.values(), ids=STRANGERS.keys())
@pytest.mark.parametrize("count", [3, 200])
def test_entries_of_another_log_are_invalid(seal: EntrySeal, count: int) -> None:
    assert not EntrySeal(LOG_ID, BASE).valid(sealed_entries(count, seal=seal), 0).any()


@pytest.mark.parametrize("shift", [1, 16, 128])
def test_entries_at_another_ordinal_are_invalid(shift: int) -> None:
    assert not EntrySeal(LOG_ID, BASE).valid(sealed_entries(200), shift).any()


FILLS: dict[str, Callable[[int], bytes]] = {
    "zeros": bytes,
    "ones": lambda size: b"\xff" * size,
    "noise": lambda size: np.random.default_rng(7).bytes(size),
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS.keys())
@pytest.mark.parametrize("count", [1, 128])
def test_pages_of_other_bytes_are_invalid(fill: Callable[[int], bytes], count: int) -> None:
    entries = np.frombuffer(fill(count * ENTRY_BYTES), dtype=ENTRY)
    assert not EntrySeal(LOG_ID, BASE).valid(entries, 0).any()


def test_zero_entry_is_invalid_even_where_its_checksum_would_hold() -> None:
    """All-zero bytes with the right crc can only be made on purpose; the rule must not hang on luck."""
    seal = EntrySeal(LOG_ID, BASE)
    made = seal.placed(bytes(20 * ENTRY_BYTES), ordinal=0, position=0)
    assert not seal.valid(np.frombuffer(made, dtype=ENTRY), 0).any()


def test_entries_with_gaps_in_memory_are_checked_too() -> None:
    """A view with a stride, as numpy makes of every second entry, must not be misread."""
    entries = sealed_entries(40)
    seal = EntrySeal(LOG_ID, BASE)
    assert seal.valid(entries[::1], 0).all()
    one = entries[5::40]
    assert seal.valid(one, 5).all()
    assert seal.valid_count(entries[::2], 0) == 1


def test_empty_array_is_accepted() -> None:
    assert len(EntrySeal(LOG_ID, BASE).valid(np.empty(0, dtype=ENTRY), 0)) == 0


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**27))
def test_seal_accepts_every_log_offset_and_ordinal_that_can_exist(
    log_id: int, base: int, ordinal: int
) -> None:
    seal = EntrySeal(log_id, base)
    entries = sealed_entries(14, ordinal, seal)
    assert seal.valid(entries, ordinal).all()
    assert seal.valid(entries[:2], ordinal).all()

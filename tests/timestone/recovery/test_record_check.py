"""Each record is verified by itself, independent of its neighbours."""

import numpy as np
import pytest

from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY, Entries
from timestone.recovery import record_check
from timestone.recovery.record_check import ends, holding, pieces

DATA = bytes(range(256)) * 40


def entries_of(places: list[tuple[int, int]]) -> Entries:
    """Entries that hold, for (position, length) of DATA."""
    entries = np.zeros(len(places), dtype=ENTRY)
    entries["position"], entries["length"] = zip(*places, strict=True) if places else ((), ())
    entries["data_crc"] = [crc32c(DATA[position : position + length]) for position, length in places]
    return entries


def read(position: int, length: int) -> bytes:
    return DATA[position : position + length]


PLACES = [(0, 10), (10, 0), (10, 300), (5000, 7), (40, 20), (10_200, 40), (100, 1)]


def test_all_records_hold_in_any_order() -> None:
    assert holding(entries_of(PLACES), read).all()
    assert len(holding(entries_of([]), read)) == 0


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_damaged_record_does_not_affect_its_neighbours(number: int) -> None:
    entries = entries_of(PLACES)
    entries["data_crc"][number] ^= 1
    assert np.flatnonzero(~holding(entries, read)).tolist() == [number]


def test_records_without_bytes_are_not_verified() -> None:
    entries = entries_of([(0, 100), (100, 100), (200, 100)])
    assert holding(entries, lambda position, length: DATA[:250][position : position + length]).tolist() == [
        True,
        True,
        False,
    ]


def test_reads_are_windows_unless_a_record_is_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_check, "WINDOW_BYTES", 100)
    entries = entries_of([(0, 60), (60, 40), (100, 250), (350, 10), (360, 20)])
    asked: list[tuple[int, int]] = []

    def noting(position: int, length: int) -> bytes:
        asked.append((position, length))
        return read(position, length)

    assert holding(entries, noting).all()
    assert asked == [(0, 100), (100, 250), (350, 30)]
    assert list(pieces(entries)) == [(0, 2), (2, 1), (3, 2)]
    assert ends(entries).tolist() == [60, 100, 350, 360, 380]

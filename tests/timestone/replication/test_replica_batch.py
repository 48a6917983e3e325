"""Records of a leader as a batch: what is kept, what is computed, what is refused."""

import numpy as np
import pytest

from timestone.kernel.entries import ENTRY, NO_TOPIC
from timestone.kernel.entry_checksum import EntrySeal
from timestone.kernel.loops import crc32c
from timestone.record import FLAG_REMOVED
from timestone.replication.replica_batch import ReplicaBatch

SEAL = EntrySeal(7, 100)


def entries(*payloads: bytes, position: int = 50, **columns: int) -> bytes:
    found = np.zeros(len(payloads), dtype=ENTRY)
    at = position
    for place, payload in enumerate(payloads):
        found[place] = (at, len(payload), 1000 + place, place, 0, 0, crc32c(payload), 99)
        at += len(payload)
    for name, value in columns.items():
        found[name][-1] = value
    return found.tobytes()


def test_batch_keeps_the_leaders_columns_and_seals_them_for_its_own_segment() -> None:
    batch = ReplicaBatch.received(entries(b"abc", b"", b"de"), b"abcde", 3)
    made = np.frombuffer(batch.entries(SEAL, ordinal=4, position=200, timestamp_us=0), dtype=ENTRY)
    assert made["position"].tolist() == [200, 203, 203]
    assert made["timestamp_us"].tolist() == [1000, 1001, 1002]
    assert made["topic"].tolist() == [0, 1, 2]
    assert made["data_crc"].tolist() == [crc32c(b"abc"), crc32c(b""), crc32c(b"de")]
    assert SEAL.valid(made, 4).all()
    assert (batch.count, batch.first_timestamp_us, batch.last_timestamp_us) == (3, 1000, 1002)


def test_record_without_a_topic_needs_no_name() -> None:
    assert ReplicaBatch.received(entries(b"a", topic=NO_TOPIC), b"a", 0).count == 1


@pytest.mark.parametrize(
    "columns",
    [
        {"length": 3},
        {"length": 2**32 - 1},
        {"timestamp_us": 0},
        {"timestamp_us": 999},
        {"timestamp_us": -1},
        {"topic": 2},
        {"header_length": 3},
        {"flags": FLAG_REMOVED},
        {"data_crc": 5},
    ],
)
def test_entries_that_no_leader_has_written_are_refused_when(columns: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        ReplicaBatch.received(entries(b"ab", b"cd", **columns), b"abcd", 2)


@pytest.mark.parametrize(("size", "data"), [(0, b""), (31, b"ab"), (64, b"abc"), (64, b"abcde")])
def test_bytes_that_are_not_those_of_the_entries_are_refused(size: int, data: bytes) -> None:
    with pytest.raises(ValueError):
        ReplicaBatch.received(entries(b"ab", b"cd")[:size], data, 2)

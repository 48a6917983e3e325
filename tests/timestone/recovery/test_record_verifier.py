"""Verification of single records: by a valid entry and matching bytes, and by nothing else."""

import errno
from pathlib import Path

import numpy as np
import pytest

from tests.support.faulty_files import FaultyFiles
from timestone.disk.files import Files
from timestone.errors import CorruptLog
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY, HEADER_BYTES, NO_TOPIC
from timestone.kernel.entry_checksum import EntrySeal
from timestone.recovery.record_verifier import ByteSource, EntrySource, Proofs, RawFile

SEAL = EntrySeal(7, 100)
PAYLOADS = [b"record %d" % number * (number % 4) for number in range(300)]


class Pair:
    """An index and a segment with PAYLOADS at offsets from 100 on, to be damaged."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self.files = files or Files()
        entries = np.zeros(len(PAYLOADS), dtype=ENTRY)
        entries["length"] = [len(payload) for payload in PAYLOADS]
        entries["position"] = np.cumsum(entries["length"]) - entries["length"]
        entries["timestamp_us"] = 5
        entries["topic"] = [NO_TOPIC if number % 2 else number % 7 for number in range(len(PAYLOADS))]
        entries["data_crc"] = [crc32c(payload) for payload in PAYLOADS]
        made = SEAL.placed(entries.tobytes(), ordinal=0, position=0)
        self.index, self.segment = folder / "i", folder / "s"
        self.index.write_bytes(bytes(HEADER_BYTES) + made + bytes(3200))
        self.segment.write_bytes(b"".join(PAYLOADS))

    def flip(self, path: Path, position: int) -> None:
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)

    def raw(self, path: Path) -> RawFile:
        return RawFile(self.files, path, lambda count: None)

    def source(self) -> EntrySource:
        return EntrySource(self.raw(self.index), SEAL, 100, 0, HEADER_BYTES, 0, len(PAYLOADS) + 100, False)

    def proofs(self, *shifts: int) -> Proofs:
        return Proofs(self.source(), [ByteSource(self.raw(self.segment), shift) for shift in shifts or (0,)])


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_whole_files_verify_all_records_and_none_in_reserved_space(pair: Pair) -> None:
    found = pair.proofs()
    assert [(one.first, one.end) for one in found.proven] == [(100, 400)]
    assert [(one.first, one.end) for one in found.unproven] == [(400, 500)]
    assert (found.end_offset, found.topic_count) == (400, 7)
    copied = [
        (first, len(entries), data) for one in found.proven for first, entries, data, _ in one.records()
    ]
    assert copied == [(100, 300, b"".join(PAYLOADS))]


def test_damage_costs_only_the_damaged_record(pair: Pair) -> None:
    pair.flip(pair.index, HEADER_BYTES + 32 * 50 + 3)
    pair.flip(pair.segment, sum(map(len, PAYLOADS[:150])) - 2 - len(PAYLOADS[149]) - len(PAYLOADS[148]))
    found = pair.proofs()
    assert [(one.first, one.end) for one in found.proven] == [(100, 150), (151, 247), (248, 400)]
    assert [(one.first, one.reason) for one in found.unproven[:2]] == [
        (150, "the index entry does not match its checksum"),
        (247, "the bytes do not match their checksum"),
    ]


def test_records_are_verified_in_a_fragment_with_another_start(pair: Pair) -> None:
    cut = sum(map(len, PAYLOADS[:200]))
    pair.segment.write_bytes(b"".join(PAYLOADS)[cut:])
    found = pair.proofs(0, cut, 17)
    assert [(one.first, one.end) for one in found.proven if one.end - one.first > 20] == [(300, 400)]
    taken = next(one for one in found.proven if one.first == 300)
    assert b"".join(data for _, _, data, _ in taken.records()) == b"".join(PAYLOADS[200:])


def test_wrong_bytes_verify_only_empty_records(pair: Pair) -> None:
    pair.segment.write_bytes(bytes(pair.segment.stat().st_size))
    found = pair.proofs()
    proven = [offset - 100 for one in found.proven for offset in range(one.first, one.end)]
    assert proven == [number for number, payload in enumerate(PAYLOADS) if not payload]


def test_entries_of_another_segment_verify_no_record(pair: Pair) -> None:
    source = EntrySource(pair.raw(pair.index), EntrySeal(7, 101), 101, 0, HEADER_BYTES, 0, 300, False)
    found = Proofs(source, [ByteSource(pair.raw(pair.segment), 0)])
    assert (found.proven, found.end_offset) == ([], 101)


def test_unreadable_pages_cost_only_their_records(tmp_path: Path) -> None:
    files = FaultyFiles()
    pair = Pair(tmp_path, files)
    big = [b"%04d" % number * 1000 for number in range(10)]
    entries = np.zeros(10, dtype=ENTRY)
    entries["length"] = 4000
    entries["position"] = np.arange(10) * 4000
    entries["timestamp_us"], entries["topic"] = 5, NO_TOPIC
    entries["data_crc"] = [crc32c(payload) for payload in big]
    made = SEAL.placed(entries.tobytes(), ordinal=0, position=0)
    pair.index.write_bytes(bytes(HEADER_BYTES) + made)
    pair.segment.write_bytes(b"".join(big))
    read = files.inner.pread

    def pread(fd: int, length_bytes: int, position: int) -> bytes:
        if (
            length_bytes > 1
            and position <= 9000 < position + length_bytes
            and files._paths[fd].endswith("/s")
        ):
            raise OSError(errno.EIO, "bad sector")
        return read(fd, length_bytes, position)

    files.inner.pread = pread  # type: ignore[method-assign]
    segment = pair.raw(pair.segment)
    found = Proofs(pair.source(), [ByteSource(segment, 0)])
    assert [(one.first, one.end) for one in found.proven] == [(100, 102), (104, 110)]
    assert segment.unreadable == {8192}


def test_other_errors_of_the_disk_are_not_damage(tmp_path: Path) -> None:
    files = FaultyFiles()
    pair = Pair(tmp_path, files)
    files.fail("open", errno.EMFILE, path="/s")
    with pytest.raises(OSError, match="Too many open files"):
        pair.proofs()


def test_file_changed_between_verification_and_copy_is_detected(pair: Pair) -> None:
    (whole,) = pair.proofs().proven
    pair.flip(pair.segment, 50)
    with pytest.raises(CorruptLog, match="run it on a copy"):
        list(whole.records())
    pair.flip(pair.segment, 50)
    pair.flip(pair.index, HEADER_BYTES + 32 * 9)
    with pytest.raises(CorruptLog, match="run it on a copy"):
        list(whole.records())

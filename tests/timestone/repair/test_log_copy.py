"""A newly written copy of a log keeps offsets, times and topics; a gap ends a segment."""

from pathlib import Path

import numpy as np
import pytest

import timestone
from timestone.disk.files import Files
from timestone.format.identity import LogIdentity
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY, NO_TOPIC, Entries
from timestone.repair.inspection import EXIT_CORRUPT, inspect_store
from timestone.repair.log_copy import LogCopy

IDENTITY = LogIdentity(7, "a", 0, 1)


def columns(payloads: list[bytes], positions: list[int], times: list[int], topics: list[int]) -> Entries:
    entries = np.zeros(len(payloads), dtype=ENTRY)
    entries["position"] = positions
    entries["length"] = [len(payload) for payload in payloads]
    entries["timestamp_us"] = times
    entries["topic"] = topics
    entries["data_crc"] = [crc32c(payload) for payload in payloads]
    return entries


@pytest.fixture
def copy(tmp_path: Path) -> LogCopy:
    return LogCopy(Files(), tmp_path / "a-0", IDENTITY, now_us=100, boot_id=bytes(16))


def test_copied_records_keep_their_fields(copy: LogCopy, tmp_path: Path) -> None:
    copy.write_topics(["x", None, "y"])
    copy.add(
        10,
        columns([b"one", b"", b"three"], [50, 53, 53], [5, 5, 6], [0, NO_TOPIC, 2]),
        b"onethree",
        50,
        epoch=3,
    )
    copy.add(13, columns([b"four"], [900], [7], [1]), b"four", 900, epoch=3)
    copy.add(20, columns([b"five"], [904], [8], [0]), b"five", 904, epoch=4)
    copy.begin_segment()
    copy.add(21, columns([b"six"], [0], [9], [0]), b"six", 0, epoch=4)
    copy.finish()
    assert (copy.records, copy.bytes, copy.later_count) == (6, 19, 0)
    with timestone.view(tmp_path) as view:
        log = view.log("a")
        assert (log.id, log.start_offset, log.end_offset, log.epoch) == (7, 10, 22, 4)
        assert log.segment_bounds() == [(10, 14), (20, 21), (21, 22)]
        found = [
            (record.offset, record.payload, record.timestamp_us, record.topic) for record in log.reader()
        ]
        assert found == [
            (10, b"one", 5, "x"),
            (11, b"", 5, None),
            (12, b"three", 6, "y"),
            (13, b"four", 7, None),
            (20, b"five", 8, "x"),
            (21, b"six", 9, "x"),
        ]
    report = inspect_store(tmp_path, deep=True)
    assert (report.exit_code, report.logs[0].topic_names_lost) == (EXIT_CORRUPT, 1), (
        "and nothing else is wrong"
    )
    assert not [one for one in report.logs[0].segments if one.damaged_offsets or one.lost_bytes]


def test_bytes_between_records_are_not_copied(copy: LogCopy, tmp_path: Path) -> None:
    copy.add(
        0, columns([b"one", b"two"], [10, 20], [1, 1], [NO_TOPIC] * 2), b"one.......two....", 10, epoch=0
    )
    copy.finish()
    assert (tmp_path / "a-0" / f"{0:020d}.segment").read_bytes() == b"onetwo"


def test_times_never_decrease(copy: LogCopy, tmp_path: Path) -> None:
    copy.add(0, columns([b"1", b"2"], [0, 1], [9, 4], [NO_TOPIC] * 2), b"12", 0, epoch=0)
    copy.add(5, columns([b"3", b"4"], [0, 1], [8, 10], [NO_TOPIC] * 2), b"34", 0, epoch=1)
    copy.finish()
    assert copy.later_count == 2
    with timestone.view(tmp_path) as view:
        assert [record.timestamp_us for record in view.log("a").reader()] == [9, 9, 9, 10]


def test_repeated_topic_name_keeps_the_ids_of_the_others(copy: LogCopy, tmp_path: Path) -> None:
    copy.write_topics(["x", "x", "y"])
    copy.finish()
    with timestone.view(tmp_path) as view:
        assert view.log("a").topics.names() == ["x", None, "y"]

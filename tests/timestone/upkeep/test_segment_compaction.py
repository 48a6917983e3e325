"""The compacted form of a segment: which bytes stay, and what the entries become."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.segments import make_segment
from timestone.disk.files import Files
from timestone.errors import CorruptRecord
from timestone.index import COMPACTED_VERSION, TRAILER_BYTES, Trailer
from timestone.kernel.entries import NO_TOPIC
from timestone.reading.segment_cache import SegmentCache
from timestone.record import FLAG_REMOVED
from timestone.segment import Segment
from timestone.upkeep.segment_check import NotProven
from timestone.upkeep.segment_compaction import CompactedCopy

PAYLOADS = [b"zero", b"", b"two", b"three", b"4", b"five"]
TOPICS = [7, 8, 7, 9, NO_TOPIC, 7]


def compacted(folder: Path, segment: Segment, removed: list[int]) -> Segment:
    """The segment without some ordinals, in new files that have taken their place."""
    mask = np.zeros(segment.count, dtype=np.bool_)
    mask[removed] = True
    copy = CompactedCopy(Files(), segment, mask)
    assert sum(copy.slices()) > 0
    copy.replacement.commit()
    copy.close()
    return Segment(
        Files(), folder, segment.base_offset, copy.trailer.log_id, SegmentCache(8), trailer=copy.trailer
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "removed", [[], [0], [5], [1], [2, 3], [0, 2, 4], [1, 3, 5], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]]
)
def test_remaining_bytes_are_contiguous_and_entries_keep_their_ordinals(
    quick_directory: Path, removed: list[int]
) -> None:
    old = make_segment(quick_directory, PAYLOADS, topics=TOPICS, base_offset=100)
    new = compacted(quick_directory, old, removed)
    kept = [number for number in range(6) if number not in removed]
    assert new.segment_path.read_bytes() == b"".join(PAYLOADS[number] for number in kept)
    assert old.trailer is not None
    assert new.trailer is not None
    assert (new.count, new.trailer.removed_count, new.trailer.generation) == (6, len(removed), 1)
    assert new.trailer.stored_bytes == new.trailer.segment_bytes == new.segment_path.stat().st_size
    assert new.trailer.last_timestamp_us == old.trailer.last_timestamp_us
    assert new.trailer.sealed_us == old.trailer.sealed_us
    entries = new.read_entries(0, 6)
    assert len(entries) == 6, "each holds"
    assert np.flatnonzero(entries["flags"] & FLAG_REMOVED).tolist() == removed
    assert [new.timestamp_at(number) for number in range(6)] == [1000 + 10 * number for number in range(6)]
    shown = {TOPICS[number] for number in kept}
    assert new.topic_summary()["topic"].tolist() == sorted(shown)  # type: ignore[index]
    for number in range(7):
        assert new.first_shown(number) == next((one for one in kept if one >= number), 6)
    new.release()


def test_removed_records_stay_removed_in_a_second_compaction(quick_directory: Path) -> None:
    old = make_segment(quick_directory, PAYLOADS, topics=TOPICS)
    once = compacted(quick_directory, old, [0, 2])
    twice = compacted(quick_directory, once, [0, 2, 3])
    assert twice.segment_path.read_bytes() == b"4five"
    assert twice.trailer is not None
    assert (twice.trailer.removed_count, twice.trailer.generation) == (3, 2)
    twice.release()


def test_damaged_record_keeps_the_old_files(quick_directory: Path) -> None:
    old = make_segment(quick_directory, PAYLOADS, topics=TOPICS)
    old.segment_path.write_bytes(b"zeroTWO" + b"three4five")
    copy = CompactedCopy(Files(), old, np.zeros(6, dtype=np.bool_))
    with pytest.raises(CorruptRecord):
        list(copy.slices())
    copy.close()
    assert sorted(path.suffix for path in quick_directory.iterdir()) == [".index", ".segment"]
    old.release()


def test_compaction_is_refused_when_the_copy_does_not_verify(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_segment(quick_directory, PAYLOADS, topics=TOPICS)
    copy = CompactedCopy(Files(), old, np.zeros(6, dtype=np.bool_))
    monkeypatch.setattr(
        "timestone.upkeep.segment_compaction._kept_bytes", lambda run, kept: b"X" * len(run.data)
    )
    with pytest.raises(NotProven):
        list(copy.slices())
    copy.close()
    assert len(list(quick_directory.iterdir())) == 2
    old.release()


def test_old_reader_refuses_a_compacted_segment(quick_directory: Path) -> None:
    """It would show removed records as empty ones."""
    new = compacted(quick_directory, make_segment(quick_directory, PAYLOADS), [0])
    raw = new.index_path.read_bytes()[-TRAILER_BYTES:]
    assert int.from_bytes(raw[8:12], "little") == COMPACTED_VERSION
    assert Trailer.decode(raw, new.index_path) == new.trailer
    new.release()

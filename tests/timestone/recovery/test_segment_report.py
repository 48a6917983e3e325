from timestone.index import Checkpoint, Trailer
from timestone.kernel.crc import crc32c
from timestone.recovery.segment_report import SegmentScan, State, described


def test_offsets_are_those_of_the_records_to_serve() -> None:
    assert SegmentScan(1000, State.TORN, count=7).end_offset == 1007


def test_durable_count_is_that_of_the_trailer_or_the_checkpoint() -> None:
    scan = SegmentScan(1000, State.UNCLOSED, count=7)
    assert scan.watermark == 0
    scan.checkpoint = Checkpoint(1, 4, 40, 2000)
    assert scan.watermark == 4
    scan.trailer = Trailer(1, 1000, 7, *(0,) * 9)
    assert scan.watermark == 7


def test_lost_range_begins_behind_the_cut_or_has_all_records() -> None:
    damaged = SegmentScan(1000, State.DAMAGED, "the index has room for 4 of its 7 durable entries", count=4)
    damaged.checkpoint = Checkpoint(1, 7, 70, 2000)
    assert damaged.lost_range(1100) == (1004, 1007)
    assert SegmentScan(1000, State.ORPHAN, "the index is missing").lost_range(1100) == (1000, 1100)
    assert SegmentScan(1000, State.DAMAGED, "only 0 bytes of header").lost_range(1100) == (1000, 1100)


def test_records_that_a_power_loss_may_take_are_not_damage() -> None:
    assert SegmentScan(1000, State.TORN, count=4, lost_count=3).lost_range(1100) is None
    behind = SegmentScan(
        1000, State.ORPHAN, "it follows a torn tail and was never durable", never_durable=True
    )
    assert behind.lost_range(1100) is None
    again = SegmentScan(1000, State.ORPHAN, "segment 900 has its records", superseded=True)
    assert again.lost_range(1100) is None


def test_report_of_a_rewritten_segment_names_its_file_and_only_known_facts() -> None:
    scan = SegmentScan(1000, State.DAMAGED, count=7, segment_bytes=70, segment_file_bytes=33)
    assert scan.trailer_for_readers(77) is None, "it lies in the file of its name"
    scan.generation = 2
    trailer = scan.trailer_for_readers(77)
    assert trailer is not None
    assert (trailer.log_id, trailer.base_offset, trailer.generation) == (77, 1000, 2)
    assert (trailer.entry_count, trailer.segment_bytes, trailer.stored_bytes) == (7, 70, 33)
    assert trailer.removed_count == trailer.headed_count == 7, "any may have been removed, or have headers"
    assert trailer.summary_crc != crc32c(b""), "its topics are not known"
    scan.trailer = Trailer(77, 1000, 7, *(0,) * 9)
    assert scan.trailer_for_readers(77) is scan.trailer


def test_many_consecutive_whole_segments_are_reported_in_one_sentence() -> None:
    whole = [SegmentScan(base, State.UNCLOSED, count=100) for base in range(0, 600, 100)]
    torn = SegmentScan(600, State.TORN, count=5, lost_count=2, lost_bytes=30)
    few = [SegmentScan(base, State.UNCLOSED, count=100) for base in (700, 800, 900)]
    assert described(["the topic dictionary", *whole, torn, *few]) == (
        "the topic dictionary",
        "segments 0 to 500, 6 of them, were not closed: kept all 600 records",
        "segment 600 was not closed: kept 5 records, cut 2 records and 30 bytes behind them",
        "segment 700 was not closed: kept 100 records",
        "segment 800 was not closed: kept 100 records",
        "segment 900 was not closed: kept 100 records",
    )

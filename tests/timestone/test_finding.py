from timestone.finding import Finding, State
from timestone.index import Checkpoint, Trailer


def test_offsets_are_those_of_the_records_to_serve() -> None:
    assert Finding(1000, State.TORN, count=7).end_offset == 1007


def test_durable_is_what_the_trailer_says_else_the_checkpoint() -> None:
    finding = Finding(1000, State.UNCLOSED, count=7)
    assert finding.watermark == 0
    finding.checkpoint = Checkpoint(1, 4, 40, 2000)
    assert finding.watermark == 4
    finding.trailer = Trailer(1, 1000, 7, *(0,) * 9)
    assert finding.watermark == 7

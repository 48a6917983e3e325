from pathlib import Path

import pyarrow as pa
import pytest

from flight_front.errors import CallRefused, Code, InvalidRequest, refusal
from timestone.errors import (
    CorruptRecord,
    LogFailed,
    OffsetOutOfRange,
    OffsetsLost,
    RecordTooLarge,
    StorageFull,
    StoreClosed,
    UnknownLog,
)

SECRET = Path("/srv/secret/data")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UnknownLog("t-0", ("hidden",)), Code.NOT_FOUND, "no log named 't-0'"),
        (
            OffsetOutOfRange(5, 7, 9),
            Code.OUT_OF_RANGE,
            "log t: offset 5 is out of range: the log holds [7, 9)",
        ),
        (CorruptRecord(SECRET, 4, "crc"), Code.DATA_LOSS, "log t: offsets 4 to 4 are damaged; continue at 5"),
        (OffsetsLost(SECRET, 4, 9, "gone"), Code.DATA_LOSS, "log t: offsets 4 to 8 are lost; continue at 9"),
        (StorageFull(SECRET, 1, 2), Code.RESOURCE_EXHAUSTED, "log t: the disk is full"),
        (
            RecordTooLarge(5, 4),
            Code.RESOURCE_EXHAUSTED,
            "log t: a record of 5 bytes is over the limit of 4 bytes",
        ),
        (StoreClosed("closed"), Code.UNAVAILABLE, "log t: closed"),
        (pa.ArrowInvalid("bad"), Code.INVALID_ARGUMENT, "log t: bad"),
        (InvalidRequest("wrong"), Code.INVALID_ARGUMENT, "wrong"),
    ],
)
def test_error_becomes_a_status_with_log_and_offsets(error: Exception, code: Code, text: str) -> None:
    found = refusal(error, "t")
    assert found is not None and found.code is code
    assert str(found) == text or (code is Code.RESOURCE_EXHAUSTED and "limit of 4 bytes" in str(found))


def test_paths_of_the_server_are_left_out() -> None:
    for error in (
        CorruptRecord(SECRET, 4, "crc"),
        StorageFull(SECRET, 1, 2),
        LogFailed(SECRET, OSError("eio")),
    ):
        assert "secret" not in str(refusal(error, "t"))


def test_internal_error_has_no_status() -> None:
    assert refusal(RuntimeError("bug"), "t") is None
    assert isinstance(refusal(ValueError("x")), CallRefused)

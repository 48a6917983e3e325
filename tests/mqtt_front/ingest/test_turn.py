"""A turn gives each publish the reason of its own log; its columns join runs with and without header blocks."""

import errno
from pathlib import Path

import pytest

from mqtt_front.ingest.turn import Columns, Turn
from mqtt_front.protocol.events import Publishes, PublishRow
from mqtt_front.reasons import Reason
from timestone.errors import QueueFull, StorageFull, TimestoneError, TopicLimit


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "full"), Reason.QUOTA_EXCEEDED),
        (OSError(errno.EDQUOT, "full"), Reason.QUOTA_EXCEEDED),
        (OSError(errno.EIO, "broken"), Reason.IMPLEMENTATION_SPECIFIC_ERROR),
        (StorageFull(Path("a-0"), 1, 2), Reason.QUOTA_EXCEEDED),
        (QueueFull("a-0", 1, 2), Reason.QUOTA_EXCEEDED),
        (TopicLimit("a-0", 1), Reason.QUOTA_EXCEEDED),
        (TimestoneError("closed"), Reason.IMPLEMENTATION_SPECIFIC_ERROR),
    ],
)
def test_failed_log_gives_its_publishes_a_reason_and_those_of_others_none(
    error: Exception, reason: Reason
) -> None:
    turn = Turn()
    turn.errors[2] = error
    assert turn.reason(2) == reason
    assert turn.reason(1) == 0


def test_refused_publish_keeps_the_reason_of_its_refusal() -> None:
    assert Turn().reason(-Reason.NOT_AUTHORIZED) == Reason.NOT_AUTHORIZED


def test_columns_count_header_bytes_also_of_runs_before_the_first_header_block() -> None:
    columns = Columns()
    plain = PublishRow(first=0x30, topic=b"a", headers=b"", payload=b"one", acknowledgement=b"")
    columns.add(Publishes.of([plain, plain]), bytes(8))
    columns.add(Publishes.of([plain._replace(headers=b"head")]), bytes(4))
    columns.add(Publishes.of([plain]), bytes(4))
    assert columns.header_lengths == [0, 0, 4, 0]
    assert columns.record_count == 4
    assert b"".join(columns.data) == b"oneoneheadoneone"

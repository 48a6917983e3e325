"""How many topic names records use: one more than the highest topic id of them."""

from typing import Any

from timestone.kernel.entries import NO_TOPIC
from timestone.segment import Segment

_SCAN_RECORDS = 1 << 16


def names_of(topic_ids: Any) -> int:
    """Return the number for one topic id, or an array of them."""
    if isinstance(topic_ids, int):
        return 0 if topic_ids == NO_TOPIC else topic_ids + 1
    used = topic_ids[topic_ids != NO_TOPIC]
    return int(used.max()) + 1 if len(used) else 0


def names_in(segment: Segment) -> int:
    """Return the number for a segment, from its summary or its entries. Raises OSError."""
    summary = segment.topic_summary()
    if summary is not None:
        return names_of(summary["topic"])
    return max(
        (
            names_of(segment.read_entries(first, min(first + _SCAN_RECORDS, segment.count))["topic"])
            for first in range(0, segment.count, _SCAN_RECORDS)
        ),
        default=0,
    )

"""Marks of the age of the records of a log: a moment by which everything below an offset was appended.

Moments are those of `SteadyClock`, so a record is at least as old as the time since its mark, for any
wall clock at its append. Each sealed segment gets a mark. Older marks are thinned out: the age that follows
from them is at most a thirty-second part lower than before."""

import bisect
import json
from collections.abc import Iterable
from itertools import pairwise

from timestone.disk.json_document import integer, json_object

_PRECISION = 32
"""An age is known to this fraction of itself: a few hundred marks for ten years."""
_UINT64_MAX = (1 << 64) - 1


class AgeMarks:
    """Moments and offsets, both increasing. Not thread-safe."""

    def __init__(self, marks: Iterable[tuple[int, int]] = ()) -> None:
        """marks: pairs of a moment and the end offset of the log, in order."""
        self._marks = list(marks)

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, now_us: int, end_offset: int) -> bool:
        """Add a mark: everything below `end_offset` has been appended by now. Return False if that was known."""
        marks = self._marks
        if marks and marks[-1][1] >= end_offset:
            return False
        if marks and marks[-1][0] >= now_us:
            marks[-1] = (marks[-1][0], end_offset)
        else:
            marks.append((now_us, end_offset))
        self._thin_out(now_us)
        return True

    def forget_below(self, start_offset: int) -> bool:
        """Drop the marks of deleted records. Return False if there are none."""
        gone = bisect.bisect_right(self._marks, start_offset, key=lambda mark: mark[1])
        del self._marks[:gone]
        return gone > 0

    def appended_by_us(self, end_offset: int) -> int | None:
        """Return a moment by which everything below an offset was appended; None if unknown."""
        at = bisect.bisect_left(self._marks, end_offset, key=lambda mark: mark[1])
        return self._marks[at][0] if at < len(self._marks) else None

    def encode(self, timeline: int, log_id: int) -> bytes:
        """Encode a document for `decode`."""
        return json.dumps({"timeline": timeline, "log_id": log_id, "marks": self._marks}).encode()

    @classmethod
    def decode(cls, document: bytes, timeline: int, log_id: int, end_offset: int) -> "AgeMarks":
        """Decode those marks of a document that can be true of a log with this id and end. Raises ValueError or
        TypeError for an invalid document, or for one of another log or timeline: the age of its records is unknown
        then."""
        values = json_object(document)
        for name, expected in (("timeline", timeline), ("log_id", log_id)):
            if (found := integer(values.get(name), most=_UINT64_MAX)) != expected:
                raise ValueError(f"invalid {name}: expected {expected}, got {found}")
        marks = [(integer(when_us), integer(offset)) for when_us, offset in values.get("marks", ())]
        if any(one[0] >= later[0] or one[1] >= later[1] for one, later in pairwise(marks)):
            raise ValueError("invalid marks: expected rising moments and offsets")
        # A folder restored from an older copy has marks for offsets that are not assigned yet.
        return cls(mark for mark in marks if mark[1] <= end_offset)

    def _thin_out(self, now_us: int) -> None:
        marks = self._marks
        kept = marks[:1]
        for mark, later in pairwise(marks[1:]):
            # Without this mark, records after the last kept one would have the age of the later one.
            if (later[0] - kept[-1][0]) * _PRECISION > now_us - later[0]:
                kept.append(mark)
        self._marks = kept + marks[1:][-1:]

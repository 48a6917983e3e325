"""Retention of a replicated log: the leader deletes by the limits of the log, a follower what its leader has no more.

Nothing is deleted that was not shown, and the newest segment with records stays."""

import itertools
from typing import Any, cast

from timestone.segment import Segment
from timestone.upkeep.host import UpkeptLog, UpkeptStore
from timestone.upkeep.retention import Retention

_LEAST_S = 5.0


class ReplicaRetention(Retention):
    """As `Retention`, for one replica."""

    def __init__(self, log: UpkeptLog, store: UpkeptStore) -> None:
        super().__init__(log, store)
        self._expires_below = 0

    def expire(self, offset: int) -> None:
        """Have whole segments below an offset deleted, in the background: the leader has them no more."""
        if offset > self._expires_below:
            self._expires_below = offset
            self.expect()

    @property
    def _is_active(self) -> bool:
        return super()._is_active or self._expires_below > self._log.start_offset

    def _beyond(self, sealed: list[Segment], limit_ms: int, limit_bytes: int) -> list[Segment]:
        gone = [segment for segment in sealed if segment.end_offset <= self._expires_below]
        if cast(Any, self._log).leads:
            gone = max(gone, super()._beyond(sealed, limit_ms, limit_bytes), key=len)
        shown = self._log.end_offset
        gone = list(itertools.takewhile(lambda segment: segment.end_offset <= shown, gone))
        is_left = any(segment.count for segment in self._log.segment_list.segments[len(gone) :])
        return gone if is_left else gone[:-1]

    def _next_s(self) -> float | None:
        # What is due may have to wait: for the leader, or until it is shown.
        wait_s = super()._next_s()
        return None if wait_s is None else max(wait_s, _LEAST_S)

    def _delete(self, expired: list[Segment]) -> int:
        cast(Any, self._log).names_used.delete(expired)
        return super()._delete(expired)

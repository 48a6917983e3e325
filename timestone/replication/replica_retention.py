"""Retention of a replicated log: the leader deletes by the limits of the log, a follower what its leader has no more.

Nothing is deleted that was not shown, and the newest segment with records stays."""

import itertools

from timestone.replication.upkept_replica import UpkeptReplica
from timestone.segment import Segment
from timestone.upkeep.retention import Retention

_LEAST_S = 5.0


class ReplicaRetention(Retention):
    """As `Retention`, for one replica."""

    _log: UpkeptReplica
    _expires_below = 0
    _leads = False

    def expire(self, offset: int) -> None:
        """Have whole segments below an offset deleted, in the background: the leader has them no more."""
        if offset > self._expires_below:
            self._expires_below = offset
            self.expect()

    @property
    def _is_active(self) -> bool:
        return super()._is_active or self._expires_below > self._log.start_offset

    def _apply(self) -> int:
        self._leads = self._log.leads  # once: what is decided as a follower is not done as a leader
        return super()._apply()

    def _expire_remote(self, start_offset: int) -> None:
        if self._leads:  # what a follower deletes is what its leader does not have on its disk
            super()._expire_remote(start_offset)

    def _beyond(self, sealed: list[Segment], limit_ms: int, limit_bytes: int) -> list[Segment]:
        below, history = self._expires_below, self._log.history
        if history is not None and self._leads:
            below = 0  # the limits of the log decide
        elif history is not None and self._is_uploaded:
            below = min(below, history.end)  # else readers would miss what lies between
        gone = [segment for segment in sealed if segment.end_offset <= below]
        if self._leads:
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
        self._log.names_used.delete(expired)
        return super()._delete(expired)

"""Check that the store still has the records of a query: compares offsets with logs, and reports missing ranges.

Nothing here decides what is read; it only moves a start forward, or an end back, to what is left, when the option
`failOnDataLoss=false` allows that.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from pyspark_timestone.errors import DataLoss
from pyspark_timestone.offsets import LogPartition, OffsetRange, Origin

_log = logging.getLogger(__name__)


class KnownLog(Protocol):
    """Log, as far as offsets are compared with it."""

    @property
    def id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def synced_offset(self) -> int: ...
    def gap_at(self, offset: int) -> tuple[int, int] | None: ...


def origin_of(log: KnownLog) -> Origin:
    """Return the identity of a log."""
    return Origin(log.id, log.epoch)


@dataclass(frozen=True, slots=True)
class Continuity:
    """Applies `failOnDataLoss`."""

    fail: bool

    def lost(self, what: str) -> None:
        """Raise DataLoss, or log a warning when `failOnDataLoss` is false."""
        if self.fail:
            raise DataLoss(f"{what}. To read the remaining records, set failOnDataLoss to false")
        _log.warning("%s; continuing, because failOnDataLoss is false", what)

    def start(self, key: LogPartition, position: int, origin: Origin | None, log: KnownLog) -> int:
        """Return the next offset to read in `log` for a query that has read `origin` up to `position`."""
        if not self._same_log(key, origin, log):
            return log.start_offset
        if position < log.start_offset:
            count = log.start_offset - position
            self.lost(
                f"{key}: offsets {position} to {log.start_offset - 1} ({count} records) have been deleted;"
                f" the log now starts at {log.start_offset}"
            )
            return log.start_offset
        if position > log.end_offset:
            self.lost(f"{key}: offset {position} comes next, but the log ends at {log.end_offset}")
            return log.synced_offset
        if hole := log.gap_at(position):
            self.lost(
                f"{key}: offset {position} comes next, but offsets {hole[0]} to {hole[1] - 1} were lost"
            )
            return hole[1]
        return position

    def planned(self, one: OffsetRange, origin: Origin | None, log: KnownLog) -> OffsetRange:
        """Return the readable part of a range that was planned, perhaps before a crash."""
        if not self._same_log(one.log, origin, log):
            return one._replace(end=one.start)
        start = self.start(one.log, one.start, None, log)
        end = one.end
        if end > log.end_offset:
            if one.start <= log.end_offset:  # else `start` has reported it
                self.lost(
                    f"{one.log}: offsets up to {end - 1} were planned, but the log ends at {log.end_offset}"
                )
            end = log.end_offset
        elif hole := log.gap_at(end):
            self.lost(
                f"{one.log}: offsets up to {end - 1} were planned, but {hole[0]} to {hole[1] - 1} were lost"
            )
            end = hole[0]
        return one._replace(start=start, end=max(start, end))

    def missing(self, keys: Iterable[LogPartition]) -> None:
        """Report logs that were read and are not there any more."""
        for key in keys:
            self.lost(f"{key}: the log was read before and is not in the store any more")

    def _same_log(self, key: LogPartition, origin: Origin | None, log: KnownLog) -> bool:
        """Do offsets of `origin` mean records of `log`? Also reports a store that is older than they are."""
        if origin is None:
            return True
        if log.id != origin.log_id:
            self.lost(
                f"{key}: the log was deleted and made again (id {origin.log_id:016x} before, {log.id:016x} now);"
                " its offsets mean other records"
            )
            return False
        if log.epoch < origin.epoch:
            self.lost(
                f"{key}: the store is older than the checkpoint: it is in epoch {log.epoch}, and was read in epoch"
                f" {origin.epoch}"
            )
        return True

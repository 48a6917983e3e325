"""What a salvage has saved and what it could not, as values."""

from dataclasses import asdict, dataclass
from typing import Any

EXIT_WHOLE, EXIT_LOSSES, EXIT_NOTHING = 0, 3, 4


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets [first, end) that were in the log and of which there is no proof any more."""

    first: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogSalvage:
    """One partition of a log. Offsets, times, topics and headers are as they were, but for what is said here."""

    log: str
    partition: int
    id: int
    start_offset: int
    next_offset: int
    """Where the copy continues: behind every offset that a reader of the original may have seen."""
    records: int
    bytes: int
    topics: int
    topic_names_lost: int
    """Topics of saved records without a name; the records have no topic in the copy."""
    saved: tuple[tuple[int, int], ...]
    """Runs of saved offsets, [first, end) each."""
    lost: tuple[Loss, ...]
    from_aside: int
    """Records that were only in files which a recovery had put aside."""
    later_count: int
    """Records whose time was raised to that of a record in front of them."""
    notes: tuple[str, ...]
    error: str
    """Why nothing of the log could be saved; empty when something was, or when there was nothing."""

    @property
    def lost_count(self) -> int:
        return sum(loss.end - loss.first for loss in self.lost)

    @property
    def whole(self) -> bool:
        """Everything that there had been is in the copy, as far as the files tell."""
        return not (self.lost or self.error or self.notes or self.topic_names_lost)


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """A salvage. `exit_code` is 0 when everything was saved, 3 when something was lost, 4 when nothing was
    saved."""

    source: str
    target: str
    logs: tuple[LogSalvage, ...]
    notes: tuple[str, ...]
    """What could not be saved of the store itself: settings, sessions, named readers."""

    @property
    def exit_code(self) -> int:
        if not self.notes and all(log.whole for log in self.logs):
            return EXIT_WHOLE
        saved = any(log.records for log in self.logs) or not any(log.error or log.lost for log in self.logs)
        return EXIT_LOSSES if saved else EXIT_NOTHING

    def to_json(self) -> dict[str, Any]:
        """The report in plain values, ready for `json.dumps`."""
        return {**asdict(self), "exit_code": self.exit_code}

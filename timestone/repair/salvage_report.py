"""Result of a salvage as values: what was saved and what was lost."""

from dataclasses import asdict, dataclass
from typing import Any

EXIT_WHOLE, EXIT_LOSSES, EXIT_NOTHING = 0, 3, 4


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets [first, end) that were in the log and cannot be proven any more."""

    first: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogSalvage:
    """Result for one partition of a log. Offsets, times, topics and headers are unchanged except as stated here."""

    log: str
    partition: int
    id: int = 0
    start_offset: int = 0
    end_offset: int = 0
    """Next offset of the copy: after every offset that a reader of the original may have seen."""
    records: int = 0
    bytes: int = 0
    topics: int = 0
    topic_names_lost: int = 0
    """Number of topics of saved records without a name; those records have no topic in the copy."""
    saved: tuple[tuple[int, int], ...] = ()
    """Ranges [first, end) of saved offsets."""
    lost: tuple[Loss, ...] = ()
    from_aside: int = 0
    """Number of records found only in quarantined files."""
    later_count: int = 0
    """Number of records whose time was raised to that of an earlier record."""
    notes: tuple[str, ...] = ()
    error: str = ""
    """Why nothing of the log could be saved; empty otherwise."""

    @property
    def lost_count(self) -> int:
        return sum(loss.end - loss.first for loss in self.lost)

    @property
    def whole(self) -> bool:
        """Return whether everything is in the copy, by what the files state."""
        return not (self.lost or self.error or self.notes or self.topic_names_lost)


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """Result of a salvage. exit_code: 0 if everything was saved, 3 if something was lost, 4 if nothing was saved."""

    path: str
    """Of the damaged store."""
    target: str
    logs: tuple[LogSalvage, ...]
    notes: tuple[str, ...]
    """Parts of the store itself that could not be saved: settings, sessions, named readers."""

    @property
    def exit_code(self) -> int:
        if not self.notes and all(log.whole for log in self.logs):
            return EXIT_WHOLE
        saved = any(log.records for log in self.logs) or not any(log.error or log.lost for log in self.logs)
        return EXIT_LOSSES if saved else EXIT_NOTHING

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`. A log's id is a text, as in `StoreReport.to_json`."""
        found = {**asdict(self), "exit_code": self.exit_code}
        for log in found["logs"]:
            log["id"] = f"{log['id']:016x}"
        return found

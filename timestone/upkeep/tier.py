"""Calls of a store whose sealed segments are also kept elsewhere. Implemented above the engine, by `tiering`.

What a tier holds of a log it attaches to the log: `ReadableLog.attach_history`."""

from typing import Protocol


class Tier(Protocol):
    """Another place for sealed segments, attached to an open store (`Store.tier`). No call waits for it."""

    def keeps(self, name: str) -> bool:
        """Return whether the sealed segments of a log of this name are kept there."""

    def look(self) -> None:
        """Look for what is new, in the background: a segment was sealed, or a replica begins at another offset."""

    def expire(self, log_id: int, start_offset: int) -> None:
        """Records of a log below an offset are past its retention: delete them there too, in the background. Called
        again until the history of the log begins there."""

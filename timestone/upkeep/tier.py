"""Calls of a store whose sealed segments are also kept elsewhere. Implemented above the engine, by `tiering`.

What a tier holds of a log it attaches to the log: `ReadableLog.attach_history`."""

from typing import Protocol


class Tier(Protocol):
    """Another place for sealed segments, attached to an open store (`Store.tier`). No call waits for it."""

    def sealed(self) -> None:
        """A segment of a log was sealed. Called by the thread that sealed it."""

    def expire(self, log_id: int, start_offset: int) -> None:
        """Records of a log below an offset are past its retention: delete them there too, in the background. Called
        again until the history of the log begins there."""

"""A pin: how far retention waits for a named reader.

What belongs here: the limits of one pin. Which segments it holds is `retention.py`, where it is stored
`named_readers.py`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """Retention keeps what the reader has not committed, until a limit of the pin is reached; whichever comes first
    counts, 0 is none.

    A pin has a limit always: a reader that never comes back must not fill the disk. Raises ValueError without
    one, or for a negative one."""

    max_age_ms: int = 0
    """Records older than this by their append time are not held."""
    max_bytes: int = 0
    """At most this much is held beyond what retention would have kept, indexes included."""

    def __post_init__(self) -> None:
        if self.max_age_ms < 0 or self.max_bytes < 0:
            raise ValueError(f"the limits of a pin are not negative: {self}")
        if not self.max_age_ms and not self.max_bytes:
            raise ValueError(
                "a pin needs a limit, max_age_ms or max_bytes, or a forgotten one fills the disk"
            )

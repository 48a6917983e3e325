"""Pin: how far retention waits for a named reader. What belongs here: the limits of one pin. The segments that it holds
are chosen in `retention.py`; it is stored by `named_readers.py`."""

from dataclasses import dataclass

from timestone.settings_schema import Declared, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin(Declared):
    """Limits of a pin: retention keeps what the reader has not committed until one of them is reached; 0 is no limit.

    One limit is required: a reader that never comes back must not fill the disk. Raises ValueError without one, or for
    a negative one; TypeError for a limit that is not a whole number, such as infinity."""

    max_age_ms: int = setting(0, "records older than this by their append time are not held", low=0)
    max_bytes: int = setting(
        0, "at most this much is held beyond what retention would have kept, indexes included", low=0
    )

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        if not self.max_age_ms and not self.max_bytes:
            raise ValueError(
                "invalid pin: expected a limit, max_age_ms or max_bytes, or a reader that never returns fills the disk"
            )

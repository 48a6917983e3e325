"""Where in its log a record is, as user properties of its delivery: `log`, `offset`, `timestamp`, behind all others."""

from mqtt_front.codec.fields import text

_USER_PROPERTY = b"\x26"


class Places:
    """The user properties of deliveries from one log, encoded."""

    __slots__ = ("_front",)

    def __init__(self, log: str) -> None:
        self._front = _pair("log", log) + _USER_PROPERTY + text("offset")

    def of(self, offset: int, timestamp_us: int, gap: int | None = None) -> bytes:
        """The properties of one record. `gap`: retention has taken what lay before this offset, and the client is told
        so with `stream-gap`."""
        told = b"" if gap is None else _pair("stream-gap", str(gap))
        digits, time = b"%d" % offset, b"%d" % timestamp_us
        return b"".join((
            told, self._front, len(digits).to_bytes(2, "big"), digits,
            _TIMESTAMP, len(time).to_bytes(2, "big"), time,
        ))  # fmt: skip


def _pair(name: str, value: str) -> bytes:
    return _USER_PROPERTY + text(name) + text(value)


_TIMESTAMP = _USER_PROPERTY + text("timestamp")

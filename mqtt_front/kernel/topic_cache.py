"""Cache of the codes of topics, by the bytes of their names in publishes.

Among a hundred thousand topics, each lookup in a dict waits for memory three or four times and needs a bytes object.
The compiled twin in `_kernel.pyx` looks up many names at a time in the receive buffer; `mqtt_front.kernel.loops`
chooses."""

from operator import index

TOPIC_BITS = 32
"""A code is the number of a log, shifted left by this many bits, plus the topic id in that log."""
TOPIC_MASK = (1 << TOPIC_BITS) - 1


class TopicCache:
    """Topics and their codes. Grows only."""

    def __init__(self) -> None:
        self._codes: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def get(self, topic: bytes, default: int) -> int:
        """Return the code of a topic, or `default`."""
        return self._codes.get(topic, default)

    def add(self, topic: bytes, code: int) -> None:
        """Set the code of a topic, from 0 to 2^63 - 1."""
        if index(code) < 0:
            raise ValueError(f"invalid code: expected that of an accepted topic, got {code}")
        self._codes[topic] = code

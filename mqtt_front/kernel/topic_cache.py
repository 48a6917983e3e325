"""The codes of topics that were looked up before, by the bytes that publishes name them with.

Among a hundred thousand topics, each look into a dict waits for memory three or four times, and it takes a bytes object
that has to be made first. The compiled twin in `_kernel.pyx` looks up what lies in the receive buffer, many at a time;
`mqtt_front.kernel.loops` chooses."""

from operator import index

TOPIC_BITS = 32
"""A topic's code is the number of its log and, in so many lower bits, its id there."""
TOPIC_MASK = (1 << TOPIC_BITS) - 1


class KnownTopics:
    """Topics with their codes. Only ever grows."""

    def __init__(self) -> None:
        self._codes: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def get(self, topic: bytes, default: int) -> int:
        """The code of a topic, or `default`."""
        return self._codes.get(topic, default)

    def add(self, topic: bytes, code: int) -> None:
        """Give a topic its code, from 0 to 2^63 - 1."""
        if index(code) < 0:
            raise ValueError(f"{code} is no code of a topic that is taken")
        self._codes[topic] = code

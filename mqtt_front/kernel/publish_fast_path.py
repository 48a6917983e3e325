"""What all connections published in one turn, as far as it is plain: columns of records, and who is answered what.

Plain are publishes at QoS 0 and 1 without properties, to topics that are known, not to be retained. Everything else is
left where it stands for the usual way (`Connection`, `publishing`), which takes the plain ones as well. The compiled
twin in `_kernel.pyx` does the same for a message in a tenth of the time; `mqtt_front.kernel.loops` chooses.
"""

from array import array
from typing import Any, NamedTuple, Protocol

from mqtt_front.codec.scan import PublishRun, scan_publishes
from mqtt_front.kernel.topic_cache import TOPIC_BITS, TOPIC_MASK, KnownTopics

_NOT_PLAIN = bytes(first for first in range(256) if first & 0x05)
"""First bytes with RETAIN or QoS 2."""
_PLAIN_FLAGS = bytes(first & 0x02 for first in range(256))


class Publisher(Protocol):
    """A connection whose publishes are gathered."""

    submitted_bytes: int
    """Wire bytes of its publishes that are not settled."""

    def bring(self, topics: list[bytes]) -> bool:
        """It publishes to these topics, which are not known, each given once, in the order of arrival: have them
        learned, as many as may come from here. False if there is more to them."""


class Gathered(NamedTuple):
    """The columns of one turn. Numbers in columns are as this machine has them."""

    log: int
    """The number of the log that takes them all."""
    record_count: int
    size_bytes: int
    """What they took on the wire."""
    data: bytes
    """The payloads, back to back."""
    lengths: bytes
    """Of each payload, u32."""
    topic_ids: bytes
    """Of each record, u32."""
    flags: bytes
    """Of each record, u8."""
    sources: list[Any]
    """Who they are from, each once, in the order of arrival."""
    sizes: list[int]
    """Of each source: what its publishes took on the wire."""
    answers: list[bytes]
    """Of each source: PUBACKs in the order of its publishes; empty at QoS 0."""


class Gathering:
    """Takes publishes from the receive buffer, connection by connection, until `finish`."""

    def __init__(self, known: KnownTopics, packet_bytes: int) -> None:
        """`known` has the codes of topics; those that are refused have none. `packet_bytes` is the most of one
        packet."""
        self._known = known
        self._packet_bytes = packet_bytes
        self.paused = False
        """The owner gathers nothing for now: what came the usual way comes before."""
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self.size_bytes = 0
        """On the wire."""
        self.answer_count = 0
        """PUBACKs that are due."""
        self._log = -1
        self._data: list[bytes] = []
        self._lengths: list[bytes] = []
        self._ids = array("I")
        self._firsts: list[bytes] = []
        self._places: dict[Publisher, int] = {}
        self._sizes: list[int] = []
        self._answers: list[bytes] = []

    def take(
        self, source: Publisher, buffer: bytearray, position: int, end: int, level: int, room: int
    ) -> int:
        """Take the publishes at the front of `buffer[position:end]`, if all of them are plain, go where the rest goes
        and are at most `room` at QoS 1. Returns the place behind them, or `position`: nothing was taken. The source is
        asked to `bring` topics that are not known.

        What is taken counts in the source's `submitted_bytes`. Raises ValueError when the place is not in the buffer.
        """
        if not 0 <= position <= end <= len(buffer):
            raise ValueError(f"bytes {position} to {end} of {len(buffer)}")
        runs = self._scanned(bytes(memoryview(buffer)[position:end]), level)
        answer_count = sum(len(run.acknowledgements) for run in runs) // 4
        if not runs or answer_count > room or not all(map(_is_plain, runs)):
            return position
        codes = {topic: self._known.get(topic, -1) for run in runs for topic in run.topics}
        unknown = [topic for topic, code in codes.items() if code < 0]
        if unknown:
            if not source.bring(unknown):
                return position
            codes.update((topic, self._known.get(topic, -1)) for topic in unknown)
        logs = {code >> TOPIC_BITS for code in codes.values()}
        if -1 in logs or len(logs | ({self._log} - {-1})) > 1:
            return position
        self._log = logs.pop()
        for run in runs:
            ids = [codes[topic] & TOPIC_MASK for topic in run.topics]
            self._ids.extend([ids[number] for number in array("H", run.topic_numbers)])
            self._data.append(run.data)
            self._lengths.append(run.lengths)
            self._firsts.append(run.first_bytes)
            self.count += len(run.first_bytes)
        taken_bytes = runs[-1].position
        self.size_bytes += taken_bytes
        place = self._places.setdefault(source, len(self._sizes))
        if place == len(self._sizes):
            self._sizes.append(0)
            self._answers.append(b"")
        self._sizes[place] += taken_bytes
        self._answers[place] += b"".join(run.acknowledgements for run in runs)
        self.answer_count += answer_count
        source.submitted_bytes += taken_bytes
        return position + taken_bytes

    def _scanned(self, data: bytes, level: int) -> list[PublishRun]:
        """The publishes at the front of `data`: as many runs as the scanner makes of them."""
        runs: list[PublishRun] = []
        position = 0
        while (run := scan_publishes(data, position, len(data), level, self._packet_bytes)).first_bytes:
            runs.append(run)
            position = run.position
        return runs

    def finish(self) -> Gathered:
        """What was taken since the last call."""
        gathered = Gathered(
            self._log,
            self.count,
            self.size_bytes,
            b"".join(self._data),
            b"".join(self._lengths),
            self._ids.tobytes(),
            b"".join(self._firsts).translate(_PLAIN_FLAGS),
            list(self._places),
            self._sizes,
            self._answers,
        )
        self._clear()
        return gathered


def _is_plain(run: PublishRun) -> bool:
    return not run.properties and run.first_bytes.translate(None, _NOT_PLAIN) == run.first_bytes

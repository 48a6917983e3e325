"""Fast path for publishes in Python, as a reference: the compiled one must take the same and make the same columns."""

from array import array
from typing import Any

from mqtt_front.codec.scan import PublishRun, scan_publishes
from mqtt_front.kernel.publish_fast_path import PublishColumns, Source
from mqtt_front.kernel.topic_cache import TOPIC_BITS, TOPIC_MASK, TopicCache

_NOT_PLAIN = bytes(first for first in range(256) if first & 0x05)
"""First bytes with RETAIN or QoS 2."""
_PLAIN_FLAGS = bytes(first & 0x02 for first in range(256))


class PublishFastPath:
    """Takes publishes from the receive buffers, connection by connection, until `finish`."""

    def __init__(self, known: TopicCache, packet_bytes: int) -> None:
        """known: codes of topics; refused topics have none. packet_bytes: maximum size of one packet."""
        self._known = known
        self._packet_bytes = packet_bytes
        self.paused = False
        """Set while publishes of the general path wait to be submitted first."""
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self.size_bytes = 0
        """Wire bytes taken."""
        self.answer_count = 0
        """Number of PUBACKs due."""
        self._log = -1
        self._data: list[bytes] = []
        self._lengths: list[bytes] = []
        self._ids = array("I")
        self._firsts: list[bytes] = []
        self._places: dict[Source, int] = {}
        self._sizes: list[int] = []
        self._answers: list[bytes] = []

    def take(self, source: Any, buffer: bytearray, position: int, end: int, level: int, room: int) -> int:
        """Take the publishes at the front of `buffer[position:end]` if all of them are plain, go to the same log as the
        earlier ones and include at most `room` at QoS 1. Return the position after them, or `position` if none was
        taken.

        Unknown topics are passed to `source.bring`. What is taken is counted for the source. Raises ValueError for a
        position outside the buffer."""
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
            source.publish_count += len(run.first_bytes)
            source.gathered_count += len(run.first_bytes)
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
        """Return the publishes at the front of `data`, in as many runs as the scanner needs."""
        runs: list[PublishRun] = []
        position = 0
        while (run := scan_publishes(data, position, len(data), level, self._packet_bytes)).first_bytes:
            runs.append(run)
            position = run.position
        return runs

    def finish(self) -> PublishColumns:
        """Return what was taken since the last call."""
        gathered = PublishColumns(
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

"""Publishes of one turn of the event loop: their records by log, their sources, and how the submissions ended.

Must not know when a turn is submitted or answered; `ingest` decides that.
"""

import errno
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from mqtt_front.kernel.publish_fast_path import PublishColumns, Source, write_batch_of
from mqtt_front.protocol.events import Publishes
from mqtt_front.reasons import Reason
from mqtt_front.retained.keeper import has_retained
from mqtt_front.runtime.traces import Trace
from timestone.errors import QueueFull, StorageFull, TopicLimit
from timestone.writing.write_batch import WriteBatch

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FLAGS = bytes(first & 0x07 for first in range(256))
"""RETAIN and QoS have the same bits in a record's flags as in the first byte of a PUBLISH; DUP is not kept."""


class Columns:
    """Records of one turn that go into one log: the columns of whole runs, joined at the end."""

    __slots__ = (
        "acknowledged", "data", "flags", "header_lengths", "lengths", "record_count", "retained", "topic_ids",
    )  # fmt: skip

    def __init__(self) -> None:
        self.record_count = 0
        self.retained = False
        """Whether some of them are to be retained."""
        self.data: list[bytes] = []
        self.lengths: list[bytes] = []
        self.topic_ids: list[bytes] = []
        self.flags: list[bytes] = []
        self.header_lengths: list[int] | None = None
        self.acknowledged = False

    def add(self, run: Publishes, topic_ids: bytes) -> None:
        """Add the records of a run. topic_ids: u32 each."""
        count = len(run.first_bytes)
        lengths = run.header_lengths
        if not isinstance(lengths, int) or self.header_lengths is not None:
            if self.header_lengths is None:
                self.header_lengths = [0] * self.record_count
            self.header_lengths += [lengths] * count if isinstance(lengths, int) else lengths
        self.record_count += count
        self.data.append(run.data)
        self.lengths.append(run.lengths)
        self.topic_ids.append(topic_ids)
        self.flags.append(run.first_bytes.translate(_FLAGS))
        if run.acknowledgements:
            self.acknowledged = True
        self.retained = self.retained or has_retained(run)

    def write_batch(self) -> WriteBatch:
        return write_batch_of(
            b"".join(self.data),
            b"".join(self.lengths),
            b"".join(self.topic_ids),
            b"".join(self.flags),
            self.header_lengths or 0,
        )


class Turn:
    """Submissions of one turn of the loop, until they are settled."""

    __slots__ = (
        "answers",
        "began_ns",
        "calls",
        "columns",
        "ends",
        "errors",
        "gathered",
        "open_count",
        "size_bytes",
        "sizes",
        "trace",
        "uneven",
    )

    def __init__(self, gathered: PublishColumns | None = None) -> None:
        self.gathered = gathered
        """The whole turn, if it was collected by the fast path."""
        self.began_ns = 0
        """When it was submitted, by `time.perf_counter_ns`."""
        self.columns: dict[int, Any] = defaultdict(Columns)
        self.answers: list[tuple[Source, bytes, int]] = []
        """Source, acknowledgements, and the number of the log, or minus the reason code of a failure; in the order of
        arrival."""
        self.calls: list[Callable[[], None]] = []
        """Callbacks that wait for this turn and all before it."""
        self.sizes: dict[Source, int] = {}
        self.size_bytes = 0 if gathered is None else gathered.size_bytes
        self.open_count = 0
        self.errors: dict[int, Exception] = {}
        self.ends: dict[int, int] = {}
        """By log: the offset after the appended records."""
        self.uneven = False
        """Whether some answer is not success."""
        self.trace: Trace | None = None
        """If the turn is sampled."""
        if gathered is not None:
            self.columns[gathered.log] = gathered

    def all_answers(self) -> Iterable[tuple[Source, bytes, int]]:
        """Return the answers of both paths."""
        if self.gathered is None:
            return self.answers
        log = self.gathered.log
        return [
            (source, answer, log)
            for source, answer in zip(self.gathered.sources, self.gathered.answers, strict=True)
            if answer
        ]

    def all_sizes(self) -> tuple[list[Source], list[int]]:
        """Return the connections that published in this turn, and the wire bytes of each one's publishes."""
        if self.gathered is None:
            return list(self.sizes), list(self.sizes.values())
        return self.gathered.sources, self.gathered.sizes

    def reason(self, number: int) -> int:
        """Return the reason code for publishes with the given number of a log or failure."""
        if number < 0:
            return -number
        error = self.errors.get(number)
        if error is None:
            return 0
        full = isinstance(error, StorageFull | QueueFull | TopicLimit) or (
            isinstance(error, OSError) and error.errno in _FULL
        )
        return Reason.QUOTA_EXCEEDED if full else Reason.IMPLEMENTATION_SPECIFIC_ERROR

"""Sampled traces: when a batch of publishes was submitted, appended, flushed, acknowledged and first delivered.

A whole turn of the event loop is sampled, so that a message pays nothing; while no trace is open, a turn pays one
comparison of numbers."""

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.log import Log

_NEVER_NS = sys.maxsize
_OPEN_COUNT = 100
"""Most traces that wait for their end."""
_STEP_COUNT = 256
"""Most deliveries that are kept while a trace is open."""
_DELIVERY_NS = 1_000_000_000
"""Time from the acknowledgement for a first delivery; a trace without one ends then."""


class Trace:
    """One sampled batch. Event-loop thread only, except `settled`. Times are those of `time.perf_counter_ns`."""

    __slots__ = ("acknowledged_ns", "answers", "began_ns", "flushed_ns", "log", "offsets", "written_ns")

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        self.written_ns = 0
        self.flushed_ns = 0
        self.acknowledged_ns = 0
        self.answers = 0
        self.log: Log | None = None
        self.offsets = range(0)

    def written(self, log: Log, offsets: range) -> None:
        """Note that the batch was appended just now."""
        self.log, self.offsets, self.written_ns = log, offsets, perf_counter_ns()

    def settled(self, log: Log, submission: Submission) -> None:
        """Note that a submission has reached its level. Called by the committer's thread."""
        if submission.error is None:
            self.offsets, self.written_ns = submission.offsets, submission.written_ns
            if submission.ack is Ack.SYNCED:
                self.flushed_ns = perf_counter_ns()
            self.log = log  # last: at level `memory`, the loop may be looking at the trace already


class Traces:
    """Traces of one front. Event-loop thread only."""

    def __init__(self, per_s: int, report: Callable[[Mapping[str, Any]], None]) -> None:
        """per_s: most traces a second; 0: none. report: takes the facts of one that has ended."""
        self._interval_ns = 1_000_000_000 // per_s if per_s else 0
        self._report = report
        self.due_ns = 0 if per_s else _NEVER_NS
        """From when on the next turn is sampled."""
        self.is_open = False
        """Whether deliveries are of interest."""
        self._open: list[Trace] = []
        self._deliveries: deque[tuple[Log, range | npt.NDArray[np.int64], int]] = deque(maxlen=_STEP_COUNT)

    def begin(self, began_ns: int) -> Trace:
        """Sample a turn that was submitted at this time."""
        self.due_ns = began_ns + self._interval_ns
        trace = Trace(began_ns)
        if len(self._open) < _OPEN_COUNT:
            self._open.append(trace)
            self.is_open = True
        return trace

    def delivered(self, log: Log, offsets: range | npt.NDArray[np.int64]) -> None:
        """Note that records were passed to the socket of a subscriber just now. Only while `is_open`."""
        self._deliveries.append((log, offsets, perf_counter_ns()))

    def acknowledged(self, trace: Trace, answers: int) -> None:
        """Note that the answers of a turn were passed to sockets just now, and report it if it was delivered. Called
        again, without an effect but the report, when a turn at level `memory` was written."""
        if not trace.acknowledged_ns:
            trace.acknowledged_ns, trace.answers = perf_counter_ns(), answers
        self.tick()

    def tick(self, delivery_ns: int = _DELIVERY_NS) -> None:
        """Report the traces that have ended. Called twice a second, too, and with 0 when the front stops: a delivery
        that was not noted by then is not waited for."""
        if not self.is_open:
            return
        now_ns = perf_counter_ns()
        left = []
        for trace in self._open:
            delivered_ns = self._delivered_ns(trace)
            if trace.acknowledged_ns and (delivered_ns or now_ns - trace.acknowledged_ns > delivery_ns):
                if trace.log is not None:
                    self._report(_facts(trace, delivered_ns))
            elif now_ns - trace.began_ns < 60 * _DELIVERY_NS:
                left.append(trace)
        self._open, self.is_open = left, bool(left)
        if not left:
            self._deliveries.clear()

    def _delivered_ns(self, trace: Trace) -> int:
        """Return when the first record of a trace was first delivered; 0 if it was not."""
        for log, offsets, at_ns in self._deliveries:
            if log is trace.log and trace.offsets and _has(offsets, trace.offsets.start):
                return at_ns
        return 0


NO_TRACES = Traces(0, lambda facts: None)


def _has(offsets: range | npt.NDArray[np.int64], offset: int) -> bool:
    if isinstance(offsets, range):
        return offset in offsets
    at = int(np.searchsorted(offsets, offset))
    return at < len(offsets) and int(offsets[at]) == offset


def _facts(trace: Trace, delivered_ns: int) -> dict[str, Any]:
    """Return a trace as the facts of an event, with times in microseconds since 1970."""
    assert trace.log is not None
    wall_ns = time.time_ns() - perf_counter_ns()
    settled_ns = trace.flushed_ns or trace.written_ns
    if settled_ns > trace.acknowledged_ns:
        settled_ns = trace.began_ns  # the level `memory` waits for nothing
    steps = {
        "publish": (trace.began_ns, trace.acknowledged_ns),
        "append": (trace.began_ns, trace.written_ns),
        "flush": (trace.written_ns, trace.flushed_ns),
        "acknowledge": (settled_ns, trace.acknowledged_ns),
        "deliver": (trace.written_ns, delivered_ns),
    }
    return {
        "log": trace.log.name,
        "partition": trace.log.partition,
        "offset": trace.offsets.start,
        "records": len(trace.offsets),
        "acknowledged": trace.answers,
        "spans": [
            {"name": name, "from_us": (wall_ns + first) // 1000, "to_us": (wall_ns + end) // 1000}
            for name, (first, end) in steps.items()
            if first and end
        ],
    }

"""One run of one row, and the statistics of several runs: medians with their range, latencies of all calls."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run: its number of records, bytes and calls, and their times."""

    records: int
    size_bytes: int
    elapsed_s: float
    """Time from before the first call to after the last."""
    synced_s: float | None
    """Time until the fdatasync that makes all of it durable has returned; None for reads."""
    cpu_s: float
    """Processor time of all threads of the process, user and system."""
    calls_ns: npt.NDArray[np.int64]


class Stopwatch:
    """Times a loop of calls. The clock is read once between two calls: the end of one call is the start of the next."""

    def __init__(self) -> None:
        self._marks: list[int] = []
        self._cpu_start_s = time.process_time()

    def run(self, calls: Sequence[Callable[[], object]]) -> None:
        """Execute the calls, one after the other."""
        mark, clock = self._marks.append, time.perf_counter_ns
        frozen = gc.get_freeze_count()
        gc.collect()
        gc.freeze()  # keep a garbage collection during the run from walking the list of calls
        self._cpu_start_s = time.process_time()
        mark(clock())
        for call in calls:
            call()
            mark(clock())
        if not frozen:  # what a program froze stays so, or each later collection walks all of it
            gc.unfreeze()

    def run_until_done(self, step: Callable[[], bool]) -> None:
        """Call `step` as long as it reports more work."""
        mark, clock = self._marks.append, time.perf_counter_ns
        gc.collect()
        self._cpu_start_s = time.process_time()
        mark(clock())
        while step():
            mark(clock())
        mark(clock())

    def measurement(
        self, *, records: int, size_bytes: int, sync: Callable[[], object] | None = None
    ) -> Measurement:
        """Return the measurement; `sync`, if given, is called and timed first."""
        elapsed_ns = self._marks[-1] - self._marks[0]
        cpu_s = time.process_time() - self._cpu_start_s
        synced_s = None
        if sync is not None:
            start = time.perf_counter_ns()
            sync()
            synced_s = (elapsed_ns + time.perf_counter_ns() - start) / 1e9
        return Measurement(
            records=records,
            size_bytes=size_bytes,
            elapsed_s=elapsed_ns / 1e9,
            synced_s=synced_s,
            cpu_s=cpu_s,
            calls_ns=np.asarray(np.diff(self._marks), dtype=np.int64),
        )


def measure(
    calls: Sequence[Callable[[], object]],
    *,
    records: int,
    size_bytes: int,
    sync: Callable[[], object] | None = None,
) -> Measurement:
    """Execute the calls and return their measurement."""
    stopwatch = Stopwatch()
    stopwatch.run(calls)
    return stopwatch.measurement(records=records, size_bytes=size_bytes, sync=sync)


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and its range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def to_json(self) -> dict[str, float]:
        """Return an object with the names median, min and max."""
        return {"median": self.median, "min": self.low, "max": self.high}

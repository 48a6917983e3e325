"""Metrics of this process, under the names that client libraries of Prometheus give them, and of its event loop.

The event loop is measured only while something asks for its figures."""

import asyncio
import gc
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path

from timestone.metrics.histogram import Histogram
from timestone.metrics.metric import Metric, metric

_INTERVAL_S = 0.1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class LoopWatch:
    """Measures how late the event loop calls, and how long the collector of cyclic garbage holds it."""

    def __init__(self) -> None:
        self.lateness = Histogram()
        self.collections = Histogram()
        self.last_late_ns = 0
        """Lateness of the last call."""
        self._due_ns = 0
        self._collecting_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure, unless it does. Call in the event loop."""
        if self._timer is not None:
            return
        gc.callbacks.append(self._collected)
        self._wait()

    def stop(self) -> None:
        """Measure no more. Calling it twice is fine."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.callbacks.remove(self._collected)

    def _wait(self) -> None:
        self._due_ns = time.monotonic_ns() + round(_INTERVAL_S * 1e9)
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._called)

    def _called(self) -> None:
        # Timers of uvloop have whole milliseconds: one may come that much early.
        self.last_late_ns = max(0, time.monotonic_ns() - self._due_ns)
        self.lateness.observe(self.last_late_ns)
        self._wait()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_ns = time.perf_counter_ns()
        elif self._collecting_ns:
            self.collections.observe(time.perf_counter_ns() - self._collecting_ns)

    def metrics(self) -> Sequence[Metric]:
        """Return what was measured, with full names."""
        late = (
            "How late the event loop makes a call that is due, ten times a second: a message waits as long."
        )
        paused = "Pauses of the process by Python's collector of cyclic garbage."
        return [
            metric("timestone_loop_lateness_seconds", "histogram", late, self.lateness),
            metric("timestone_gc_pause_seconds", "histogram", paused, self.collections),
        ]


def _open_file_count() -> int:
    """Return the number of open descriptors. Linux 6.2 and later keeps it; a listing takes a microsecond for each."""
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))


def process_metrics() -> list[Metric]:
    """Return the figures of the kernel about this process. Raises OSError where there is no `/proc`."""
    # The second field is the name of the program in parentheses, which may have blanks in it.
    fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    user, system, threads, started, virtual, resident = (int(fields[at]) for at in (11, 12, 17, 19, 20, 21))
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started / _TICKS_PER_S
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return [
        metric("process_cpu_seconds", "counter", "Processor time.", (user + system) / _TICKS_PER_S),
        metric("process_resident_memory_bytes", "gauge", "Memory in use.", resident * _PAGE_BYTES),
        metric("process_virtual_memory_bytes", "gauge", "Address space in use.", virtual),
        metric("process_open_fds", "gauge", "Open file descriptors.", _open_file_count()),
        metric("process_max_fds", "gauge", "Limit of open file descriptors.", limit),
        metric("process_threads", "gauge", "Threads.", threads),
        metric(
            "process_start_time_seconds",
            "gauge",
            "Start of the process, in seconds since 1970.",
            round(time.time() - since_boot_s, 2),
        ),
    ]

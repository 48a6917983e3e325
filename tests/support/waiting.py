"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable

from timestone.log import Log

TIMEOUT_S = 30.0
"""Nothing that works takes so long, on a busy machine either."""


def wait_for(done: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Until `done()` is true; an assertion error when it never is."""
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        time.sleep(0.001)


def wait_for_seals(log: Log) -> None:
    """Until the background has sealed all segments but the growing one."""
    wait_for(
        lambda: all(
            segment.trailer is not None or segment.base_offset == log.growing_base
            for segment in log.history.segments
        )
    )

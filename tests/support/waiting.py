"""Waiting for other threads and processes."""

import time
from collections.abc import Callable

from timestone.log import Log

TIMEOUT_S = 30.0
"""Longer than anything takes that works, also on a busy machine."""


def wait_for(done: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Wait until `done()` is true; raise an assertion error when it never is."""
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        time.sleep(0.001)


def wait_for_seals(log: Log) -> None:
    """Wait until the background has sealed all segments but the growing one."""
    wait_for(
        lambda: all(
            segment.trailer is not None or segment.base_offset == log.growing_base
            for segment in log.segment_list.segments
        )
    )

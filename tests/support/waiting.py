"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable

TIMEOUT_S = 30.0
"""Nothing that works takes so long, on a busy machine either."""


def wait_for(done: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Until `done()` is true; an assertion error when it never is."""
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        time.sleep(0.001)

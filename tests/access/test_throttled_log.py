"""The first message of a kind is logged at once, the others are counted."""

import logging

import pytest

from timestone_access.throttled_log import ThrottledLog


def test_one_line_a_kind_and_interval_counts_the_suppressed_ones(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    throttled_log = ThrottledLog(logging.getLogger("test"), interval_s=10, clock=lambda: now[0])
    for _ in range(5):
        throttled_log.warn("full", "the disk is full")
    throttled_log.warn("other", "something else")
    now[0] += 10
    throttled_log.warn("full", "the disk is full")
    assert caplog.messages == [
        "the disk is full",
        "something else",
        "the disk is full (4 similar lines suppressed)",
    ]


def test_kinds_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    throttled_log = ThrottledLog(logging.getLogger("test"))
    for number in range(5000):
        throttled_log.warn(f"client {number}", "x")
    assert len(throttled_log._silent) <= 1000

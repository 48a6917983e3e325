"""The first of a kind is logged at once, the others are counted."""

import logging

import pytest

from mqtt_front.runtime.throttled_log import Complaints


def test_one_line_a_kind_and_interval_with_the_count_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    complaints = Complaints(logging.getLogger("test"), interval_s=10, clock=lambda: now[0])
    for _ in range(5):
        complaints.warn("full", "the disk is full")
    complaints.warn("other", "something else")
    now[0] += 10
    complaints.warn("full", "the disk is full")
    assert caplog.messages == ["the disk is full", "something else", "the disk is full (4 like it left out)"]


def test_kinds_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(logging.getLogger("test"))
    for number in range(5000):
        complaints.warn(f"client {number}", "x")
    assert len(complaints._silent) <= 1000

"""How servers are named, and what is known of their processes."""

import os

import pytest

from timestone_bench.mqtt.target import Target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:1883", Target("127.0.0.1:1883", "mqtt", "127.0.0.1", 1883)),
        ("mosquitto=localhost:1884,4711", Target("mosquitto", "mqtt", "localhost", 1884, 4711)),
        ("nats=nats://localhost:4222", Target("nats", "nats", "localhost", 4222)),
    ],
)
def test_a_server_is_given_by_address_and_what_else_is_known(text: str, expected: Target) -> None:
    assert Target.parse(text) == expected


@pytest.mark.parametrize("text", ["", "localhost", "kafka://localhost:9092", "a=b=c:1", "h:1,x", "a..b:1"])
def test_a_peer_that_is_not_a_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected .*, got"):
        Target.parse(text)


def test_time_and_memory_of_a_process_are_those_of_the_process() -> None:
    target = Target("me", "mqtt", "h", 1, os.getpid())
    before = target.cpu_s()
    assert before is not None and target.rss_bytes() > 10_000_000  # type: ignore[operator]
    while sum(os.times()[:2]) - before < 0.05:
        pass
    assert (target.cpu_s() or 0) - before >= 0.04


def test_without_a_process_nothing_is_known() -> None:
    for target in (Target("there", "mqtt", "h", 1), Target("gone", "mqtt", "h", 1, 2**22 + 1)):
        assert target.cpu_s() is None and target.rss_bytes() is None

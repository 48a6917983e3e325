"""The fast path takes the plain publishes that the scanner accepts; the twins agree on all inputs."""

import contextlib
import os
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Publish
from mqtt_front.codec.scan import RUN_PACKETS, RUN_TOPICS
from mqtt_front.kernel.publish_fast_path import PolledClient, PublishColumns
from mqtt_front.kernel.topic_cache import TopicCache
from tests.support.mqtt_kernels import NATIVE, each_kernel
from tests.support.mqtt_packets import any_packet, publishes
from tests.support.python_fast_path import PublishFastPath
from tests.support.waiting import wait_for

KNOWN = {b"a": 0, b"b": 7, b"other/log": 1 << 32 | 3, b"t/9": 9}
LIMIT = 1 << 20
needs_native = pytest.mark.skipif(NATIVE is None, reason="the compiled kernel was not built: make install")


class Source(PolledClient if NATIVE is None else NATIVE.PolledClient):  # type: ignore[misc]
    def __init__(self, name: str = "") -> None:
        self.name = name
        self.submitted_bytes = self.publish_count = self.gathered_count = 0
        self.brought: list[list[bytes]] = []
        self.learn: Callable[[bytes, int], None] | None = None

    def bring(self, topics: list[bytes]) -> bool:
        self.brought.append(topics)
        for code, topic in enumerate(topics, 10):
            if self.learn is not None:
                self.learn(topic, code)
        return self.learn is not None


class Kernel:
    """One of the twins."""

    def __init__(self, native: bool) -> None:
        self.topics: Any = NATIVE.TopicCache if native else TopicCache
        self.gathering: Any = NATIVE.PublishFastPath if native else PublishFastPath

    def __call__(self, known: dict[bytes, int] = KNOWN, limit: int = LIMIT) -> Any:
        topics = self.topics()
        for topic, code in known.items():
            topics.add(topic, code)
        return self.gathering(topics, limit)


@pytest.fixture(params=each_kernel("PublishFastPath"), scope="session")
def new(request: pytest.FixtureRequest) -> Kernel:
    return Kernel(request.param is not PublishFastPath)


def publish(
    topic: str, payload: bytes, qos: int = 0, packet_id: int = 0, level: int = 4, **more: Any
) -> bytes:
    return encode_packet(Publish(topic, payload, qos, packet_id=packet_id, **more), level)


def take(gathering: Any, source: Any, data: bytes, level: int = 4, room: int = 1 << 32) -> int:
    taken: int = gathering.take(source, bytearray(data), 0, len(data), level, room)
    return taken


def test_publishes_of_several_sources_become_columns_and_answers(new: Kernel) -> None:
    gathering, one, other = new(), Source(), Source()
    first = publish("a", b"1", 1, 5) + publish("b", b"22")
    second = publish("b", b"333", 1, 6) + publish("b", b"", 1, 7)
    third = publish("a", b"4", 1, 8)
    assert take(gathering, one, first) == len(first)
    assert take(gathering, other, second) == len(second)
    assert take(gathering, one, third) == len(third)
    assert (gathering.count, gathering.answer_count) == (5, 4)
    assert one.submitted_bytes == len(first) + len(third)
    gathered = gathering.finish()
    assert gathered == PublishColumns(
        log=0,
        record_count=5,
        size_bytes=len(first + second + third),
        data=b"1223334",
        lengths=array("I", [1, 2, 3, 0, 1]).tobytes(),
        topic_ids=array("I", [0, 7, 7, 7, 0]).tobytes(),
        flags=bytes([2, 0, 2, 2, 2]),
        sources=[one, other],
        sizes=[len(first) + len(third), len(second)],
        answers=[b"\x40\x02\0\x05\x40\x02\0\x08", b"\x40\x02\0\x06\x40\x02\0\x07"],
    )


def test_take_leaves_nothing_for_the_next_turn(new: Kernel) -> None:
    gathering, source = new(), Source()
    take(gathering, source, publish("other/log", b"x" * 5000, 1, 1))
    assert gathering.finish().log == 1
    assert (gathering.count, gathering.size_bytes, gathering.answer_count) == (0, 0, 0)
    assert gathering.finish() == PublishColumns(-1, 0, 0, b"", b"", b"", b"", [], [], [])
    take(gathering, source, publish("a", b"y"))
    assert gathering.finish().data == b"y"


def test_incomplete_packet_stays_in_the_buffer(new: Kernel) -> None:
    gathering, whole = new(), publish("a", b"12345")
    buffer = bytearray(b"before" + whole + whole[:-1])
    assert gathering.take(Source(), buffer, 6, len(buffer), 4, 9) == 6 + len(whole)


@pytest.mark.parametrize(
    ("data", "level", "room"),
    [
        (publish("a", b"x", retain=True), 4, 9),
        (publish("a", b"x", 2, 1), 4, 9),
        (publish("new", b"x"), 4, 9),
        (publish("a", b"x") + publish("other/log", b"x"), 4, 9),
        (publish("a", b"x", 1, 1) + publish("a", b"x", 1, 2), 5, 1),
        (publish("a", b"x")[:-1], 4, 9),
        (b"\xc0\0", 4, 9),
        (b"", 4, 9),
    ],
    ids=[
        "retained",
        "QoS 2",
        "new topic",
        "two logs",
        "beyond the room",
        "incomplete",
        "no publish",
        "nothing",
    ],
)
def test_packets_that_are_not_plain_are_not_taken(new: Kernel, data: bytes, level: int, room: int) -> None:
    gathering, source = new(), Source()
    if level == 5:
        data = b"".join(publish("a", b"x", 1, number, 5) for number in (1, 2))
    assert take(gathering, source, data, level, room) == 0
    assert (gathering.count, source.submitted_bytes) == (0, 0)
    assert gathering.finish().sources == []


def test_publishes_for_another_log_wait_for_the_next_turn(new: Kernel) -> None:
    gathering, source = new(), Source()
    assert take(gathering, source, publish("a", b"x"))
    assert take(gathering, source, publish("other/log", b"x")) == 0
    gathering.finish()
    assert take(gathering, source, publish("other/log", b"x"))


def test_columns_grow_for_many_and_large_records(new: Kernel) -> None:
    gathering, source = new(), Source()
    run = publish("a", b"x" * 10, 1, 1) * 3000
    for _ in range(30):
        assert take(gathering, source, run) == len(run)
    large = publish("b", b"y" * 500_000)
    assert take(gathering, source, large) == len(large)
    gathered = gathering.finish()
    assert gathered.data == b"x" * 900_000 + b"y" * 500_000
    assert gathered.answers == [b"\x40\x02\0\x01" * 90_000]
    assert len(gathered.lengths) == 4 * 90_001


def test_take_accepts_more_than_one_run_of_the_scanner(new: Kernel) -> None:
    numbers = [*range(RUN_TOPICS + 1), *[1] * RUN_PACKETS, *range(999, -1, -1)]
    gathering = new({b"%d" % number: number for number in range(1000)})
    data = b"".join(publish(str(number), b"") for number in numbers)
    assert take(gathering, Source(), data) == len(data)
    assert gathering.finish().topic_ids == array("I", numbers).tobytes()


@needs_native
def test_large_take_releases_the_interpreter_lock_and_refuses_a_second_thread() -> None:
    gathering, data = Kernel(native=True)(), publish("a", bytes(100)) * 10_000
    ended, counts = threading.Event(), [0, 0]

    def take_all() -> None:
        source = Source()
        while not ended.is_set():
            with contextlib.suppress(RuntimeError):
                counts[0] += take(gathering, source, data) == len(data)

    def is_sent_away() -> bool:
        try:
            counts[1] += gathering.finish().record_count
        except RuntimeError:
            return True
        return False

    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take_all)
        try:
            wait_for(is_sent_away)
        finally:
            ended.set()
        taking.result()
    assert counts[1] + gathering.finish().record_count == 10_000 * counts[0]


def test_unknown_topics_are_resolved_and_then_taken(new: Kernel) -> None:
    known = new.topics()
    known.add(b"a", 0)
    gathering = new.gathering(known, LIMIT)
    sent = b"".join(publish(topic, b"") for topic in ("x", "a", "y", "x"))
    source = Source()
    assert take(gathering, source, sent) == 0
    assert (source.brought, gathering.count, source.submitted_bytes) == ([[b"x", b"y"]], 0, 0)
    assert take(gathering, source, publish("z", b"") + publish("a", b"", retain=True)) == 0
    assert take(gathering, source, publish("z", b"", 1, 1), room=0) == 0
    assert len(source.brought) == 1, "there is more to these"
    source.learn = known.add
    assert take(gathering, source, sent) == len(sent)
    assert gathering.finish().topic_ids == array("I", [10, 0, 11, 10]).tobytes()


def test_take_verifies_that_topics_are_known_after_resolving(new: Kernel) -> None:
    gathering, source = new(), Source()
    source.learn = lambda topic, code: None
    assert take(gathering, source, publish("x", b"")) == 0
    assert len(source.brought) == 1


def test_positions_outside_of_the_buffer_are_refused(new: Kernel) -> None:
    for position, end in ((-1, 3), (2, 1), (0, 4)):
        with pytest.raises(ValueError, match="bytes"):
            new().take(Source(), bytearray(3), position, end, 4, 1)


@pytest.mark.slow
@needs_native
@pytest.mark.parametrize("level", [4, 5])
@settings(max_examples=60)
@given(st.data())
def test_twins_take_random_packets_alike(level: int, data: st.DataObject) -> None:
    topics = ["a", "b", "t/9", "other/log", "unknown"]
    pure, native = Kernel(False)(limit=300), Kernel(True)(limit=300)
    sources = [(Source(str(number)), Source(str(number))) for number in range(3)]
    for _ in range(data.draw(st.integers(1, 4))):
        packets = st.one_of(
            st.builds(
                lambda topic, payload, qos, packet_id: publish(topic, payload, qos, packet_id if qos else 0, level),
                st.sampled_from(topics), st.binary(max_size=200), st.integers(0, 1), st.integers(1, 65_535),
            ),
            publishes(level).map(lambda packet: encode_packet(packet, level)),
            any_packet(level).map(lambda packet: encode_packet(packet, level)),
        )  # fmt: skip
        noise = bytearray(b"".join(data.draw(st.lists(packets, max_size=4))))
        if noise and data.draw(st.booleans()):
            noise[data.draw(st.integers(0, len(noise) - 1))] = data.draw(st.integers(0, 255))
        place, end = data.draw(st.integers(0, 3)), data.draw(st.integers(0, len(noise)))
        position, room = data.draw(st.integers(0, end)) if place == 3 else 0, data.draw(st.integers(-1, 5))
        one, other = sources[min(place, 2)]
        assert pure.take(one, noise, position, end, level, room) == native.take(
            other, noise, position, end, level, room
        )
        assert one.submitted_bytes == other.submitted_bytes
        assert one.publish_count == one.gathered_count == other.publish_count == other.gathered_count
        assert one.brought == other.brought
        if data.draw(st.booleans()) and place == 1:
            assert_same(pure.finish(), native.finish())
    assert_same(pure.finish(), native.finish())


def assert_same(pure: PublishColumns, native: PublishColumns) -> None:
    assert [one.name for one in pure.sources] == [one.name for one in native.sources]
    assert pure._replace(sources=[]) == native._replace(sources=[])


_WITHOUT_MEMORY = """
import re, resource
from pathlib import Path
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Publish
from mqtt_front.kernel._kernel import PolledClient, PublishFastPath, TopicCache

def wire(payload):
    return bytearray(encode_packet(Publish("t", payload, 1, packet_id=7), 4))

def take(wire, room=1):
    client = PolledClient()
    client.submitted_bytes = 0
    return fast_path.take(client, wire, 0, len(wire), 4, room) == len(wire)

topics = TopicCache()
topics.add(b"t", 1)
fast_path = PublishFastPath(topics, 1 << 28)
large, last = wire(b"b" * (4 << 20)), wire(b"c")
assert take(wire(b"a" * 60_000)) and not take(large, room=0)  # the scanner has its memory now
used_bytes = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
limit = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used_bytes + (1 << 20), limit[1]))
try:
    take(large)
except MemoryError:
    resource.setrlimit(resource.RLIMIT_AS, limit)
    others = [bytes(size) for size in range(59_900, 60_300, 20)]
    print(take(last), fast_path.finish().data == b"a" * 60_000 + b"c")
"""


@pytest.mark.slow
@needs_native
@pytest.mark.skipif(
    sys.platform != "linux" or "libasan" in os.environ.get("LD_PRELOAD", ""), reason="limits its own memory"
)
def test_publishes_taken_before_a_lack_of_memory_are_kept() -> None:
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "100000"}  # no large free memory is kept for later
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_MEMORY], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.stdout, done.stderr) == ("True True\n", "")

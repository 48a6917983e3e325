"""The compiled loops of the front compared with their twins, on generated inputs."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.fields import text
from mqtt_front.codec.frame import Form, Records, frame_records
from mqtt_front.codec.scan import scan_publishes
from mqtt_front.kernel import loops
from tests.support.mqtt_kernels import NATIVE
from tests.support.mqtt_packets import any_packet, publishes

needs_native = pytest.mark.skipif(NATIVE is None, reason="the compiled kernel was not built: make install")


def test_functions_of_the_chosen_kernel_are_offered() -> None:
    names = ("scan_publishes", "frame_records")
    chosen = (scan_publishes, frame_records)
    if not loops.REASON:
        chosen = tuple(getattr(NATIVE, name) for name in names)
    assert tuple(getattr(loops, name) for name in names) == chosen
    assert (loops.NAME == "native") is (loops.REASON == "")


@pytest.mark.slow
def test_environment_variable_selects_python() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from mqtt_front.kernel import loops; print(loops.NAME, loops.REASON, sep='|')",
        ],
        env={**os.environ, "TIMESTONE_PURE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "pure Python|TIMESTONE_PURE is set"


def assert_same(twin: Any, native: Any, *arguments: Any) -> Any:
    outcomes = []
    for function in (twin, native):
        try:
            outcomes.append(function(*arguments))
        except (ValueError, OverflowError, TypeError) as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


LIMITS = st.sampled_from([-1, 0, 5, 20, 64, 1 << 20])


@pytest.mark.slow
@needs_native
@pytest.mark.parametrize("level", [3, 4, 5])
@given(st.data())
def test_twins_scan_changed_packets_alike(level: int, data: st.DataObject) -> None:
    packets = data.draw(st.lists(publishes(level) | any_packet(level), max_size=5))
    stream = bytearray(b"".join(encode_packet(packet, level) for packet in packets))
    for _ in range(data.draw(st.integers(0, 3))):
        if stream:
            stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    start = data.draw(st.integers(-1, len(stream)))
    end = data.draw(st.integers(-1, len(stream) + 1) | st.just(len(stream)))
    assert_same(scan_publishes, NATIVE.scan_publishes, bytes(stream), start, end, level, data.draw(LIMITS))


@needs_native
@given(st.lists(st.binary(max_size=30), max_size=6), st.sampled_from([4, 5]), LIMITS)
def test_twins_scan_random_publishes_alike(bodies: list[bytes], level: int, limit: int) -> None:
    stream = b"".join(bytes((0x30 | len(body) & 7, len(body))) + b"\0\1" + body for body in bodies)
    at = 0
    while True:  # as a connection continues behind the packets that it has taken
        run = assert_same(scan_publishes, NATIVE.scan_publishes, stream, at, len(stream), level, limit)
        if run.position == at:
            break
        at = run.position


@needs_native
@given(st.binary(max_size=60), st.sampled_from([4, 5]))
def test_twins_scan_random_bytes_alike(noise: bytes, level: int) -> None:
    assert_same(scan_publishes, NATIVE.scan_publishes, noise, 0, len(noise), level, 1 << 20)
    assert_same(scan_publishes, NATIVE.scan_publishes, b"\x32" + noise, 0, len(noise) + 1, level, 1 << 20)


@needs_native
@given(st.lists(st.integers(0, 400), max_size=600))
def test_twins_distinguish_many_topics_alike(numbers: list[int]) -> None:
    packets = [b"t/%d" % number for number in numbers]
    stream = b"".join(bytes((0x30, 2 + len(topic), 0, len(topic))) + topic for topic in packets)
    assert_same(scan_publishes, NATIVE.scan_publishes, stream, 0, len(stream), 4, 1 << 20)


FORMS = st.none() | st.builds(
    Form,
    st.text(max_size=8).map(text),
    st.binary(max_size=4),
    st.integers(0, 2),
    st.booleans(),
    st.integers(98, 104),
)
ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 65_535), st.binary(max_size=150)), max_size=12)


@pytest.mark.slow
@needs_native
@given(st.data(), ROWS, st.dictionaries(st.integers(0, 4), FORMS, max_size=5))
def test_twins_frame_records_alike(
    data: st.DataObject, rows: list[tuple[int, int, bytes]], forms: dict[int, Form | None]
) -> None:
    payloads = [payload for _, _, payload in rows]
    lengths = np.array([len(payload) for payload in payloads], dtype=np.uint32)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    misplaced = data.draw(st.booleans())
    if rows and misplaced:
        starts[data.draw(st.integers(0, len(rows) - 1))] += data.draw(st.integers(-200, 200))
    records = Records(
        b"".join(payloads),
        np.arange(95, 95 + len(rows), dtype=np.int64),
        np.array([topic for topic, _, _ in rows], dtype=np.uint32),
        np.array([flags for _, flags, _ in rows], dtype=np.uint16),
        starts,
        lengths,
    )
    ids = data.draw(st.lists(st.integers(0, 65_535), max_size=8))
    first, qos0_from = data.draw(st.integers(-1, 13)), data.draw(st.integers(90, 120))
    limit = data.draw(st.integers(-1, 200) | st.just(1 << 28))
    assert_same(frame_records, NATIVE.frame_records, records, first, forms, ids, qos0_from, limit)


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Run the garbage collector as often as possible inside the block, and call `act` then. Up to Python 3.11 this
    includes the places where a compiled function makes a list; a finalizer there may let other threads run."""
    held: list[list[list[object]]] = []

    def collected(phase: str, details: dict[str, int]) -> None:
        if phase == "stop":
            act()
            held.append([[] for _ in range(300)])  # more than Python keeps in stock, and than the threshold

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(collected)
    try:
        gc.set_threshold(1)
        yield
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*before)


def _publishes(name: bytes, count: int) -> bytes:
    return b"".join(
        bytes((0x30, 6 + len(name), 0, 4 + len(name))) + b"%b%04d" % (name, one) for one in range(count)
    )


@pytest.mark.slow
@needs_native
def test_nested_scan_does_not_disturb_the_outer_one() -> None:
    ours, others = _publishes(b"a", 9), _publishes(b"others", 9999)
    expected = scan_publishes(ours, 0, len(ours), 4, 1 << 20)
    with meanwhile(lambda: NATIVE.scan_publishes(others, 0, len(others), 4, 1 << 20)):
        found = [NATIVE.scan_publishes(ours, 0, len(ours), 4, 1 << 20) for _ in range(20)]
    assert found == [expected] * 20


def _records(payload: bytes, count: int) -> tuple[Records, dict[int, Form]]:
    zeros = np.zeros(count, dtype=np.uint16)
    offsets, lengths = np.arange(count, dtype=np.int64), np.full(count, len(payload), dtype=np.uint32)
    form = Form(text("topic"), b"", 0, False, 0)
    columns = Records(
        payload * count, offsets, offsets.astype(np.uint32), zeros, offsets * len(payload), lengths
    )
    return columns, dict.fromkeys(range(count), form)


@needs_native
def test_nested_framing_does_not_disturb_the_outer_one() -> None:
    (ours, our_forms), (others, their_forms) = _records(b"ours", 9), _records(b"others", 9999)
    expected = frame_records(ours, our_forms, [], 0, 1 << 20)
    with meanwhile(lambda: NATIVE.frame_records(others, their_forms, [], 0, 1 << 20)):
        found = [NATIVE.frame_records(ours, our_forms, [], 0, 1 << 20) for _ in range(20)]
    assert found == [expected] * 20

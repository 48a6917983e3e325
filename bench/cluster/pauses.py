"""Client of MQTT that publishes one message after the other, and how long it waited at most."""

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import BenchmarkError
from ..mqtt.load.channel import open_channel, receive
from ..mqtt.load.client_protocols import CLIENT_PROTOCOLS, publish

_EVERY_S = 0.001
_AGAIN_S = 0.01
_ANSWER_S = 20.0
_WITHIN_S = 60.0
_BEFORE = 20
_SETTLED_S = 0.3
_TOPIC = b"bench/pauses"


class Publisher:
    """Publishes at QoS 1 to one address from a thread, and connects again whenever its connection ends."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._ended = threading.Event()
        self._acknowledged_s: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait until messages are acknowledged one after the other. Raises BenchmarkError."""
        self._wait(len(self._acknowledged_s) + _BEFORE, time.monotonic())

    def longest_s(self, since_s: float) -> float:
        """Wait until messages are acknowledged again, some after `since_s`, and return the longest time without an
        acknowledgement since then. Raises BenchmarkError."""
        self._wait(len(self._acknowledged_s) + 1, since_s + _SETTLED_S)
        times = [at for at in self._acknowledged_s if at >= since_s]
        before = [at for at in self._acknowledged_s if at < since_s]
        times = [max(before, default=since_s), *times]
        return max(after - at for at, after in itertools.pairwise(times))

    def end(self) -> None:
        """Stop to publish."""
        self._ended.set()
        self._thread.join(_ANSWER_S + 5.0)

    def _wait(self, count: int, since_s: float) -> None:
        ends_s = time.monotonic() + _WITHIN_S
        while len(self._acknowledged_s) < count or self._acknowledged_s[-1] < since_s:
            if time.monotonic() > ends_s:
                raise BenchmarkError(f"no publish was acknowledged for {_WITHIN_S:.0f} s")
            time.sleep(_EVERY_S)

    def _run(self) -> None:
        protocol = CLIENT_PROTOCOLS["mqtt"]
        while not self._ended.is_set():
            try:
                with open_channel(protocol, self._address, "bench-pauses") as channel:
                    self._publish(channel)
            except OSError:  # a leader that is gone or hands over
                time.sleep(_AGAIN_S)

    def _publish(self, channel: socket.socket) -> None:
        channel.settimeout(_ANSWER_S)
        packet = publish(_TOPIC, 1, bytes(100), 1)
        while not self._ended.is_set():
            channel.sendall(packet)
            if len(receive(channel, 4)) < 4:
                return
            self._acknowledged_s.append(time.monotonic())
            time.sleep(_EVERY_S)


@contextmanager
def publisher(address: tuple[str, int]) -> Iterator[Publisher]:
    """Publish until the block is left; messages are acknowledged when it begins."""
    found = Publisher(address)
    try:
        found.settle()
        yield found
    finally:
        found.end()

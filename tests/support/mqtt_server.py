"""An MQTT front over a store in this process, in an event loop of a separate thread, for integration tests.

Also a script, `python -m tests.support.mqtt_server DIRECTORY [SETTINGS]`, for tests that end the process.
"""

import asyncio
import contextlib
import functools
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import uvloop

import timestone
from mqtt_front import MqttFront, MqttSettings
from mqtt_front.runtime.clocks import PassingTime
from mqtt_front.runtime.timer_wheel import TICK_S, TimerWheel
from tests.support.step_clock import StepClock
from tests.support.waiting import TIMEOUT_S
from timestone.store import Store

Value = TypeVar("Value")


class MqttServer:
    """A running front. `address` is where clients connect; `call` runs a function in its loop's thread. With a `clock`,
    the seconds of sessions, wills and messages pass only by `pass_time`."""

    def __init__(
        self,
        store: Store,
        settings: MqttSettings,
        *,
        plain_asyncio: bool = False,
        clock: StepClock | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.front = MqttFront(store, settings, log=logging.getLogger("timestone.mqtt"))
        until = self.front._until

        async def patiently(done: Callable[[], bool], within_s: float = TIMEOUT_S / 2) -> None:
            await until(done, within_s)

        # At its stop it waits only seconds for a slow disk; a test continues from the saved state.
        self.front._until = patiently  # type: ignore[method-assign]
        self._loop = asyncio.new_event_loop() if plain_asyncio else uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mqtt-test-loop")
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.front.status()["address"].rpartition(":")
        return host, int(port)

    @property
    def subscription_count(self) -> int:
        """Subscriptions of all connected clients."""
        broker = self.front._broker
        assert broker is not None
        return self.call(lambda: sum(len(one.subscriptions) for one in broker.sessions.connected.values()))

    def status(self) -> dict[str, Any]:
        return self.call(self.front.status)

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    def call(self, function: Callable[[], Value]) -> Value:
        async def wrapped() -> Value:
            return function()

        return self.run(wrapped())

    def start(self) -> None:
        """Start the front; clients can connect when it returns."""
        time = functools.partial(PassingTime, self.clock)
        with mock.patch("mqtt_front.stored_state.PassingTime", time):
            self.run(self.front.start())

    def stop(self) -> None:
        try:
            self.run(self.front.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(TIMEOUT_S)
            self._loop.close()

    @property
    def _deadlines(self) -> TimerWheel:
        broker = self.front._broker
        assert broker is not None
        return broker.deadlines

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop its time: no deadline comes closer and no rate recovers, except by `pass_time`."""
        self.call(self._deadlines.stop)
        try:
            yield
        finally:
            self.call(self._deadlines.start)

    def pass_time(self, seconds: float) -> None:
        """Let everything happen that is due in the next seconds, tick by tick."""
        deadlines = self._deadlines

        def tick() -> None:
            for _ in range(int(seconds / TICK_S)):
                if self.clock is not None:
                    self.clock.advance(int(TICK_S * 1000))
                deadlines.advance()

        self.call(tick)


@contextlib.contextmanager
def mqtt_server(
    path: Path,
    *,
    plain_asyncio: bool = False,
    store: Store | None = None,
    clock: StepClock | None = None,
    **settings: Any,
) -> Iterator[MqttServer]:
    """Run a front on a free port over the store in `path`, and stop and close it afterwards."""
    own = timestone.open(path) if store is None else store
    try:
        server = MqttServer(
            own,
            MqttSettings(**{"listen": "127.0.0.1:0", **settings}),
            plain_asyncio=plain_asyncio,
            clock=clock,
        )
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        if store is None:
            own.close()


def main() -> None:
    """Serve DIRECTORY with SETTINGS (JSON, the fields of `MqttSettings`) until SIGTERM; the first line printed is the
    port."""
    logging.basicConfig(level="INFO", stream=sys.stderr)

    async def serve() -> None:
        terminated = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
        with timestone.open(sys.argv[1]) as store:
            values: dict[str, Any] = {
                name: Path(value) if name.endswith("_file") else value
                for name, value in json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}").items()
            }
            # On a slow machine, waiting clients of a test must still be connected when it returns to them.
            patient: dict[str, Any] = {"listen": "127.0.0.1:0", "connect_timeout_ms": 3_600_000}
            front = MqttFront(store, MqttSettings(**{**patient, **values}), log=logging.getLogger("mqtt"))
            await front.start()
            print(front.status()["address"].rpartition(":")[2], flush=True)
            await terminated.wait()
            await front.stop()

    uvloop.run(serve())


if __name__ == "__main__":
    main()

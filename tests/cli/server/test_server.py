import asyncio
import gc
import logging
import os
import signal
import time
from pathlib import Path
from typing import ClassVar

import pytest

import timestone
from tests.cli.line_front import LineFront, LineSettings
from timestone.errors import StoreClosed
from timestone_cli.errors import CommandError
from timestone_cli.server.server import Server


def serve(
    tmp_path: Path, *settings: LineSettings, stop_timeout_s: float = 60.0
) -> tuple[timestone.Store, list[str]]:
    """Serve with these fronts until they listen, then stop; returns the store and what was said when it was ready."""
    store = timestone.open(tmp_path / "data")
    fronts = [LineFront(store, each, log=logging.getLogger("test")) for each in settings]
    said: list[str] = []

    def ready() -> None:
        said.extend(line for front in fronts for line in front.describe())
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(Server(store, fronts, stop_timeout_s=stop_timeout_s).run(ready))
    return store, said


def is_closed(store: timestone.Store) -> bool:
    try:
        store.log("x")
    except StoreClosed:
        return True
    return False


@pytest.mark.parametrize("count", [0, 1, 3])
def test_all_fronts_listen_when_it_is_ready_and_the_store_is_closed_at_the_end(
    tmp_path: Path, count: int
) -> None:
    store, said = serve(tmp_path, *[LineSettings()] * count)
    assert len(said) == count
    assert len(set(said)) == count, "each has a port of its own"
    assert is_closed(store)


def test_the_garbage_collector_is_spared_while_it_serves_and_only_then(tmp_path: Path) -> None:
    before, meanwhile = gc.get_threshold(), []

    def ready() -> None:
        meanwhile.append((gc.get_threshold()[0], gc.get_freeze_count()))
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(Server(timestone.open(tmp_path / "data"), [], stop_timeout_s=60).run(ready))
    assert meanwhile[0] > (before[0], 10_000)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


class Waiting:
    """Service whose start waits for what does not come."""

    name: ClassVar[str] = "waiting"
    starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.starting = asyncio.current_task()
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    def interrupt(self) -> None:
        if self.starting is not None:
            self.starting.cancel()

    async def stop(self) -> None:
        raise AssertionError


class Signalling:
    """Service whose start takes a signal and ends."""

    name: ClassVar[str] = "signalling"
    is_stopped = False

    async def start(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.to_thread(time.sleep, 0.1)

    async def stop(self) -> None:
        self.is_stopped = True


def test_signal_during_the_start_of_a_service_lets_it_end_and_stops_it(tmp_path: Path) -> None:
    store, said, signalling = timestone.open(tmp_path / "data"), list[str](), Signalling()
    asyncio.run(Server(store, [signalling, Waiting()], stop_timeout_s=60).run(lambda: said.append("ready")))
    assert said == []
    assert signalling.is_stopped
    assert is_closed(store)


def test_signal_ends_a_start_that_waits_and_stops_those_that_have_started(tmp_path: Path) -> None:
    store, said = timestone.open(tmp_path / "data"), list[str]()
    front = LineFront(store, LineSettings(), log=logging.getLogger("test"))
    asyncio.run(Server(store, [front, Waiting()], stop_timeout_s=60).run(lambda: said.append("ready")))
    assert said == []
    assert is_closed(store)


def test_a_front_that_does_not_stop_is_abandoned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, _ = serve(tmp_path, LineSettings(stop_delay_ms=60_000), stop_timeout_s=0.05)
    assert is_closed(store)
    assert "line: did not stop within 0.05 s" in caplog.text


def test_a_front_that_fails_to_stop_does_not_keep_others_from_stopping(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, _ = serve(tmp_path, LineSettings(), LineSettings(stop_fails=True))
    assert is_closed(store)
    assert "line: failed while stopping" in caplog.text


def test_a_front_that_cannot_start_stops_the_others_and_closes_the_store(tmp_path: Path) -> None:
    store = timestone.open(tmp_path / "data")
    first = LineFront(store, LineSettings(), log=logging.getLogger("test"))
    wrong = LineFront(store, LineSettings(listen="203.0.113.1:1"), log=logging.getLogger("test"))
    server = Server(store, [first, wrong], stop_timeout_s=60)
    with pytest.raises(CommandError, match=r"^line: .*203\.0\.113\.1"):
        asyncio.run(server.run(lambda: pytest.fail("it is not ready")))
    assert is_closed(store)


class Reloading(LineFront):
    """A front that gets the order to reload three times, each time while it still does, and cannot the first time."""

    count = 0

    async def reload(self) -> None:
        self.count += 1
        os.kill(os.getpid(), signal.SIGHUP if self.count < 3 else signal.SIGTERM)
        if self.count == 1:
            raise ValueError("file:1: nonsense")


def test_a_hang_up_reloads_the_fronts_that_can_and_continues_when_one_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    store = timestone.open(tmp_path / "data")
    fronts = [kind(store, LineSettings(), log=logging.getLogger("test")) for kind in (LineFront, Reloading)]
    server = Server(store, fronts, stop_timeout_s=60)
    asyncio.run(server.run(lambda: os.kill(os.getpid(), signal.SIGHUP)))
    assert "line: nothing was reloaded: file:1: nonsense" in caplog.text
    assert caplog.text.count("line: reloaded") == 2
    assert is_closed(store)


def test_a_hang_up_stops_it_when_there_is_nothing_to_reload(tmp_path: Path) -> None:
    store = timestone.open(tmp_path / "data")
    front = LineFront(store, LineSettings(), log=logging.getLogger("test"))
    asyncio.run(Server(store, [front], stop_timeout_s=60).run(lambda: os.kill(os.getpid(), signal.SIGHUP)))
    assert is_closed(store)

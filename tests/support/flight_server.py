"""A Flight front over a store in this process, for integration tests, and clients for it.

Also a script, `python -m tests.support.flight_server DIRECTORY`, for tests that kill the process.
"""

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

import timestone
from flight_front.front import FlightFront
from flight_front.settings import FlightSettings
from tests.support.waiting import TIMEOUT_S
from timestone.store import Store

Value = TypeVar("Value")
VALUES = pa.schema([("value", pa.binary())])


class RunningFlight:
    """A running front with its store. `connect` makes a client."""

    def __init__(self, store: Store, settings: FlightSettings) -> None:
        self.store = store
        self.front = FlightFront(store, settings, log=logging.getLogger("timestone.flight"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="flight-test-loop")
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    @property
    def address(self) -> str:
        found: str = self.front.status()["address"]
        return found

    @property
    def calls(self) -> Any:
        server = self.front._server
        assert server is not None
        return server.calls

    def connect(self, scheme: str = "grpc", **options: Any) -> Any:
        return fl.connect(f"{scheme}://{self.address}", **options)

    def end(self) -> None:
        try:
            self.run(self.front.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


@contextlib.contextmanager
def flight_server(path: Path, **settings: Any) -> Iterator[RunningFlight]:
    """Open a store and run a front on it; a log `t` exists."""
    with timestone.open(path / "data") as store:
        store.log("t")
        with serving(store, **settings) as running:
            yield running


@contextlib.contextmanager
def serving(store: Store, **settings: Any) -> Iterator[RunningFlight]:
    """Run a front over an open store."""
    running = RunningFlight(store, FlightSettings(**{"listen": "127.0.0.1:0", "gateway": False, **settings}))
    try:
        running.run(running.front.start())
        yield running
    finally:
        running.end()


class FlightProcess:
    """A front in a process of its own over the store in `path`, to be killed; a log `t` exists."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.flight_server", str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self._address = self.process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def connect(self) -> Any:
        return fl.connect(f"grpc://{self._address}")

    def kill(self) -> None:
        """Send SIGKILL, and wait until it is gone. A second call does nothing."""
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def command(**values: Any) -> Any:
    """Return a descriptor with a command."""
    return fl.FlightDescriptor.for_command(json.dumps({"version": 1, **values}))


def ticket(**values: Any) -> Any:
    return fl.Ticket(json.dumps({"version": 1, **values}))


def options(*, timeout_s: float = TIMEOUT_S, token: str | None = None) -> Any:
    headers = [] if token is None else [(b"authorization", token.encode())]
    return fl.FlightCallOptions(timeout=timeout_s, headers=headers)


def values_of(table: pa.Table) -> list[bytes | None]:
    found: list[bytes | None] = table.column("value").to_pylist()
    return found


def batch(values: Sequence[bytes | None], **columns: pa.Array) -> pa.RecordBatch:
    """Return a batch to append."""
    made = {"value": pa.array(values, pa.binary()), **columns}
    return pa.record_batch(list(made.values()), names=list(made))


def put(
    client: Any,
    descriptor: Any,
    *batches: pa.RecordBatch,
    metadata: Sequence[dict[str, Any]] = (),
    logged_in: Any = None,
) -> list[Any]:
    """Append batches and return the answers."""
    writer, answers = client.do_put(descriptor, batches[0].schema, logged_in or options())
    for number, each in enumerate(batches):
        if metadata:
            writer.write_with_metadata(each, json.dumps(metadata[number]).encode())
        else:
            writer.write_batch(each)
    writer.done_writing()
    found = []
    while (answer := answers.read()) is not None:
        found.append(json.loads(answer.to_pybytes()))
    writer.close()
    return found


def main(path: Path) -> None:
    """Serve until the process is killed."""
    with timestone.open(path) as store:
        store.log("t")
        with serving(store) as server:
            print(server.address, flush=True)
            threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

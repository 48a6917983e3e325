"""Many devices, spread over a few processes, each of which drives its share from one `select` loop."""

import multiprocessing
import selectors
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.sharedctypes import SynchronizedArray
from types import TracebackType
from typing import Self

from examples.device import Device, DeviceError

STALL_S = 60.0
"""A server that acknowledges nothing for this long is taken for dead."""


class Fleet:
    """Devices that publish `message_count` messages altogether. Leaving the `with` block ends their processes."""

    def __init__(
        self, host: str, port: int, *, device_count: int, message_count: int, process_count: int
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._published: SynchronizedArray[int] = context.Array("q", process_count)
        self._acknowledged: SynchronizedArray[int] = context.Array("q", process_count)
        self._complaints: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        each, rest = divmod(message_count, device_count)
        shares = [(number, each + (number < rest)) for number in range(device_count)]
        for place in range(process_count):
            complaints, sender = context.Pipe(duplex=False)
            self._complaints.append(complaints)
            self._processes.append(
                context.Process(
                    target=run_devices,
                    args=(
                        host,
                        port,
                        shares[place::process_count],
                        place,
                        self._published,
                        self._acknowledged,
                        sender,
                    ),
                    daemon=True,
                )
            )

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    @property
    def published(self) -> int:
        """Messages handed to MQTT clients so far."""
        return sum(self._published[:])

    @property
    def acknowledged(self) -> int:
        """PUBACKs that came back so far."""
        return sum(self._acknowledged[:])

    def wait(self, timeout_s: float) -> bool:
        """Wait a little; True when all processes are done. Raises DeviceError when one of them failed."""
        deadline = time.monotonic() + timeout_s
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        # Looked at first: a process complains before it ends.
        ended = [process.exitcode == 0 for process in self._processes]
        for process, complaints in zip(self._processes, self._complaints, strict=True):
            if complaint := _complaint(complaints):
                raise DeviceError(complaint)
            if process.exitcode:
                raise DeviceError(f"a process of simulated devices ended with exit code {process.exitcode}")
        return all(ended)


def _complaint(complaints: Connection) -> str | None:
    """What a process said went wrong, if it said anything."""
    try:
        return str(complaints.recv()) if complaints.poll() else None
    except EOFError:  # it ended without a complaint
        return None


def run_devices(
    host: str,
    port: int,
    shares: Sequence[tuple[int, int]],
    place: int,
    published: "SynchronizedArray[int]",
    acknowledged: "SynchronizedArray[int]",
    complaints: Connection,
) -> None:
    """What each process does: connect its devices, publish all, leave politely. `shares` are (number, count) pairs."""
    devices = [Device(number, count) for number, count in shares if count]

    def report() -> None:
        published[place] = sum(device.published for device in devices)
        acknowledged[place] = sum(device.acknowledged for device in devices)

    try:
        for device in devices:
            device.connect(host, port)
        _drive(devices, report)
        for device in devices:
            device.client.disconnect()
    except (DeviceError, OSError) as error:
        complaints.send(str(error))
    finally:
        report()


def _drive(devices: Sequence[Device], report: Callable[[], None]) -> None:
    """Serve the devices' sockets until every message is acknowledged."""
    with selectors.DefaultSelector() as selector:
        for device in devices:
            selector.register(device.connection, selectors.EVENT_READ, device)
        next_second = time.monotonic() + 1
        stalled_at = time.monotonic() + STALL_S
        while selector.get_map():
            for key, events in selector.select(timeout=1.0):
                device = key.data
                if events & selectors.EVENT_READ:
                    device.on_readable()
                if events & selectors.EVENT_WRITE:
                    device.on_writable()
                if device.done:
                    selector.unregister(key.fileobj)
                elif device.wanted_events != key.events:
                    selector.modify(key.fileobj, device.wanted_events, device)
                stalled_at = time.monotonic() + STALL_S
            report()
            if time.monotonic() > stalled_at:
                raise DeviceError(f"no answer from the server for {STALL_S:.0f} seconds")
            if time.monotonic() > next_second:
                next_second += 1
                for device in devices:
                    device.on_second()

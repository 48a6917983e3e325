"""Two clients that behave badly now and then, in one process: one publishes as fast as its socket takes it, and one
subscribes to that and never reads."""

import socket
import struct
import time
from dataclasses import asdict, dataclass
from typing import Any

from .channel import open_channel, subscribe
from .wire import WIRES

_SEND_BYTES = 256 * 1024
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: what was not sent when the socket is closed never will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisturbJob:
    """Where, when, and in pieces of what size."""

    scheme: str
    host: str
    port: int
    run: str
    payload_bytes: int
    spells: list[tuple[float, float]]
    """From when to when, in seconds after the start of the run."""

    @property
    def topic(self) -> str:
        """Nobody else's."""
        return f"bench-flood/{self.run}"

    def to_json(self) -> dict[str, Any]:
        """For the process that is to do it."""
        return asdict(self)


class Disturbing:
    """Construct: connect both. `run`: a flood in each spell; the next one is that of two others."""

    def __init__(self, job: DisturbJob) -> None:
        """Raises ConnectionError when it does not."""
        self._job = job
        self._wire, self._address = WIRES[job.scheme], (job.host, job.port)
        form = self._wire.publication(job.topic, job.payload_bytes, 0, 0)
        self._data = memoryview(form.buffer(max(1, _SEND_BYTES // form.size_bytes)))
        self._connect()

    def run(self, start_ns: int) -> dict[str, Any]:
        """All spells, of a run that starts at `start_ns`; what the server took in them."""
        sent_bytes, elapsed_s = 0, 0.0
        for begin_s, end_s in self._job.spells:
            time.sleep(max(0.0, start_ns / 1e9 + begin_s - time.monotonic()))
            sent_bytes += self._send(start_ns / 1e9 + end_s)
            elapsed_s += end_s - begin_s
            self.close()
            self._connect()
        return {"bytes_per_s": sent_bytes / elapsed_s}

    def _send(self, end_s: float) -> int:
        sent_bytes, unsent = 0, self._data
        try:
            while (left_s := end_s - time.monotonic()) > 0:
                self._flood.settimeout(left_s)
                count = self._flood.send(unsent)
                sent_bytes += count
                unsent = unsent[count:] or self._data
        except OSError:
            pass  # the time is over, or the server has had enough of it
        return sent_bytes

    def _connect(self) -> None:
        job = self._job
        self._deaf = open_channel(self._wire, self._address, f"bench-{job.run}-deaf")
        subscribe(self._deaf, self._wire, job.topic, 0)
        self._flood = open_channel(self._wire, self._address, f"bench-{job.run}-flood")
        self._flood.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def close(self) -> None:
        """Both hang up."""
        self._flood.close()
        self._deaf.close()

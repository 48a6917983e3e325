"""Two abusive clients in one process, active from time to time: one publishes as fast as its socket takes it, and one
subscribes to these messages and never reads."""

import socket
import struct
import time
from dataclasses import asdict, dataclass
from typing import Any

from .channel import open_channel, subscribe
from .client_protocols import CLIENT_PROTOCOLS

_SEND_BYTES = 256 * 1024
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: unsent data is discarded when the socket is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbusiveJob:
    """Server, times and piece size of the flood."""

    scheme: str
    host: str
    port: int
    run: str
    payload_bytes: int
    spells: list[tuple[float, float]]
    """Begin and end of each spell, in seconds after the start of the run."""

    @property
    def topic(self) -> str:
        """Return the topic of the flood, which no other client uses."""
        return f"bench-flood/{self.run}"

    def to_json(self) -> dict[str, Any]:
        """Return the job for its process."""
        return asdict(self)


class AbusiveClients:
    """The pair of abusive clients. The constructor connects both; `run` floods in each spell. Each spell has a new
    pair."""

    def __init__(self, job: AbusiveJob) -> None:
        """Raises ConnectionError when the server refuses a connection."""
        self._job = job
        self._protocol, self._address = CLIENT_PROTOCOLS[job.scheme], (job.host, job.port)
        template = self._protocol.publication(job.topic, job.payload_bytes, 0, 0)
        self._data = memoryview(template.buffer(max(1, _SEND_BYTES // template.size_bytes)))
        self._connect()

    def run(self, start_ns: int) -> dict[str, Any]:
        """Run all spells of a run that starts at `start_ns`; return the bytes that the server took in them."""
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
            pass  # the time is over, or the server has closed the connection
        return sent_bytes

    def _connect(self) -> None:
        job = self._job
        self._deaf = open_channel(self._protocol, self._address, f"bench-{job.run}-deaf")
        subscribe(self._deaf, self._protocol, job.topic, 0)
        self._flood = open_channel(self._protocol, self._address, f"bench-{job.run}-flood")
        self._flood.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def close(self) -> None:
        """Close both connections."""
        self._flood.close()
        self._deaf.close()

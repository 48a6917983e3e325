"""Two clients that behave badly, in one process: one publishes as fast as its socket takes it, and one subscribes to
that and never reads."""

import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

from .channel import open_channel, subscribe
from .wire import WIRES

_SEND_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DisturbJob:
    """Where, and in pieces of what size."""

    scheme: str
    host: str
    port: int
    run: str
    payload_bytes: int

    @property
    def topic(self) -> str:
        """Nobody else's."""
        return f"bench-flood/{self.run}"

    def to_json(self) -> dict[str, Any]:
        """For the process that is to do it."""
        return asdict(self)


class Disturbing:
    """Construct: connect both. `begin`: the flood, until `end`."""

    def __init__(self, job: DisturbJob) -> None:
        """Raises ConnectionError when the server does not let them in."""
        wire, address = WIRES[job.scheme], (job.host, job.port)
        self._deaf = open_channel(wire, address, f"bench-{job.run}-deaf")
        subscribe(self._deaf, wire, job.topic, 0)
        self._flood = open_channel(wire, address, f"bench-{job.run}-flood")
        form = wire.publication(job.topic, job.payload_bytes, 0, 0)
        self._data = form.buffer(max(1, _SEND_BYTES // form.size_bytes))
        self._ends = threading.Event()
        self._sent_bytes = 0
        self._started_s = 0.0
        self._thread = threading.Thread(target=self._send)

    def begin(self) -> dict[str, Any]:
        """Publish from now on."""
        self._flood.settimeout(None)
        self._started_s = time.monotonic()
        self._thread.start()
        return {"began": True}

    def _send(self) -> None:
        try:
            while not self._ends.is_set():
                self._sent_bytes += self._flood.send(self._data)
        except OSError:
            return  # the server has had enough of it, or `end` does not wait for it

    def end(self) -> dict[str, Any]:
        """Stop, and hang up; what the server took meanwhile."""
        elapsed_s, sent_bytes = time.monotonic() - self._started_s, self._sent_bytes
        self._ends.set()
        # Not `close`, which leaves a thread that waits in `send` where it is.
        self._flood.shutdown(2)
        self._thread.join()
        self._flood.close()
        self._deaf.close()
        return {"bytes_per_s": sent_bytes / elapsed_s}

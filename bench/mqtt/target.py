"""A server under test: its address, its protocol, and its cost when it is a process of this machine."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from timestone.address import check_host

from .load.client_protocols import CLIENT_PROTOCOLS

NULL_SERVER = "null server"
"""The name of the server that does nothing."""
WRITING_NULL_SERVER = "null server, writes"
"""The name of the one that only writes what it passes on to two files, as a log does."""
NULL_SERVERS = (NULL_SERVER, WRITING_NULL_SERVER)
_SPEC = re.compile(
    r"(?:(?P<name>[\w. -]+)=)?(?:(?P<scheme>\w+)://)?(?P<host>[^\s:=]+):(?P<port>\d+)(?:,(?P<pid>\d+))?"
)


@dataclass(frozen=True, slots=True)
class Target:
    """One column of a comparison."""

    name: str
    scheme: str
    host: str
    port: int
    pid: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Parse `[NAME=][SCHEME://]HOST:PORT[,PID]`. Raises ValueError for anything else."""
        found = _SPEC.fullmatch(text)
        if found is None:
            raise ValueError(f"expected [NAME=][mqtt://|nats://]HOST:PORT[,PID], got {text!r}")
        scheme = found["scheme"] or "mqtt"
        if scheme not in CLIENT_PROTOCOLS:
            raise ValueError(
                f"expected {' or '.join(f'{protocol}://' for protocol in CLIENT_PROTOCOLS)}, got {scheme}://"
            )
        check_host(found["host"], setting="host")
        name = found["name"] or f"{found['host']}:{found['port']}"
        return cls(
            name, scheme, found["host"], int(found["port"]), int(found["pid"]) if found["pid"] else None
        )

    def cpu_s(self) -> float | None:
        """Return the processor time of all its threads since it started; None without a pid."""
        if self.pid is None:
            return None
        # Linux: the CPU clock of another process is a clock like any other, with its pid in the number.
        try:
            return time.clock_gettime(~self.pid << 3 | 2)
        except OSError:
            return None

    def rss_bytes(self) -> int | None:
        """Return the resident memory of the process, without the kernel's part of its connections."""
        if self.pid is None:
            return None
        try:
            status = Path(f"/proc/{self.pid}/status").read_text("ascii")
        except OSError:
            return None
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) * 1024 if found else None

"""`timestone serve` as a process of its own, the way it runs in production: started, found, and ended by SIGTERM."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

START_S = 60.0
STOP_S = 60.0


class ServerError(Exception):
    """The server did not start, or did not end the way it should."""


def timestone_command(*words: str) -> list[str]:
    """The command line that runs `timestone` with the Python that runs this."""
    return [sys.executable, "-m", "timestone_cli", *words]


class Server:
    """A server on a free loopback port; its output goes to `log_path`. Leaving the `with` block kills it if need be."""

    def __init__(self, data: Path, log_path: Path) -> None:
        self.data = data
        self.log_path = log_path
        self.host = "127.0.0.1"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                timestone_command("serve", "--data", str(self.data), "--mqtt", f"{self.host}:0"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self.port = self._find_port()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def slow_because(self) -> str | None:
        """What the server said of running without its compiled parts; None when it has them."""
        said = re.search(r"kernel pure Python: (.*)$", self.log_path.read_text(), re.MULTILINE)
        return said[1] if said else None

    def stop(self) -> None:
        """SIGTERM, then wait. ServerError unless it syncs, seals and exits with 0 in time."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise ServerError(f"the server still runs {STOP_S:.0f} seconds after SIGTERM") from None
        if code != 0:
            raise ServerError(f"the server ended with exit code {code} after SIGTERM; see {self.log_path}")

    def _find_port(self) -> int:
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            # The server prints a line for each of its fronts once they listen.
            said = re.search(rf"mqtt on {re.escape(self.host)}:(\d+)", self.log_path.read_text())
            if said:
                return int(said[1])
            if self._process.poll() is not None:
                raise ServerError(f"the server did not start: {self._last_line()}")
            time.sleep(0.05)
        raise ServerError(f"the server did not listen within {START_S:.0f} seconds; see {self.log_path}")

    def _last_line(self) -> str:
        lines = self.log_path.read_text().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode if self._process else '?'}"

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

"""A command that is started again whenever it has ended, as by a supervisor; its output goes into a file."""

import socket
import subprocess
from pathlib import Path

from tests.cli.processes import COMMAND


class Supervised:
    """`timestone <words>` in a folder, with its output in `<name>.log`."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        self._folder = folder
        self._name = name
        self._words = words
        self._running: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.ensure()

    def ensure(self) -> None:
        if self._running is None or self._running.poll() is not None:
            self.starts += 1
            with (self._folder / f"{self._name}.log").open("ab") as log:
                self._running = subprocess.Popen(
                    [*COMMAND, *self._words],
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        assert self._running is not None
        return self._running.poll()

    def end(self, number: int) -> int:
        """Send it a signal and wait; return its exit code."""
        assert self._running is not None
        self._running.send_signal(number)
        return self._running.wait(300)


def listening(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True

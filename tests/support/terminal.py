"""A process on a separate terminal, with input from the test; the terminal can be closed."""

import fcntl
import os
import select
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

TIMEOUT_S = 60.0


class OnTerminal:
    """A command whose standard input, output and controlling terminal are a new pseudo-terminal."""

    def __init__(self, command: Sequence[str], cwd: Path) -> None:
        self._master, slave = os.openpty()
        self.shown = ""
        try:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
        finally:
            os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self.close()

    def wait_for(self, text: str) -> None:
        """Wait until the terminal has shown `text` for the first time since the last wait."""
        deadline = time.monotonic() + TIMEOUT_S
        start = len(self.shown)
        while text not in self.shown[start:]:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._master], [], [], 0.1)[0]:
                self.shown += os.read(self._master, 4096).decode()

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        """Close the window: the kernel sends SIGHUP to the processes in it."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

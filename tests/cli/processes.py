"""Starts the `timestone` command as a user would, and ends what it started."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.warm_command import matters_at_import, warm_command

COMMAND = [sys.executable, "-m", "timestone_cli"]


def timestone(
    *words: str,
    stdin: bytes = b"",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output as text. Forked from a warm process, unless the environment has something
    that an interpreter reads at its start."""
    whole = {**os.environ, **(environment or {})}
    warm = warm_command()
    if matters_at_import(whole) == warm.environment:
        code, out, err = warm.run(words, stdin=stdin, cwd=cwd, environment=whole, timeout_s=timeout_s)
        return subprocess.CompletedProcess(words, code, out.decode(), err.decode())
    done = subprocess.run(
        [*COMMAND, *words],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        timeout=timeout_s,
        env=whole,
    )
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


class Running:
    """A command that runs until it is stopped; killed at the latest when the `with` block ends."""

    def __init__(
        self,
        *words: str,
        cwd: Path,
        command: Sequence[str] = COMMAND,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [*command, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass  # what was still to be written has no reader any more

    def line(self) -> str:
        """The next line of its standard output; empty at the end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().rstrip("\n")

    def lines_until(self, last: str) -> list[str]:
        """Its output up to a line; AssertionError with all there was when that line does not come."""
        lines: list[str] = []
        while (line := self.line()) != last:
            lines.append(line)
            if not line and self.process.poll() is not None:
                assert self.process.stderr is not None
                raise AssertionError("\n".join([*lines, self.process.stderr.read().decode()]))
        return lines

    def wait_for_json(self, path: Path, timeout_s: float = 120) -> dict[str, Any]:
        """The object in a file that it writes; AssertionError with its complaints when it ends before."""
        deadline = time.monotonic() + timeout_s
        while not path.exists():
            if self.process.poll() is not None:
                assert self.process.stderr is not None
                raise AssertionError(self.process.stderr.read().decode())
            assert time.monotonic() < deadline, f"{path} did not come"
            time.sleep(0.005)
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 120) -> tuple[int, str, str]:
        """Send a signal and wait; exit code and the rest of its output."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out.decode(), err.decode()


def wake_ups(pid: int) -> int:
    """How often the threads of a running process went to sleep so far: unlike time, it does not depend on who else is
    working."""
    lines = (
        line
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
    )
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

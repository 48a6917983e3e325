"""The processes of one run: started together, begun at the same moment, and always ended afterwards."""

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Self

from ..errors import BenchmarkError

_LEAD_S = 0.05
"""Time between the command to begin and the moment of the start."""
_TICK_S = 0.02
_LIMIT_S = 300.0


def _nothing() -> None:
    pass


class WorkerPool:
    """Load processes, one a job. Leaving the block ends them."""

    def __init__(self, jobs: Sequence[dict[str, Any]]) -> None:
        """Store the jobs. Each is an object with `kind`, as `worker` reads it."""
        self._jobs = jobs
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        """Raises BenchmarkError when a server refuses a connection."""
        try:
            for job in self._jobs:
                # By the path of the module: the generator runs from a source tree as well as from an installed package.
                process = subprocess.Popen(
                    [sys.executable, "-m", f"{__package__}.load.worker"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, process_group=0,
                )  # fmt: skip
                self._processes.append(process)
                self._tell(process, json.dumps(job))
            self._answers(_nothing)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self._kill()
        else:
            self._end()

    def run(self, tick: Callable[[], None] = _nothing) -> list[dict[str, Any]]:
        """Start all processes at once; return their reports. `tick` is called about every 20 ms during the run."""
        start_ns = time.monotonic_ns() + int(_LEAD_S * 1e9)
        return self.ask(str(start_ns), tick)

    def ask(self, line: str, tick: Callable[[], None] = _nothing) -> list[dict[str, Any]]:
        """Send the same line to all, and wait for the answer of each. Raises BenchmarkError when one fails."""
        for process in self._processes:
            self._tell(process, line)
        return self._answers(tick)

    @staticmethod
    def _tell(process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(line + "\n")
        except BrokenPipeError:
            pass  # it has died; its answer, or its exit without one, gives the reason

    def _answers(self, tick: Callable[[], None]) -> list[dict[str, Any]]:
        answers: dict[IO[str], dict[str, Any]] = {}
        outputs = [process.stdout for process in self._processes if process.stdout is not None]
        deadline = time.monotonic() + _LIMIT_S
        while len(answers) < len(outputs):
            tick()
            for output in select.select([one for one in outputs if one not in answers], [], [], _TICK_S)[0]:
                line = output.readline()
                answer = json.loads(line) if line else {"error": "a load process died"}
                if "error" in answer:
                    raise BenchmarkError(answer["error"])
                answers[output] = answer
            if time.monotonic() > deadline:
                raise BenchmarkError(f"the load did not end within {_LIMIT_S:.0f} s")
        return [answers[output] for output in outputs]

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.close()  # the end of the job
            except BrokenPipeError:
                pass
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()

"""Start-up time of `timestone --help` and `timestone serve`, beside a Python that does nothing."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from timestone_cli.group import Command

from .environment import probe_environment
from .errors import BenchmarkError
from .options import json_option, progress_line, repeat_option
from .report import print_report
from .working_directory import working_directory

_COMMAND = [sys.executable, "-m", "timestone_cli"]
_READY_WITHIN_S = 30.0


@click.command(cls=Command)
@repeat_option(5, "Starts of each kind.")
@json_option
def command(repeat: int, as_json: bool) -> None:
    """Measure how soon commands answer and the server is ready."""
    progress = progress_line()
    with working_directory(Path(tempfile.gettempdir())) as root:
        kinds: dict[str, Callable[[], float]] = {
            "python": lambda: _command_s([sys.executable, "-c", "pass"]),
            "help": lambda: _command_s([*_COMMAND, "--help"]),
            "serve": lambda: _ready_s(root),
        }
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        # In turn, so that a busy moment of the machine affects all kinds; the first round warms the page cache.
        for number in range(repeat + 1):
            progress(f"round {number + 1} of {repeat + 1}")
            for kind, measure in kinds.items():
                taken_s = measure()
                if number:
                    times[kind].append(taken_s)
        environment = probe_environment(root)
    progress("")
    result = {f"{kind}_s": statistics.median(taken) for kind, taken in times.items()}
    line = (
        f"timestone --help {result['help_s'] * 1e3:.0f} ms, timestone serve ready in {result['serve_s'] * 1e3:.0f} ms, "
        f"python -c pass {result['python_s'] * 1e3:.0f} ms"
    )
    print_report("startup", result, environment, [line], as_json=as_json)


def _command_s(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def _ready_s(root: Path) -> float:
    """Return the time until the ready file exists, in a directory that was used before."""
    ready = root / "ready.json"
    words = ["serve", "--mqtt", "127.0.0.1:0", "--ready-file", str(ready), "--data", str(root / "data")]
    start = time.perf_counter()
    with subprocess.Popen([*_COMMAND, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        try:
            while not ready.exists():
                if server.poll() is not None:
                    raise BenchmarkError(f"the server did not start: {server.stderr.read().decode().strip()}")
                if time.perf_counter() - start > _READY_WITHIN_S:
                    raise BenchmarkError(f"the server was not ready after {_READY_WITHIN_S:.0f} s")
                time.sleep(0.001)
            return time.perf_counter() - start
        finally:
            server.terminate()
            server.wait()

import os
import subprocess
import sys

import pytest

from timestone_bench.console import processes
from timestone_bench.console.processes import console_process, wake_ups
from timestone_bench.errors import BenchmarkError
from timestone_bench.mqtt.target import Target

SLEEPER = "import sys, time\nfor _ in range(20): time.sleep(0.001)\nprint(flush=True)\nsys.stdin.read()"


def test_wake_ups_count_how_often_a_process_has_slept() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        sleeper = Target("sleeper", "mqtt", "", 0, process.pid)
        process.stdout.readline()
        assert wake_ups(sleeper) >= 20
        process.stdin.close()


def test_server_without_a_console_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_APPEARS_S", 0.1)
    with pytest.raises(BenchmarkError, match="the console of the server did not start"):
        console_process(Target("this", "mqtt", "", 0, os.getpid()))

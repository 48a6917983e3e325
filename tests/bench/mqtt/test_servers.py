import os
import sys
from pathlib import Path

import pytest

from timestone_bench.errors import BenchmarkError
from timestone_bench.mqtt.load.channel import open_channel
from timestone_bench.mqtt.load.client_protocols import Mqtt
from timestone_bench.mqtt.servers import null_server, server_process, timestone_server, wait_until_listening


@pytest.mark.slow
def test_timestone_serves_until_the_block_is_left(tmp_path: Path) -> None:
    with timestone_server(tmp_path, "timestone", "written") as target:
        open_channel(Mqtt(), (target.host, target.port), "c").close()
        assert (target.rss_bytes() or 0) > 1_000_000
    assert target.cpu_s() is None, "its process is still there"


def test_the_server_that_does_nothing_answers() -> None:
    with null_server() as target:
        open_channel(Mqtt(), (target.host, target.port), "c").close()
    assert target.cpu_s() is None


def test_a_server_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such configuration')"]
    with (
        pytest.raises(BenchmarkError, match="did not start: no such configuration"),
        server_process(command, tmp_path) as process,
    ):
        wait_until_listening(("127.0.0.1", 1), process, tmp_path)


def test_a_server_that_is_silent_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timestone_bench.mqtt.servers._READY_S", 0.01)
    told = (
        r"without any output \(`python[0-9.]* -c import time; time.sleep\(60\)` was not ready within 0.01 s\)"
    )
    with (
        pytest.raises(BenchmarkError, match=told),
        server_process([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path) as process,
    ):
        wait_until_listening(("127.0.0.1", 1), process, tmp_path)


def test_the_server_that_does_nothing_leaves_ctrl_c_to_the_command() -> None:
    with null_server() as target:
        assert target.pid is not None and os.getpgid(target.pid) != os.getpgrp()


def test_interrupted_server_that_does_nothing_prints_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), null_server():
        raise KeyboardInterrupt
    assert capfd.readouterr().err == ""

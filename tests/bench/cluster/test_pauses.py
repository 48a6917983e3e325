import os
import signal
import time
from pathlib import Path

import pytest

from timestone_bench.cluster.pauses import publisher
from timestone_bench.errors import BenchmarkError
from timestone_bench.mqtt.servers import timestone_server


@pytest.mark.slow
def test_longest_pause_is_that_of_a_suspended_server(tmp_path: Path) -> None:
    with timestone_server(tmp_path, "single", "written") as target:
        assert target.pid is not None
        with publisher((target.host, target.port)) as clients:
            begun_s = time.monotonic()
            os.kill(target.pid, signal.SIGSTOP)
            time.sleep(0.5)
            os.kill(target.pid, signal.SIGCONT)
            assert clients.longest_s(begun_s) >= 0.45


def test_publisher_reports_a_server_that_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timestone_bench.cluster.pauses._WITHIN_S", 0.2)
    with pytest.raises(BenchmarkError, match="no publish was acknowledged"), publisher(("127.0.0.1", 1)):
        pass

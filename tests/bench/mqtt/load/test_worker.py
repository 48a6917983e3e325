import io
import json

import pytest

from timestone_bench.mqtt.load import worker
from timestone_bench.mqtt.servers import null_server


def test_it_reads_a_job_reports_ready_begins_on_command_and_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with null_server() as target:
        job = {
            "kind": "connect", "scheme": "mqtt", "host": "127.0.0.1", "port": target.port, "run": "r",
            "clients": 3, "rate": None,
        }  # fmt: skip
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(job) + "\n0\n0\n"))
        assert worker.main() == 0
    ready, report, woken = map(json.loads, capsys.readouterr().out.splitlines())
    assert ready == {"ready": True} and report["connected"] == 3 and woken["lost"] == 0


def test_a_server_that_is_not_there_is_its_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {
        "kind": "traffic", "scheme": "mqtt", "host": "127.0.0.1", "port": 1, "run": "r", "payload_bytes": 16,
        "qos": 0, "publishers": [0, 1], "subscribers": [0, 0],
    }  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(job) + "\n"))
    assert worker.main() == 1
    assert "Connection refused" in json.loads(capsys.readouterr().out)["error"]

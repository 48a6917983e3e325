import pytest

from timestone_bench.errors import BenchmarkError
from timestone_bench.mqtt.load.job import Job, Report
from timestone_bench.mqtt.servers import null_server
from timestone_bench.mqtt.worker_pool import WorkerPool


def job(port: int, first: int = 0) -> dict[str, object]:
    made = Job(
        scheme="mqtt", host="127.0.0.1", port=port, run="r", payload_bytes=50, qos=1, messages=100,
        publishers=(first, first + 1), publisher_count=2,
    )  # fmt: skip
    return {"kind": "traffic"} | made.to_json()


@pytest.mark.slow
def test_several_processes_begin_at_once_and_each_reports() -> None:
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    with null_server() as target, WorkerPool([job(target.port), job(target.port, 1)]) as pool:
        reports = [Report.from_json(answer) for answer in pool.run(tick)]
    assert [report.acknowledged for report in reports] == [100, 100]
    assert reports[0].started_ns == reports[1].started_ns and ticks


def test_a_server_that_is_not_there_is_an_error_in_one_line() -> None:
    with pytest.raises(BenchmarkError, match=r"127\.0\.0\.1:1: Connection refused"), WorkerPool([job(1)]):
        pass


def test_a_process_that_dies_is_an_error() -> None:
    with (
        pytest.raises(BenchmarkError, match="a load process died"),
        WorkerPool([{"kind": "traffic", "nonsense": 1}]),
    ):
        pass


def test_interrupted_processes_print_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """They waited for the moment of the start, and got the end of their input instead."""
    with null_server() as target, pytest.raises(KeyboardInterrupt), WorkerPool([job(target.port)]):
        raise KeyboardInterrupt
    assert capfd.readouterr().err == ""

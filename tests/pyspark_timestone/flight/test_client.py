import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from pyspark_timestone.errors import DataLoss
from pyspark_timestone.flight import client
from pyspark_timestone.flight.client import Ends, FlightTask, ServerUnavailable, ends, records, tasks
from pyspark_timestone.flight.options import FlightOptions
from tests.support.flight_server import RunningFlight, flight_server
from timestone_access.passwords.password_file import set_password

OFFSETS = pa.schema([pa.field("value", pa.binary())])


def options(server: RunningFlight, **values: object) -> FlightOptions:
    return FlightOptions(server.address, ("t",), **values)  # type: ignore[arg-type]


def test_ranges_become_tasks_by_segment_and_are_read_exactly(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server:
        log = server.store.log("t")
        log.configure(segment_bytes=64 * 1024)
        for number in range(300):
            log.append_many([b"%06d" % (10 * number + each) * 20 for each in range(10)], ack="written")
        log.sync()
        asked = options(server)
        assert ends(asked) == {"t": Ends(0, 3000)}
        made = tasks(asked, {"t": (7, 2990)})
        assert len(made) > 2
        values = [
            value
            for task in made
            for batch in records(task, asked, OFFSETS)
            for value in batch[0].to_pylist()
        ]
        assert values == [b"%06d" % number * 20 for number in range(7, 2990)]
        assert tasks(asked, {"t": (5, 5)}) == []


def test_task_continues_when_the_server_comes_back(tmp_path: Path) -> None:
    with flight_server(tmp_path, batch_bytes=4096) as server:
        log = server.store.log("t")
        log.append_many([b"%06d" % number * 10 for number in range(20_000)])
        address = server.address
        asked = options(server)
        [task] = tasks(asked, {"t": (0, 20_000)})
        found = records(task, asked, OFFSETS)
        values = next(found)[0].to_pylist()
    again: list[RunningFlight] = []
    ready = threading.Event()

    def restart() -> None:
        with flight_server(tmp_path, listen=address) as second:
            again.append(second)
            ready.set()
            done.wait(30)

    done = threading.Event()
    thread = threading.Thread(target=restart)
    thread.start()
    try:
        assert ready.wait(30)
        for batch in found:
            values += batch[0].to_pylist()
    finally:
        done.set()
        thread.join()
    assert values == [b"%06d" % number * 10 for number in range(20_000)]


def test_deleted_offsets_are_data_loss_and_unknown_logs_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_RETRIES", 1)
    with flight_server(tmp_path) as server:
        with pytest.raises(DataLoss, match="out of range"):
            tasks(options(server), {"t": (5, 9)})
        with pytest.raises(ServerUnavailable, match="no log 'other'"):
            ends(FlightOptions(server.address, ("other",)))
        address = server.address
    with pytest.raises(ServerUnavailable, match="Flight server 127"):
        ends(FlightOptions(address, ("t",)))


def test_password_is_sent_and_a_wrong_one_refused(tmp_path: Path) -> None:
    set_password(tmp_path / "passwords", "spark", b"secret")
    (tmp_path / "acl").write_text("user spark\nlog read t\n")
    files = {"password_file": tmp_path / "passwords", "acl_file": tmp_path / "acl"}
    with flight_server(tmp_path, **files) as server:
        assert ends(options(server, user="spark", password="secret")) == {"t": Ends(0, 0)}
        with pytest.raises(ServerUnavailable):
            ends(options(server, user="spark", password="wrong"))


def test_call_that_a_stopping_server_cancelled_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("pyspark_timestone.flight.client.time.sleep", waits.append)
    asked = FlightOptions("127.0.0.1:1", ("t",))
    client._pause(asked, fl.FlightCancelledError("CANCELLED"), 1)
    assert waits == [0.4]
    with pytest.raises(ServerUnavailable, match="CANCELLED"):
        client._pause(asked, fl.FlightCancelledError("CANCELLED"), 9)


def test_task_survives_pickling() -> None:
    assert FlightTask(b"x") == FlightTask(b"x")

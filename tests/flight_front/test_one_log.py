"""A log that changes on the disk, is damaged, has other writers, or loses its server, as its clients see it."""

import concurrent.futures
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import timestone
from flight_front.gateway.wire import SERVICE
from tests.support.compressed import fill, forget_tail, open_compressed
from tests.support.flight_server import (
    VALUES,
    FlightProcess,
    RunningFlight,
    batch,
    command,
    flight_server,
    options,
    put,
    serving,
    ticket,
)
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import mqtt_server
from tests.support.waiting import TIMEOUT_S
from timestone.log import Log
from timestone_access.passwords.password_file import set_password
from timestone_access.settings import LockoutSettings

PATH = fl.FlightDescriptor.for_path("t")
REFUSED = (fl.FlightError, pa.ArrowException)


@contextmanager
def server_over(path: Path, **config: Any) -> Iterator[tuple[RunningFlight, Any, Log]]:
    """Serve a log with sealed segments whose upkeep the test calls. Return server, client and log."""
    with open_compressed(path / "data", **config) as store:
        log = store.log("t")
        fill(log, 450)
        log.sync()
        with serving(store) as server, server.connect() as client:
            yield server, client, log


def tables(client: Any, tickets: list[Any]) -> list[pa.Table]:
    return [client.do_get(each).read_all() for each in tickets]


def tickets_of(client: Any) -> list[Any]:
    return [each.ticket for each in client.get_flight_info(PATH).endpoints]


def test_tickets_give_the_same_rows_after_appends_and_compression(tmp_path: Path) -> None:
    with server_over(tmp_path) as (server, client, log):
        tickets = tickets_of(client)
        assert len(tickets) == 5
        before = tables(client, tickets)
        fill(log, 200)
        assert log.apply_compression() > 0
        forget_tail(server.store)
        assert tables(client, tickets) == before


def test_tickets_give_the_rows_that_are_left_after_compaction(tmp_path: Path) -> None:
    with server_over(tmp_path, compact=True) as (server, client, log):
        tickets = tickets_of(client)
        before = pa.concat_tables(tables(client, tickets))
        assert before.num_rows == 450
        for _ in range(2):  # the second one finds nothing more, and nothing changes
            log.apply_compaction()
            forget_tail(server.store)
            after = pa.concat_tables(tables(client, tickets))
            kept = after.column("offset").to_pylist()
            assert before.take(pa.array(kept)) == after
            assert len(kept) < 450 and kept[-3:] == [447, 448, 449]


def test_ticket_is_out_of_range_after_retention(tmp_path: Path) -> None:
    with server_over(tmp_path) as (_, client, log):
        tickets = tickets_of(client)
        [*_, kept] = tables(client, tickets)
        log.configure(retention_bytes=1)
        assert log.apply_retention() > 0
        with pytest.raises(
            REFUSED, match=rf"offset 0 is out of range: the log holds \[{log.start_offset}, 450\)"
        ):
            tables(client, tickets)
        assert tables(client, tickets[-1:]) == [kept]


def test_damage_on_the_disk_is_data_loss_with_the_offsets_and_the_rest_is_read(tmp_path: Path) -> None:
    with server_over(tmp_path, compression="none") as (server, client, log):
        forget_tail(server.store)
        segment = log.segment_list.segments[1]
        entry = segment.read_entries(7, 8)
        position, size = int(entry["position"][0]), int(entry["length"][0])
        assert size
        with open(segment.segment_path, "r+b") as file:
            file.seek(position)
            [byte] = file.read(1)
            file.seek(position)
            file.write(bytes([byte ^ 1]))
        segment.release()
        with grpc.insecure_channel(server.address) as channel:
            get = channel.unary_stream(f"/{SERVICE}/DoGet")
            with pytest.raises(grpc.RpcError) as ended:
                list(get(ticket(log="t", **{"from": 100}).serialize(), timeout=TIMEOUT_S))
        assert ended.value.code() is grpc.StatusCode.DATA_LOSS
        assert "log t: offsets 107 to 107 are damaged; continue at 108" in ended.value.details()
        assert str(tmp_path) not in ended.value.details()
        assert client.do_get(ticket(log="t", to=107)).read_all().num_rows == 107
        assert client.do_get(ticket(log="t", **{"from": 108})).read_all().num_rows == 450 - 108


def test_fronts_that_append_at_once_share_the_offsets_and_keep_their_order(tmp_path: Path) -> None:
    with (
        flight_server(tmp_path) as server,
        mqtt_server(tmp_path, store=server.store, default_log="t") as broker,
        server.connect() as client,
        RawClient(broker.address) as device,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        device.connect()
        batches = [batch([b"flight %d" % (10 * number + each) for each in range(10)]) for number in range(50)]
        sent = pool.submit(put, client, command(log="t", ack="written"), *batches)
        for number in range(200):
            device.publish("site/a", b"mqtt %d" % number, packet_id=number + 1)
        answers = sent.result()
        records = client.do_get(ticket(log="t")).read_all().to_pydict()
        assert records["offset"] == list(range(700))
        for front, count in ((b"flight", 500), (b"mqtt", 200)):
            own = [value for value in records["value"] if value.startswith(front)]
            assert own == [b"%s %d" % (front, number) for number in range(count)]
        for number, answer in enumerate(answers):
            found = records["value"][answer["first"] : answer["end"]]
            assert found == [b"flight %d" % (10 * number + each) for each in range(10)]


def test_failed_logins_over_mqtt_lock_the_user_out_of_flight(tmp_path: Path) -> None:
    set_password(tmp_path / "passwords", "alice", b"secret")
    logins: dict[str, Any] = {"password_file": tmp_path / "passwords", "lockout": LockoutSettings(failures=3)}
    with (
        flight_server(tmp_path, **logins) as server,
        mqtt_server(tmp_path, store=server.store, **logins) as broker,
        server.connect() as client,
    ):
        client.authenticate_basic_token(b"alice", b"secret")
        with pytest.raises(fl.FlightUnauthenticatedError):
            client.authenticate_basic_token(b"alice", b"wrong")
        for _ in range(2):
            with RawClient(broker.address) as device:
                assert device.connect(user="alice", password=b"wrong").reason
        with pytest.raises(fl.FlightUnauthenticatedError, match="too many failed logins"):
            client.authenticate_basic_token(b"alice", b"secret")
        with RawClient(broker.address) as device:
            assert device.connect(user="alice", password=b"secret").reason
        assert server.calls.logins.locked_out == 1


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("ack", ["written", "synced"])
def test_what_was_answered_is_there_when_the_server_is_killed_after_each_answer(
    tmp_path: Path, ack: str
) -> None:
    answered = 0
    for answers in (1, 2, 5):
        with FlightProcess(tmp_path) as server, server.connect() as client:
            writer, results = client.do_put(command(log="t", ack=ack), VALUES, options())
            for _ in range(answers):
                writer.write_batch(batch([b"%d" % answered] * 3))
                assert b'"ack": "%s"' % ack.encode() in results.read().to_pybytes()
                answered += 1
            server.kill()
            with pytest.raises(REFUSED):
                writer.close()
        with timestone.open(tmp_path) as store:
            expected = [b"%d" % number for number in range(answered) for _ in range(3)]
            assert [record.payload for record in store.log("t")] == expected

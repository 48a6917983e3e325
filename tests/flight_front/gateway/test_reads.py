"""Reads through the gateway give what the server itself would give."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tests.support.compressed import fill, forget_tail, open_compressed
from tests.support.flight_server import (
    RunningFlight,
    batch,
    command,
    flight_server,
    options,
    put,
    serving,
    ticket,
    values_of,
)
from tests.support.waiting import wait_for
from timestone.config import LogConfig

REFUSED = (fl.FlightError, pa.ArrowException, KeyError)
pytestmark = pytest.mark.slow


def read_on(reader: Any, offsets: list[int]) -> None:
    """Add the offsets of all chunks, until an error."""
    while True:
        offsets += reader.read_chunk().data.column("offset").to_pylist()


def test_acknowledged_records_are_read_at_once_from_the_files(server: RunningFlight, log: str) -> None:
    with server.connect() as client:
        for number in range(30):
            put(client, command(log=log, ack="synced"), batch([b"%d" % number]))
            table = client.do_get(ticket(log=log), options()).read_all()
            assert values_of(table) == [b"%d" % each for each in range(number + 1)]
        table = client.do_get(ticket(log=log), options()).read_all()
        own = pa.Table.from_batches([server.store.log(log).read(0).to_arrow()])
        assert table.equals(own)
        # Sent by the gateway, and counted by the server all the same.
        read = server.calls.counts.records_read
        client.do_get(ticket(log=log), options()).read_all()
        wait_for(lambda: server.calls.counts.records_read == read + 30)


def test_follower_gets_each_record_once_beyond_the_files(server: RunningFlight, log: str) -> None:
    own = server.store.log(log)
    own.append_many([b"x" * 100] * 500)
    with server.connect() as client:
        reader = client.do_get(ticket(log=log, follow=True, columns=["offset"]), options())
        found: list[int] = []
        for end in range(500, 520):
            while len(found) < end:
                found += reader.read_chunk().data.column("offset").to_pylist()
            own.append(b"later")
        assert found == list(range(519))
        reader.cancel()


def test_log_that_was_deleted_and_made_again_is_read_as_it_is_now(server: RunningFlight, log: str) -> None:
    with server.connect() as client:
        for text in (b"first", b"second"):
            server.store.log(log).append(text)
            assert values_of(client.do_get(ticket(log=log), options()).read_all()) == [text]
            server.store.delete_log(log)
            with pytest.raises(REFUSED, match="no log named"):
                client.do_get(ticket(log=log), options()).read_all()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"from": 9}, r"offset 9 is out of range: the log holds \[0, 0\)"),
        ({"columns": ["x"]}, "columns: expected a list"),
        ({"partition": 7}, r"no log named '.+-7'"),
    ],
)
def test_error_of_a_read_is_that_of_the_server(
    server: RunningFlight, log: str, asked: dict[str, Any], text: str
) -> None:
    with server.connect() as client, pytest.raises(REFUSED, match=text):
        client.do_get(ticket(log=log, **asked), options()).read_all()


def test_damage_is_data_loss_and_records_before_and_after_it_are_read(tmp_path: Path) -> None:
    with open_compressed(tmp_path / "data", compression="none") as store:
        log = store.log("t")
        fill(log, 450)
        log.sync()
        forget_tail(store)
        segment = log.segment_list.segments[1]
        position = int(segment.read_entries(7, 8)["position"][0])
        with open(segment.segment_path, "r+b") as file:
            file.seek(position)
            [byte] = file.read(1)
            file.seek(position)
            file.write(bytes([byte ^ 1]))
        segment.release()
        with serving(store, gateway=True) as server, server.connect() as client:
            reader = client.do_get(ticket(log="t"), options())
            offsets: list[int] = []
            with pytest.raises(REFUSED, match="log t: offsets 107 to 107 are damaged; continue at 108"):
                read_on(reader, offsets)
            assert offsets == list(range(107))
            rest = client.do_get(ticket(log="t", **{"from": 108}), options()).read_all()
            assert rest.num_rows == 450 - 108


def test_retention_during_a_read_ends_it_with_the_offsets_that_are_left(tmp_path: Path) -> None:
    with flight_server(tmp_path, gateway=True, batch_bytes=4096) as server, server.connect() as client:
        log = server.store.log("r", config=LogConfig(segment_bytes=64 * 1024))
        for _ in range(400):
            log.append_many([b"x" * 1000] * 100, ack="written")
        log.sync()
        reader = client.do_get(ticket(log="r", columns=["offset", "value"]), options())
        offsets: list[int] = reader.read_chunk().data.column("offset").to_pylist()
        log.configure(retention_bytes=1)
        assert log.apply_retention() > 0
        # Retention runs again when further segments are sealed, so the start may move once more.
        with pytest.raises(REFUSED, match=r"out of range: the log holds \[\d+00, 40000\)"):
            read_on(reader, offsets)
        assert offsets == list(range(len(offsets)))

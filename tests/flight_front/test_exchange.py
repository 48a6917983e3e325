import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tests.support.flight_server import VALUES, command, flight_server, options
from tests.support.waiting import wait_for
from timestone.reading.named_readers import ReaderId

REFUSED = (fl.FlightError, pa.ArrowException)


def exchange(client: Any, **values: Any) -> Any:
    writer, reader = client.do_exchange(command(log="t", **values), options())
    writer.begin(VALUES)
    return writer, reader


def ask(writer: Any, **values: int | str) -> None:
    writer.write_metadata(json.dumps(values).encode())


def test_batches_come_only_for_credit(tmp_path: Path) -> None:
    with flight_server(tmp_path, batch_bytes=4096) as server, server.connect() as client:
        log = server.store.log("t")
        log.append_many([b"x" * 1000] * 40)
        writer, reader = exchange(client)
        ask(writer, credit=2)
        chunks = [reader.read_chunk() for _ in range(2)]
        assert [json.loads(one.app_metadata.to_pybytes())["next"] for one in chunks] == [4, 8]
        assert server.calls.counts.bytes_sent < 12_000
        ask(writer, credit=100)
        offsets = chunks[0].data.column("offset").to_pylist() + chunks[1].data.column("offset").to_pylist()
        while len(offsets) < 40:
            offsets += reader.read_chunk().data.column("offset").to_pylist()
        log.append(b"later")
        offsets += reader.read_chunk().data.column("offset").to_pylist()
        assert offsets == list(range(41))
        writer.close()
        wait_for(lambda: server.calls.open_count == 0)


def test_reader_continues_where_it_has_committed(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        server.store.log("t").append_many([b"0", b"1", b"2"])
        writer, reader = exchange(client, reader="me")
        ask(writer, credit=1, commit=2, metadata="host 7")
        answers = [reader.read_chunk().app_metadata.to_pybytes() for _ in range(2)]
        assert sorted(answers) == [b'{"committed": 2}', b'{"next": 3}']
        found = server.store.committed(ReaderId("t", 0, "me"))
        assert found is not None and (found.offset, found.metadata) == (2, "host 7")
        writer.close()
        wait_for(lambda: server.calls.open_count == 0)
        writer, reader = exchange(client, reader="me")
        ask(writer, credit=1)
        assert reader.read_chunk().data.column("offset").to_pylist() == [2]
        writer.close()


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"commit": 1}, "expected a command with `reader`"),
        ({"credit": -1}, "expected 0"),
        ({"x": 1}, "got 'x'"),
        ({"credit": 1, "metadata": "x"}, "got 'metadata'"),
    ],
)
def test_invalid_request_ends_the_exchange(tmp_path: Path, values: dict[str, Any], error: str) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        writer, reader = exchange(client)
        ask(writer, **values)
        with pytest.raises(REFUSED, match=error):
            reader.read_chunk()

import threading
from pathlib import Path

import pytest

from tests.support.flight_server import flight_server, options, ticket
from tests.support.waiting import wait_for


def test_reader_that_stops_reading_keeps_nothing_in_memory_and_continues_later(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client, server.connect() as other:
        log = server.store.log("t")
        reader = client.do_get(ticket(log="t", follow=True, columns=["offset", "value"]), options())
        payload = b"x" * 100_000
        for _ in range(20):
            log.append_many([payload] * 50, ack="written")
        log.sync()
        assert other.do_get(ticket(log="t", columns=["offset"]), options()).read_all().num_rows == 1000
        # What HTTP/2 windows and two batches hold, not the hundred megabytes that were appended.
        assert server.calls.counts.bytes_sent < 60 << 20
        offsets: list[int] = []
        while len(offsets) < 1000:
            offsets += reader.read_chunk().data.column("offset").to_pylist()
        assert offsets == list(range(1000))
        reader.cancel()


@pytest.mark.slow
def test_thousand_idle_followers_are_served_by_one_append(tmp_path: Path) -> None:
    limits = {"stream_count": 1100, "user_stream_count": 1100, "calls_per_s": 0}
    before = threading.active_count()
    with flight_server(tmp_path, **limits) as server, server.connect() as client:
        readers = [
            client.do_get(ticket(log="t", follow=True, columns=["value"]), options()) for _ in range(1000)
        ]
        wait_for(lambda: server.calls.open_count == 1000)
        assert threading.active_count() - before < 50
        server.store.log("t").append(b"x")
        assert [reader.read_chunk().data.num_rows for reader in readers] == [1] * 1000
        for reader in readers:
            reader.cancel()
        wait_for(lambda: server.calls.open_count == 0)

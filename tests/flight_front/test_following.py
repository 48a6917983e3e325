import threading
from pathlib import Path

import pytest

from flight_front.front import _THREADS
from tests.support.flight_server import flight_server, options, ticket
from tests.support.waiting import wait_for


@pytest.mark.slow
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


def own_threads() -> tuple[int, int]:
    """Return how many threads the executor of the front has, and how many others of Python there are. No dummies:
    a thread of gRPC's own pool that has called Python once stays listed as one after it has ended."""
    names = [each.name for each in threading.enumerate() if not isinstance(each, threading._DummyThread)]
    of_executor = sum(name.startswith("flight_") for name in names)
    return of_executor, len(names) - of_executor


@pytest.mark.slow
def test_thousand_idle_followers_are_served_by_one_append(tmp_path: Path) -> None:
    limits = {"stream_count": 1100, "user_stream_count": 1100, "calls_per_s": 0}
    with flight_server(tmp_path, **limits) as server, server.connect() as client:
        asked = ticket(log="t", follow=True, columns=["value"])
        readers = [client.do_get(asked, options())]
        wait_for(lambda: server.calls.open_count == 1)
        _, before = own_threads()
        readers += [client.do_get(asked, options()) for _ in range(999)]
        wait_for(lambda: server.calls.open_count == 1000)
        of_executor, others = own_threads()
        assert (of_executor <= _THREADS, others) == (True, before)
        server.store.log("t").append(b"x")
        assert [reader.read_chunk().data.num_rows for reader in readers] == [1] * 1000
        for reader in readers:
            reader.cancel()
        wait_for(lambda: server.calls.open_count == 0)

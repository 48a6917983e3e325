import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest

import timestone
from flight_front.errors import InvalidRequest
from flight_front.reading import RecordStream, flight_info, offsets_of
from flight_front.records.flight_data import decoded, decoded_batch
from flight_front.records.queries import Query
from tests.support.waiting import wait_for_seals
from timestone.errors import OffsetOutOfRange
from timestone.log import Log
from timestone.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with timestone.open(tmp_path) as made:
        yield made


def filled(store: Store, count: int = 100, **config: Any) -> Log:
    log = store.log("t", config=timestone.LogConfig(**config))
    for number in range(count):
        log.append(b"%d" % number * 50, topic=f"x/{number % 2}", ack="written")
    log.sync()
    return log


def read_all(stream: RecordStream, end: int) -> list[int]:
    offsets: list[int] = []
    while (message := stream.read(end)) is not None:
        if message:
            batch = decoded_batch(decoded(message), stream.query.schema)
            offsets += batch.column("offset").to_pylist()
    return offsets


def test_range_is_fixed_below_the_synced_offset(store: Store) -> None:
    log = filled(store)
    assert offsets_of(log, Query("t")) == (0, 100)
    assert offsets_of(log, Query("t", start="latest")) == (100, 100)
    assert offsets_of(log, Query("t", start=3, end=7)) == (3, 7)
    assert offsets_of(log, Query("t", start=datetime(2000, 1, 1, tzinfo=UTC))) == (0, 100)
    assert offsets_of(log, Query("t", end=datetime(2000, 1, 1, tzinfo=UTC))) == (0, 0)


def test_range_outside_of_the_log_is_refused(store: Store) -> None:
    log = filled(store)
    for query in (Query("t", start=101), Query("t", end=101)):
        with pytest.raises(OffsetOutOfRange):
            offsets_of(log, query)
    with pytest.raises(InvalidRequest, match="expected `from` below `to`"):
        offsets_of(log, Query("t", start=9, end=3))


def test_stream_ends_exactly_at_the_end_of_its_range(store: Store) -> None:
    log = filled(store)
    assert read_all(RecordStream(log, Query("t"), 10, 1000), 33) == list(range(10, 33))
    odd = RecordStream(log, Query("t", topics=("x/1",)), 10, 1000)
    assert read_all(odd, 33) == list(range(11, 33, 2))
    assert odd.record_count == 11


def test_endpoints_cover_the_log_exactly_when_it_has_several_segments(store: Store) -> None:
    log = filled(store, 3000, segment_bytes=64 * 1024)
    descriptor = fl.FlightDescriptor.for_path("t").serialize()
    info = fl.FlightInfo.deserialize(flight_info(log, Query("t", start=5), descriptor))
    tickets = [json.loads(endpoint.ticket.ticket) for endpoint in info.endpoints]
    assert len(tickets) > 1
    assert [each["to"] for each in tickets[:-1]] == [each["from"] for each in tickets[1:]]
    assert (tickets[0]["from"], tickets[-1]["to"]) == (5, 3000)
    assert info.total_records == 2995
    assert info.total_bytes == sum(len(b"%d" % number * 50) for number in range(5, 3000))


def test_segments_without_the_topics_have_no_endpoint(store: Store) -> None:
    log = store.log("t", config=timestone.LogConfig(segment_bytes=64 * 1024))
    for number in range(2000):
        log.append(b"x" * 100, topic="early" if number < 100 else "late", ack="written")
    log.sync()
    wait_for_seals(log)  # the footer of a sealed segment has its topics
    descriptor = fl.FlightDescriptor.for_path("t").serialize()
    query = Query("t", topics=("early",))
    info = fl.FlightInfo.deserialize(flight_info(log, query, descriptor))
    assert len(info.endpoints) < len(log.segment_bounds())
    assert info.total_records == -1

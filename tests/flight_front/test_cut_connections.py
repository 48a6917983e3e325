"""Clients that try again after their connection was cut, at every message of a call: nothing lost, nothing twice."""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tests.support.cutting_proxy import CuttingProxy
from tests.support.flight_server import VALUES, RunningFlight, batch, command, flight_server, options, ticket
from tests.support.waiting import wait_for

REFUSED = (fl.FlightError, pa.ArrowException, OSError, StopIteration)
_BATCHES = 4
_TRIES = 50
"""Far more than are needed: the second one passes, unless the server has not seen the cut yet."""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFlight]:
    with flight_server(tmp_path_factory.mktemp("cuts"), gateway=True, batch_bytes=4096) as running:
        yield running


def at_every_message(server: RunningFlight, run: Callable[[Any, int], bool]) -> int:
    """Call `run` with a client and the number of the cut until it returns True, for a cut at each message; return how
    many there were."""
    for cut_at in itertools.count(1):
        with CuttingProxy(server.address, cut_at) as proxy:
            for _ in range(_TRIES):
                with fl.connect(f"grpc://{proxy.address}") as client:
                    try:
                        if run(client, cut_at):
                            break
                    except REFUSED:
                        continue
            else:
                pytest.fail(f"cut {cut_at}: not finished after {_TRIES} tries")
            if not proxy.was_cut:
                return cut_at - 1
    raise AssertionError


def test_batches_of_a_producer_are_appended_once_when_the_connection_is_cut_at_any_message(
    server: RunningFlight,
) -> None:
    def put_all(client: Any, cut_at: int) -> bool:
        log = f"put-{cut_at}"
        server.store.log(log)
        writer, answers = client.do_put(command(log=log, producer="meter"), VALUES, options())
        for number in range(_BATCHES):
            metadata = json.dumps({"number": number}).encode()
            writer.write_with_metadata(batch([b"%d" % number] * 2), metadata)
        writer.done_writing()
        answered = []
        while (answer := answers.read()) is not None:
            answered.append(json.loads(answer.to_pybytes())["batch"])
        writer.close()  # raises if the connection was cut
        return answered == list(range(_BATCHES))

    cuts = at_every_message(server, put_all)
    assert cuts > 2 * _BATCHES
    for cut_at in range(1, cuts + 2):
        found = [record.payload for record in server.store.log(f"put-{cut_at}")]
        assert found == [b"%d" % number for number in range(_BATCHES) for _ in range(2)], cut_at


def test_read_that_is_resumed_gives_each_record_once_when_the_connection_is_cut_at_any_message(
    server: RunningFlight,
) -> None:
    server.store.log("get").append_many([b"x" * 1000] * 4 * _BATCHES)
    found: dict[int, list[int]] = {}

    def get_all(client: Any, cut_at: int) -> bool:
        offsets = found.setdefault(cut_at, [])
        for chunk in client.do_get(ticket(log="get", **{"from": len(offsets)}), options()):
            offsets += chunk.data.column("offset").to_pylist()
        return True

    cuts = at_every_message(server, get_all)
    assert cuts > _BATCHES
    assert all(found[cut_at] == list(range(4 * _BATCHES)) for cut_at in range(1, cuts + 2))


def test_reader_that_commits_gets_each_record_once_when_the_connection_is_cut_at_any_message(
    server: RunningFlight,
) -> None:
    server.store.log("exchange").append_many([b"x" * 1000] * 4 * _BATCHES)
    found: dict[int, list[int]] = {}

    def follow(client: Any, cut_at: int) -> bool:
        offsets = found.setdefault(cut_at, [])
        asked = command(log="exchange", reader=f"reader-{cut_at}", columns=["offset"])
        writer, reader = client.do_exchange(asked, options())
        writer.begin(VALUES)
        writer.write_metadata(b'{"credit": 100}')
        committed = offsets[-1] + 1 if offsets else 0
        while committed < 4 * _BATCHES:
            chunk = reader.read_chunk()
            if chunk.data is None:
                committed = json.loads(chunk.app_metadata.to_pybytes())["committed"]
                continue
            sent = chunk.data.column("offset").to_pylist()
            assert sent[0] <= len(offsets)  # what was applied and not committed comes again
            offsets += [offset for offset in sent if offset >= len(offsets)]
            writer.write_metadata(b'{"commit": %d}' % (sent[-1] + 1))
        writer.close()
        return True

    cuts = at_every_message(server, follow)
    assert cuts > _BATCHES
    assert all(found[cut_at] == list(range(4 * _BATCHES)) for cut_at in range(1, cuts + 2))
    wait_for(lambda: server.calls.open_count == 0)

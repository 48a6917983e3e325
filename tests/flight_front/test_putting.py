import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from flight_front.gateway.wire import SERVICE
from flight_front.putting import Budget, first_batch
from flight_front.records.flight_data import encoded_batch, encoded_schema
from tests.support.flight_server import VALUES, RunningFlight, batch, command, flight_server, options, put
from tests.support.waiting import wait_for
from timestone.config import LogConfig

PATH = fl.FlightDescriptor.for_path("t")
REFUSED = (fl.FlightError, pa.ArrowException)


def payloads(server: RunningFlight, log: str = "t") -> list[bytes]:
    return [record.payload for record in server.store.log(log)]


def test_batches_are_answered_in_order_when_their_level_is_reached(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        batches = [batch([b"%d" % number] * 10) for number in range(50)]
        for level in ("written", "synced"):
            answers = put(client, command(log="t", ack=level), *batches)
            assert [answer["batch"] for answer in answers] == list(range(50))
            assert {answer["ack"] for answer in answers} == {level}
            assert all(answer["end"] - answer["first"] == 10 for answer in answers)
        assert payloads(server) == [b"%d" % number for number in range(50) for _ in range(10)] * 2
        assert server.calls.counts.records_appended == 1000


def test_batch_of_a_producer_is_appended_once_when_it_is_sent_again(tmp_path: Path) -> None:
    asked = command(log="t", producer="p")
    batches = [batch([b"%d" % number, b"x"]) for number in range(4)]
    numbers = [{"number": number} for number in (0, 2, 5, 6)]
    with flight_server(tmp_path) as server, server.connect() as client:
        assert [answer["first"] for answer in put(client, asked, *batches[:3], metadata=numbers)] == [0, 2, 4]
        again = put(client, asked, *batches, metadata=numbers)
        assert again[:3] == [{"batch": n, "duplicate": True, "ack": "synced"} for n in range(3)]
        assert again[3] == {"batch": 3, "first": 6, "end": 8, "ack": "synced"}
    with flight_server(tmp_path) as server, server.connect() as client:
        assert all("duplicate" in answer for answer in put(client, asked, *batches, metadata=numbers))
        assert payloads(server)[::2] == [b"0", b"1", b"2", b"3"]


def test_producer_without_a_number_is_refused(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        wrong: list[list[dict[str, Any]]] = [[], [{"number": -1}], [{}]]
        for metadata in wrong:
            with pytest.raises(REFUSED, match="expected its number in the metadata"):
                put(client, command(log="t", producer="p"), batch([b"x"]), metadata=metadata)
        assert payloads(server) == []


def test_record_over_the_limit_ends_the_call_after_the_answers_before_it(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        server.store.log("small", config=LogConfig(record_bytes=100_000))
        descriptor = fl.FlightDescriptor.for_path("small")
        writer, answers = client.do_put(descriptor, VALUES, options())
        writer.write_batch(batch([b"fits"]))
        assert json.loads(answers.read().to_pybytes())["first"] == 0
        writer.write_batch(batch([b"x" * 200_000]))
        writer.done_writing()
        with pytest.raises(REFUSED, match="over the limit of 100000 bytes"):
            writer.close()
        assert payloads(server, "small") == [b"fits"]


def test_message_over_the_limit_is_refused(tmp_path: Path) -> None:
    with flight_server(tmp_path, message_bytes=64 * 1024) as server, server.connect() as client:
        with pytest.raises(REFUSED, match=r"(?i)larger than max|exhausted"):
            put(client, PATH, batch([b"x" * 1_000_000]))
        assert put(client, PATH, batch([b"x"]))[0]["first"] == 0


def test_schema_that_changes_within_a_call_is_refused_and_the_batches_before_it_are_kept(
    tmp_path: Path,
) -> None:
    other = pa.schema([("value", pa.string()), ("topic", pa.string())])
    batches = [encoded_schema(VALUES), encoded_batch(batch([b"first"]))]
    wrong = {
        encoded_schema(other): "expected a batch of the first schema, got another schema",
        encoded_batch(pa.record_batch([pa.array([1, 2])], names=["value"])): "invalid batch",
    }
    with flight_server(tmp_path) as server, grpc.insecure_channel(server.address) as channel:
        descriptor = PATH.serialize()
        opening = b"\x0a" + bytes([len(descriptor)]) + descriptor + batches[0]
        for message, error in wrong.items():
            call = channel.stream_stream(f"/{SERVICE}/DoPut")(iter([opening, batches[1], message]))
            with pytest.raises(grpc.RpcError) as ended:
                list(call)
            assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert error in ended.value.details()
        assert payloads(server) == [b"first"] * len(wrong)


@pytest.mark.slow
def test_silent_puts_are_ended_and_counted_while_others_are_served(tmp_path: Path) -> None:
    with (
        flight_server(tmp_path, put_idle_ms=2000, stream_count=2000, user_stream_count=2000) as server,
        server.connect() as client,
    ):
        silent = [client.do_put(PATH, VALUES, options()) for _ in range(1000)]
        assert put(client, PATH, batch([b"x"]))[0]["first"] == 0
        wait_for(lambda: server.calls.counts.idle_ended == 1000)
        for writer, _ in silent:
            with pytest.raises(REFUSED, match="put_idle_ms"):
                writer.close()
        wait_for(lambda: server.calls.open_count == 0)


def test_budget_lets_the_next_one_in_when_bytes_are_given_back() -> None:
    async def use() -> list[str]:
        budget, seen = Budget(10), []

        async def take(name: str, size_bytes: int) -> None:
            await budget.take(size_bytes)
            seen.append(name)

        await take("larger than all", 50)
        waiting = asyncio.ensure_future(take("second", 4))
        await asyncio.sleep(0)
        seen.append("waits")
        budget.give(50)
        await waiting
        assert budget.used_bytes == 4
        return seen

    assert asyncio.run(use()) == ["larger than all", "waits", "second"]


def test_first_message_needs_a_schema() -> None:
    with pytest.raises(Exception, match="invalid"):
        first_batch(b"\x0a\x00")


@pytest.mark.parametrize("count", [0, 1, 70_000])
def test_batches_of_any_size_are_kept_whole(tmp_path: Path, count: int) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        [answer] = put(client, PATH, batch([b"x"] * count))
        assert (answer["first"], answer["end"]) == (0, count)


def test_fronts_share_a_log(tmp_path: Path) -> None:
    with flight_server(tmp_path) as server, server.connect() as client:
        found: list[Any] = []
        for number in range(20):
            found.append(server.store.log("t").append(b"own %d" % number))
            found += [answer["first"] for answer in put(client, PATH, batch([b"flight %d" % number]))]
        assert found == list(range(40))

"""Arrow Flight on three nodes and a real etcd: any node reads and follows, the leader appends, once for each number."""

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tests.cluster.flight_cluster import LIMIT_S, LOG, REFUSED, FlightCluster, act, flight_cluster
from tests.support.flight_server import batch, command, options, put, ticket, values_of
from tests.support.postings import frame
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]


def read_at(cluster: FlightCluster, number: int, end: int, partition: int = 0) -> list[bytes | None]:
    """Return the values of a node, which may have them a moment later than the leader."""
    values = {"log": LOG, "partition": partition, "from": 0, "to": end}
    ends_s = time.monotonic() + LIMIT_S
    while True:
        try:
            with cluster.connect(cluster.nodes[number]) as client:
                return values_of(client.do_get(ticket(**values), options()).read_all())
        except fl.FlightUnavailableError:
            if time.monotonic() > ends_s:
                raise
            time.sleep(0.05)


def append_once(cluster: FlightCluster, number: int, values: list[bytes | None]) -> dict[str, Any]:
    """Append a batch of a producer through whichever node leads, and return the answer."""

    def ask(client: Any) -> dict[str, Any]:
        answers = put(
            client, command(log=LOG, producer="meter"), batch(values), metadata=[{"number": number}]
        )
        if not answers:  # pyarrow's word for a server that is lost
            raise fl.FlightUnavailableError("no answer")
        found: dict[str, Any] = answers[0]
        return found

    return cluster.at_leader(ask)


def test_any_node_reads_and_follows_and_the_leader_appends(tmp_path: Path) -> None:
    with flight_cluster(tmp_path) as cluster:
        two = batch([b"a", b"b"], topic=pa.array(["x", "y"]))
        [answer] = cluster.at_leader(lambda client: put(client, command(log=LOG), two))
        leader = cluster.leader()
        with cluster.connect(leader) as client:
            assert (answer["first"], answer["end"]) == (0, 2)
            [info] = client.list_flights(b"", options())
            facts = json.loads(info.app_metadata)
            assert (facts["log"], facts["synced"], facts["end"]) == (LOG, 2, 2)
            for own in ("flight-parts", "fronts-state"):
                with pytest.raises(REFUSED, match="no log named"):
                    client.do_get(ticket(log=own), options()).read_all()
        for number in range(3):
            assert read_at(cluster, number, 2) == [b"a", b"b"]
        follower = cluster.others(leader)[0]
        with cluster.connect(follower) as client:
            address = cluster.addresses[cluster.nodes.index(leader)]
            with pytest.raises(REFUSED, match=f"does not lead; append at {address}, which leads it"):
                put(client, command(log=LOG), batch([b"c"]))
            with pytest.raises(REFUSED, match=f"append at {address}"):
                act(client, "post", log=LOG, producer="p", number=0, parts=[])
            with pytest.raises(REFUSED, match="deleted with all its partitions"):
                act(client, "delete-log", log=LOG, partition=0)
            with pytest.raises(REFUSED, match="no log named 'fronts-state'"):
                act(client, "delete-log", log="fronts-state")
            for kind, values in (("commit", {"reader": "r", "offset": 1}), ("lags", {})):
                with pytest.raises(REFUSED, match=f"append at {address}"):
                    act(client, kind, log=LOG, **values)
            found: list[bytes | None] = []

            def follow() -> None:
                try:
                    for chunk in client.do_get(ticket(log=LOG, follow=True), options()):
                        found.extend(chunk.data.column("value").to_pylist())
                except REFUSED:
                    pass  # the node stops

            thread = threading.Thread(target=follow)
            thread.start()
            cluster.at_leader(lambda other: put(other, command(log=LOG), batch([b"c"])))
            wait_for(lambda: found == [b"a", b"b", b"c"])
            made = act(client, "create-log", log="other", settings={"retention_ms": 1000})
            assert (made["start"], made["end"]) == (0, 0)
            assert act(client, "configure", log="other", settings={"retention_bytes": 5})["settings"] == {
                "retention_bytes": 5, "retention_ms": 1000,
            }  # fmt: skip
            assert act(client, "delete-log", log="other") == {"deleted": "other"}
            with pytest.raises(REFUSED, match="no log named 'other-0'"):
                client.do_get(ticket(log="other"), options()).read_all()
            assert act(client, "delete-log", log=LOG) == {"deleted": LOG}
            thread.join(LIMIT_S)  # a follower of the log ends with it
            assert not thread.is_alive()
            act(client, "create-log", log=LOG)
            found.clear()
            thread = threading.Thread(target=follow)
            thread.start()
            cluster.at_leader(lambda other: put(other, command(log=LOG), batch([b"new"])))
            wait_for(lambda: found == [b"new"])
            for number in range(3):
                assert read_at(cluster, number, 1) == [b"new"]
            follower.stop()
            thread.join(LIMIT_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("ack", ["synced", "written"])
def test_producer_appends_each_number_once_when_leaders_are_killed(ack: str, tmp_path: Path) -> None:
    with flight_cluster(tmp_path, ack=ack) as cluster:
        acknowledged: dict[int, bool] = {}
        killed = threading.Event()

        def kill() -> None:
            for _ in range(3):
                time.sleep(1.5)
                leader = cluster.leader(in_sync=3)
                leader.kill()
                cluster.leader(other_than=leader)
                leader.start()
            killed.set()

        thread = threading.Thread(target=kill)
        thread.start()
        number = 0
        while not killed.is_set() or number < 100:
            values: list[bytes | None] = [b"%d.%d" % (number, one) for one in range(50)]
            acknowledged[number] = "duplicate" in append_once(cluster, number, values)
            number += 1
        thread.join(LIMIT_S)
        assert killed.is_set()
        assert "duplicate" in append_once(cluster, number - 1, [b"not this"])
        expected = [b"%d.%d" % (one, each) for one in range(number) for each in range(50)]
        cluster.leader(in_sync=3)
        for node in range(3):
            found = read_at(cluster, node, len(expected))
            assert found == expected


def test_parts_are_posted_once_by_the_next_leader_when_the_one_that_took_them_is_killed(
    tmp_path: Path,
) -> None:
    with flight_cluster(tmp_path, shards=2) as cluster:
        where = {"log": LOG, "partition": 1}

        def stage(client: Any) -> list[str]:
            parts = [frame([b"%d" % number * 700_000, b"%d" % number]).encode() for number in range(3)]
            batches = [pa.record_batch([pa.array([part], pa.binary())], names=["part"]) for part in parts]
            answers = put(client, command(**where, stage="g"), *batches)
            return [answer["part"] for answer in answers]

        names = cluster.at_leader(stage, shard=1)
        assert len(names) == 3
        leader = cluster.leader(1, in_sync=3)
        leader.kill()
        order = {**where, "producer": "job", "number": 7, "parts": names, "begin": True}
        for _ in range(2):
            assert cluster.at_leader(lambda client: act(client, "post", **order), shard=1) == {"posted": 7}
        expected = [value for number in b"012" for value in (bytes([number]) * 700_000, bytes([number]))]
        node = cluster.nodes.index(cluster.leader(1))
        assert read_at(cluster, node, 6, partition=1) == expected
        wrong = {**order, "number": 8, "parts": [f"other/{names[0].partition('/')[2]}"]}
        with cluster.connect(cluster.leader(1)) as client:
            with pytest.raises(REFUSED, match="a part of the posting is missing"):
                act(client, "post", **wrong)
            act(client, "discard", **where, group="g", producer="job")
            with pytest.raises(REFUSED, match="the producer is not known"):
                act(client, "post", **{**order, "number": 9, "begin": False})
        leader.start()
        cluster.leader(1, in_sync=3)


def consumed(cluster: FlightCluster, end: int, killed: list[int]) -> list[list[int]]:
    """Follow a log as a named reader up to an offset, committing each batch, through whichever node leads, and return
    what each connection has given. Leaders are killed once so many offsets were committed."""
    runs: list[list[int]] = []
    committed = 0
    ends_s = time.monotonic() + 3 * LIMIT_S
    while committed < end:
        assert time.monotonic() < ends_s, (committed, end)
        leader = cluster.leader(in_sync=3)
        runs.append([])
        with cluster.connect(leader) as client, suppress(*REFUSED, OSError):
            writer, reader = client.do_exchange(command(log=LOG, reader="desk"), options())
            writer.begin(pa.schema([]))
            while committed < end:
                writer.write_metadata(json.dumps({"credit": 1}).encode())
                chunk = reader.read_chunk()
                runs[-1] += chunk.data.column("offset").to_pylist()
                after = json.loads(chunk.app_metadata.to_pybytes())["next"]
                if killed and committed >= killed[0]:
                    killed.pop(0)
                    leader.kill()
                writer.write_metadata(json.dumps({"commit": after, "metadata": f"to {after}"}).encode())
                assert json.loads(reader.read_chunk().app_metadata.to_pybytes()) == {"committed": after}
                committed = after
            writer.close()
        leader.start()
    return runs


def test_named_reader_continues_at_the_next_leader_where_it_has_committed(tmp_path: Path) -> None:
    with flight_cluster(tmp_path, "--flight-batch-bytes", "4096") as cluster:
        for number in range(8):
            append_once(cluster, number, [b"%d" % number * 200] * 50)
        runs = consumed(cluster, 400, [100, 200])
        assert len(runs) >= 3, "two leaders were killed"
        given: list[int] = []
        for run in runs:
            # A commit that was not answered may be there or not: the batch before it comes again, and nothing else.
            assert not run or run == list(range(run[0], run[-1] + 1))
            assert not run or run[0] <= len(given), (run[0], len(given))
            given += [offset for offset in run if offset >= len(given)]
        assert given == list(range(400))
        with cluster.connect(cluster.leader()) as client:
            [lag] = act(client, "lags", log=LOG)["readers"]
            assert lag == {"reader": "desk", "committed": 400, "lag": 0, "missed": 0, "metadata": "to 400"}
            assert act(client, "commit", log=LOG, reader="desk", offset=7) == {"committed": 7}
            with pytest.raises(REFUSED, match="offset 401 is out of range"):
                act(client, "commit", log=LOG, reader="desk", offset=401)
        leader = cluster.leader(in_sync=3)
        leader.kill()
        [lag] = cluster.at_leader(lambda client: act(client, "lags", log=LOG))["readers"]
        assert (lag["committed"], lag["lag"]) == (7, 393)
        with cluster.connect(cluster.leader(other_than=leader)) as client:
            assert first_of(client) == 7

            def twice() -> None:
                writer, reader = exchanged(client)
                reader.read_chunk()
                try:
                    first_of(client)
                finally:
                    writer.close()

            with pytest.raises(REFUSED, match="open reader named 'desk'"):
                twice()


def exchanged(client: Any) -> tuple[Any, Any]:
    """Begin to follow as a named reader, with credit for a batch."""
    writer, reader = client.do_exchange(command(log=LOG, reader="desk"), options())
    writer.begin(pa.schema([]))
    writer.write_metadata(b'{"credit": 1}')
    return writer, reader


def first_of(client: Any) -> int:
    """Return the first offset that a named reader gets."""
    writer, reader = exchanged(client)
    try:
        found: int = reader.read_chunk().data.column("offset")[0].as_py()
    finally:
        writer.close()
    return found

"""Requests to one node over a real socket: what it refuses. What it does otherwise is in test_node and test_mqtt."""

import asyncio
from collections.abc import Collection
from pathlib import Path

from tests.cluster.shard.test_shard import Noted
from tests.support.workload import crash_config
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.fronts.state_log import STATE_LOG
from timestone_cluster.node.requests import Requests
from timestone_cluster.shard.shard import Shard
from timestone_cluster.transport.links import Listener
from timestone_cluster.transport.wire import (
    Append,
    Appended,
    Describe,
    Described,
    Hello,
    Message,
    Relay,
    Relayed,
    encoded,
    read_message,
)


def answer(folder: Path, request: Message, *, observed: Collection[int] = ()) -> Message:
    """Return the answer of a node that has a replica of the state and of another log, and no front."""

    async def run() -> Message:
        with Store(folder, crash_config(), log_type=ReplicatedLog) as store:
            logs = {f"{name}-0": store.log(name) for name in ("telemetry", STATE_LOG)}
            replicas = {name: log for name, log in logs.items() if isinstance(log, ReplicatedLog)}
            shard = Shard(0, "a", 1, 2, replicas, frozenset(), Noted())
            requests = Requests(store, {0: shard}, frozenset, None, observed=observed)
            listener = Listener("cluster", lambda node: None, lambda *_: None, requests.handle)
            port = await listener.start("127.0.0.1", 0, None)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.writelines([*encoded(Hello("cluster", "")), *encoded(request)])
            async with asyncio.timeout(20):
                _, found = await read_message(reader)
            writer.close()
            await listener.stop()
            await shard.close()
            return found

    return asyncio.run(run())


def test_client_of_a_front_is_refused_when_the_node_has_none(tmp_path: Path) -> None:
    assert answer(tmp_path, Relay(0, "10.0.0.1", 5000, None)) == Relayed("this node serves no clients now")


def test_append_is_refused_when_it_is_to_the_state_of_a_front(tmp_path: Path) -> None:
    found = answer(tmp_path, Append(7, STATE_LOG, [], [b"forged"]))
    assert found == Appended(7, -1, f"log {STATE_LOG} is the server's own", is_refused=True)


def test_append_is_refused_when_the_node_does_not_lead(tmp_path: Path) -> None:
    found = answer(tmp_path, Append(7, "telemetry", ["t"], [b"1"]))
    assert isinstance(found, Appended) and "does not lead" in found.error


def test_node_describes_all_of_its_logs(tmp_path: Path) -> None:
    found = answer(tmp_path, Describe(3))
    assert isinstance(found, Described)
    assert [(one.name, one.end, one.is_in_sync) for one in found.logs] == [
        (STATE_LOG, 0, False),
        ("telemetry", 0, False),
    ]


def test_node_leaves_out_what_it_observes_when_recovery_asks_for_its_logs(tmp_path: Path) -> None:
    assert answer(tmp_path, Describe(3), observed={0}) == Described(3, ())

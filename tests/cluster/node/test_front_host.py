"""Front of a node: serves while the node leads. A front that notes what is asked of it, over a real log of state."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.cluster.shard.test_shard import Noted
from tests.support.workload import crash_config
from timestone.disk.steady_clock import SteadyClock
from timestone.errors import NotLeader
from timestone.fronts import Arrived, Correspondent, Documents, Door, Partitions, Replicated
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.division import Division
from timestone_cluster.fronts.state_log import STATE_LOG
from timestone_cluster.node import home
from timestone_cluster.node.front_host import FrontHost
from timestone_cluster.node.home import Around
from timestone_cluster.shard.shard import Shard
from timestone_cluster.shard_record import ShardRecord
from timestone_cluster.transport.wire import Hello


class NotingFront:
    """A front that notes what is asked of it."""

    name: ClassVar[str] = "noting"
    log_names = ("noting",)
    doors: tuple[Door, ...] = ()

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.documents: Documents | None = None
        self.is_writable: list[bool] = []

    def open_doors(self) -> None:
        self.calls.append("open")

    async def lead(
        self,
        documents: Documents,
        clock: SteadyClock,
        *,
        will_grace_s: float,
        partitions: Partitions | None = None,
    ) -> None:
        self.calls.append("lead")
        self.documents = documents

    async def leave(self, shard: int = 0) -> None:
        self.calls.append("leave")

    def heard(self, shard: int, home: int, data: bytes, correspondent: Correspondent) -> None:
        self.calls.append(f"heard {shard} {home} {data!r}")

    def lose(self, shard: int = 0) -> None:
        assert self.documents is not None
        try:
            self.documents.put_many("a", {"late": b""})
        except NotLeader:
            self.calls.append("lose")

    def admit(self, client: Arrived) -> Any:
        return "a protocol"

    def client_count(self, shard: int = 0) -> int:
        return 0

    def close_doors(self) -> None:
        self.calls.append("close")


def hosted(folder: Path, check: "Callable[[FrontHost, NotingFront, Shard], Any]") -> None:
    """Run a check with the host of a front and a shard that has its logs and leads."""

    async def run() -> None:
        with Store(folder, crash_config(), log_type=ReplicatedLog) as store:
            logs = {f"{name}-0": store.log(name) for name in ("noting", STATE_LOG)}
            replicas = {name: log for name, log in logs.items() if isinstance(log, ReplicatedLog)}
            shard = Shard(0, "a", 1, 1, replicas, frozenset(), Noted())
            record = ShardRecord.first(("a",)).elected("a", 1, 1)
            assert record is not None
            shard.record_seen(record, 1)
            front = NotingFront()
            assert isinstance(front, Replicated)
            host = FrontHost(front, store.documents, will_grace_s=1, failed=lambda error: None)
            around = Around(Division(1), Hello("", ""), None, lambda number: None, {0: shard}, lambda: None)
            host.open(around)
            front.calls.clear()
            assert shard.replica.is_serving
            async with asyncio.timeout(20):
                await check(host, front, shard)
            await shard.close()

    asyncio.run(run())


async def led(host: FrontHost) -> None:
    while not host.is_serving:
        await asyncio.sleep(0.01)


def test_front_can_store_nothing_any_more_when_its_node_has_lost_the_lead(tmp_path: Path) -> None:
    async def check(host: FrontHost, front: NotingFront, shard: Shard) -> None:
        assert host.admit(Arrived(0, ("a", 1), None)) is None
        host.served(shard)
        await led(host)
        assert host.admit(Arrived(0, ("a", 1), None)) == "a protocol"
        host.lost(0)
        assert front.calls == ["lead", "lose"]
        assert host.admit(Arrived(0, ("a", 1), None)) is None
        host.lost(0)
        assert front.calls == ["lead", "lose"]

    hosted(tmp_path, check)


def test_front_leaves_once_before_another_node_leads_and_serves_again_when_none_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "_AGAIN_S", 0.1)

    async def check(host: FrontHost, front: NotingFront, shard: Shard) -> None:
        assert host.has_left(0)
        host.served(shard)
        await led(host)
        while not host.has_left(0):
            await asyncio.sleep(0.01)
        assert front.calls == ["lead", "leave"]
        host.tick({0: shard})
        assert not host.is_serving
        await asyncio.sleep(0.15)
        host.tick({0: shard})
        await led(host)
        assert not host.has_left(0), "it serves for a while before it leaves again"
        await asyncio.sleep(0.1)
        assert front.calls == ["lead", "leave", "lead"]
        await host.stop()
        assert front.calls == ["lead", "leave", "lead", "leave", "close"]

    hosted(tmp_path, check)


def test_front_serves_no_shard_that_its_node_is_elected_for_while_it_stops(tmp_path: Path) -> None:
    """Where all nodes stop at once, the last one was elected and left, for three seconds each, until its server
    waited no longer."""

    async def check(host: FrontHost, front: NotingFront, shard: Shard) -> None:
        host.served(shard)
        await led(host)
        stopping = asyncio.create_task(host.stop())
        await asyncio.sleep(0)
        host.lost(0)
        host.served(shard)
        host.tick({0: shard})
        await stopping
        assert front.calls.count("lead") == 1
        assert not host.is_serving

    hosted(tmp_path, check)


def test_front_waits_when_the_shard_has_not_all_of_its_logs(tmp_path: Path) -> None:
    async def check(host: FrontHost, front: NotingFront, shard: Shard) -> None:
        front.log_names = ("noting", "missing")  # type: ignore[assignment]
        host.tick({0: shard})
        await asyncio.sleep(0.1)
        assert front.calls == []
        front.log_names = ("noting",)
        host.tick({0: shard})
        await led(host)
        host.lost(0)

    hosted(tmp_path, check)

"""Home of the clients of one shard of two."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.node.test_forwarding import Leader, batch, run
from tests.cluster.node.test_front_host import NotingFront
from timestone.config import Ack
from timestone.disk.steady_clock import SteadyClock
from timestone.errors import HistoryUnavailable
from timestone.fronts import Documents, Partitions
from timestone_cluster.division import Division
from timestone_cluster.node import home as home_module
from timestone_cluster.node.forwarding import ForwardedLog
from timestone_cluster.node.home import Around, Home
from timestone_cluster.transport.wire import Hello


class Dividing(NotingFront):
    """A front that notes the partitions, too."""

    log_names = ("a",)
    partitions: Partitions | None = None

    async def lead(self, documents: Documents, clock: SteadyClock, **how: Any) -> None:
        self.partitions = how.pop("partitions")
        await super().lead(documents, clock, **how)


def test_home_serves_once_it_has_what_its_earlier_leaders_have_appended_elsewhere(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        front, place = Dividing(), leader.place
        leader.place = None
        around = Around(
            Division(2), Hello("c", ""), None, lambda number: leader.place, leader.shards, lambda: None
        )
        failures: list[Exception] = []
        home = Home(
            0, front, leader.requests._store.documents, around, will_grace_s=0, failed=failures.append
        )
        assert home.is_due()
        assert home.served(leader.shards[0])
        await asyncio.sleep(0.2)
        assert (home.is_led, home.is_serving, front.calls) == (True, False, []), "shard 1 has no leader"
        leader.place = place
        while not home.is_serving:
            await asyncio.sleep(0.01)
        partitions = front.partitions
        assert partitions is not None
        assert (partitions.home, partitions.count, partitions.lags) == (0, 2, False)
        log = partitions.appendable(leader.logs["a-1"])
        assert isinstance(log, ForwardedLog)
        submission = log.submit(batch(log, b"x"), ack=Ack.SYNCED)
        while not submission.resolved:
            home.look()
            await asyncio.sleep(0.01)
        assert (leader.payloads, home.forwarded_count) == ([b"x"], 1)
        assert front.documents is not None
        assert partitions.documents(1).items("a") == {}
        assert home.lost()
        assert not home.lost()
        assert (front.calls, failures, home.forwarded_count) == (["lead", "lose"], [], 0)

    run(tmp_path, check)


def test_home_waits_for_replicas_of_all_shards(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        front = Dividing()
        shards = {0: leader.shards[0]}
        around = Around(Division(2), Hello("c", ""), None, lambda number: leader.place, shards, lambda: None)
        home = Home(0, front, leader.requests._store.documents, around, will_grace_s=0, failed=print)
        home.served(leader.shards[0])
        await asyncio.sleep(0.2)
        assert front.calls == []
        shards[1] = leader.shards[1]
        while not home.is_serving:
            await asyncio.sleep(0.01)
        home.lost()

    run(tmp_path, check)


def test_home_tries_again_while_only_a_bucket_has_what_sessions_continue_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_module, "_AGAIN_S", 0.01)

    class Waiting(Dividing):
        is_away = True

        async def lead(self, documents: Documents, clock: SteadyClock, **how: Any) -> None:
            await super().lead(documents, clock, **how)
            if self.is_away:
                raise HistoryUnavailable(0, 360, "the bucket does not answer")

        def lose(self, shard: int = 0) -> None:
            self.calls.append("lose")

    async def check(leader: Leader) -> None:
        front, failures = Waiting(), list[Exception]()
        around = Around(
            Division(2), Hello("c", ""), None, lambda number: leader.place, leader.shards, lambda: None
        )
        home = Home(
            0, front, leader.requests._store.documents, around, will_grace_s=0, failed=failures.append
        )
        home.served(leader.shards[0])
        while len(front.calls) < 4:
            await asyncio.sleep(0.01)
        assert (front.calls[:4], home.is_serving) == (["lead", "lose"] * 2, False)
        front.is_away = False
        while not home.is_serving:
            await asyncio.sleep(0.01)
        assert (front.calls[-1], failures) == ("lead", [])
        home.lost()

    run(tmp_path, check)

"""Compaction of replicas by nodes as processes: a replica that was away over deletions brings no deleted key back."""

import asyncio
from pathlib import Path

import pytest

import timestone
from tests.cluster.etcd_server import eventually
from tests.cluster.log_cluster import KEYS, LOG, NEVER_S, log_cluster
from tests.cluster.node_processes import NodeProcess
from timestone_cluster.operations import configure_log

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

SETTINGS = {"compact": True, "tombstone_ms": 0, "segment_entries": 20, "compression": "zstd"}


def visible(node: NodeProcess) -> list[tuple[str, bytes]]:
    """Return topic and payload of what readers of a node see."""
    with timestone.view(node.folder) as view:
        return [(record.topic or "", bytes(record.payload)) for record in view.log(LOG)]


def latest(node: NodeProcess) -> dict[str, bytes]:
    """Return the last payload of each key, without those that are deleted."""
    return {topic: payload for topic, payload in dict(visible(node)).items() if payload}


def test_deleted_keys_stay_deleted_on_all_replicas_when_one_was_away_over_tombstones(tmp_path: Path) -> None:
    async def run() -> None:
        async with log_cluster(tmp_path) as harness:
            await harness.until_in_sync()
            await configure_log(harness.etcd, KEYS, LOG, SETTINGS)

            async def put(*records: tuple[str, bytes]) -> None:
                topics, payloads = zip(*records, strict=True)
                await harness.client.append_again(LOG, list(payloads), topics=list(topics))

            async def turn_over(count: int) -> None:
                """Write other keys, so that segments are sealed and passes of compaction begin."""
                for number in range(count):
                    await put(*[(f"other/{key}", b"%d" % number) for key in range(20)])

            async def until_true(what: str, holds: object) -> None:
                try:
                    async with asyncio.timeout(NEVER_S):
                        while not holds():  # type: ignore[operator]
                            await turn_over(1)
                            await asyncio.sleep(0.2)
                except TimeoutError:
                    raise AssertionError(what) from None

            keys = [f"key/{number}" for number in range(10)]
            await put(*[(key, b"here") for key in keys])
            await harness.until_in_sync()
            leader = await harness.leader()
            away, other = harness.others(leader)
            # until it knows that they are committed
            await eventually(lambda: ("key/0", b"here") in visible(away), NEVER_S)
            away.kill()
            await put(*[(key, b"") for key in keys[:5]])
            for node in (leader, other):
                await until_true(
                    f"{node.name} removes what was deleted",
                    lambda node=node: not {(key, b"here") for key in keys[:5]} & set(visible(node)),
                )
            await turn_over(40)
            for node in (leader, other):
                tombstones = [topic for topic, payload in visible(node) if not payload]
                assert tombstones == keys[:5], f"{away.name} has not got them"
            assert ("key/0", b"here") in visible(away)
            away.start()
            await harness.until_in_sync()
            for node in harness.nodes:
                await until_true(
                    f"{node.name} removes tombstones",
                    lambda node=node: not [topic for topic, payload in visible(node) if not payload],
                )
            leader.kill()  # what a next leader ships is what compaction has left there
            await harness.until_another_leads(leader)
            await put(("key/9", b""), ("new", b"last"))
            leader.start()
            await harness.until_in_sync()
            await put(("new", b"very last"))
            for node in harness.nodes:
                node.stop()
            one, *more = map(latest, harness.nodes)
            assert one.keys() >= {*keys[5:9], "new"} and not one.keys() & {*keys[:5], keys[9]}
            assert more == [one, one]
            for node in harness.nodes:
                for fault in ("stays out", "Traceback", "is not the one that this node has joined"):
                    assert fault not in node.output()

    asyncio.run(run())

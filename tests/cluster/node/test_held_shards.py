"""Shards that a node holds: as the records in etcd say, on a real store."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.etcd_server import etcd_server
from tests.cluster.shard.test_shard import Noted
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import leading
from timestone.disk.files import Files
from timestone.format.failed_fsync_marker import mark_failed_fsync
from timestone.kernel.entries import HEADER_BYTES
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone_cluster.errors import WrongCluster
from timestone_cluster.etcd.client import EtcdClient, KeyValue
from timestone_cluster.etcd.keys import (
    ClusterKeys,
    ClusterValue,
    LogValue,
    NodeValue,
    encode_deletions,
    replica_id,
)
from timestone_cluster.etcd.registry import Registry
from timestone_cluster.node import held_shards
from timestone_cluster.node.held_shards import (
    HeldShards,
    boot_of,
    identity,
    log_values,
    make_replica_folder,
    note_failed_flushes,
)
from timestone_cluster.shard_record import ShardRecord

CLUSTER = ClusterValue("c1", 2, 3, 2)
LOGS = {"telemetry": LogValue({"retention_ms": 1000})}


def pair(record: ShardRecord | None = None, value: bytes = b"") -> KeyValue:
    return KeyValue("k", value if record is None else record.encode(), 1, 1)


COUNTED = [pair(value=encode_deletions(count)) for count in range(4)]


def holding(folder: Path, check: Callable[[HeldShards, Store], object]) -> None:
    async def run() -> None:
        with Store(folder, crash_config(), log_type=ReplicatedLog) as store:
            check(held := HeldShards(store, CLUSTER, "b", Noted(), has_front=True), store)
            for shard in held.shards.values():
                await shard.close()

    asyncio.run(run())


def test_replica_is_opened_with_the_settings_of_its_log_when_the_record_names_the_node(
    tmp_path: Path,
) -> None:
    def check(held: HeldShards, store: Store) -> None:
        assert held.take(0, pair(ShardRecord.first(("a", "b", "c"))), LOGS, 7) is None
        assert held.take(1, pair(ShardRecord.first(("a", "c", "d"))), LOGS, 7) is None
        assert list(held.shards) == [0]
        assert store.log_names() == [("telemetry", 0)]
        assert store.log("telemetry").config.retention_ms == 1000
        held.take(0, pair(ShardRecord.first(("a", "b", "c"))), {**LOGS, "flow": LogValue()}, 7)
        assert held.shards[0].log("flow-0") is not None

    holding(tmp_path, check)


def test_replica_ends_when_another_node_has_its_place(tmp_path: Path) -> None:
    def check(held: HeldShards, store: Store) -> None:
        held.take(0, pair(ShardRecord.first(("a", "b", "c"))), LOGS, 7)
        closing = held.take(0, pair(ShardRecord.first(("a", "c", "d"))), LOGS, 7)
        assert closing is not None
        assert not held.shards
        closing.close()

    holding(tmp_path, check)


def test_replica_stays_when_its_record_is_gone_or_not_valid(tmp_path: Path) -> None:
    def check(held: HeldShards, store: Store) -> None:
        record = pair(ShardRecord.first(("a", "b", "c")))
        held.take(0, record, LOGS, 7)
        assert held.take(0, pair(value=b"{}"), LOGS, 7) is None
        assert not held.lost
        assert held.take(0, None, LOGS, 7) is None
        assert list(held.shards) == [0]
        assert held.lost == {0}
        held.take(0, record, LOGS, 7)
        assert not held.lost

    holding(tmp_path, check)


def test_log_is_left_out_when_its_value_is_not_valid() -> None:
    valid = pair(value=LogValue().encode())
    logs = {"telemetry": valid, "flow": pair(value=b"[]"), "again": valid, "state": valid}
    deleted = {"again": pair(value=encode_deletions(2)), "state": pair(value=b"{}")}
    found = log_values(logs, deleted)
    assert {name: value.deletions for name, value in found.items()} == {"telemetry": 0, "again": 2}


async def left_by_b(etcd: EtcdClient, keys: ClusterKeys) -> ShardRecord:
    """Register the leader of a shard in which b has no place any more, and return its record."""
    record = ShardRecord.first(("a", "c", "d")).elected("a", 1, 2)
    run = await etcd.put(keys.node("a"), NodeValue("a", "127.0.0.1:1").encode())
    assert record is not None
    assert run.found is not None
    return replace(record, run=run.found.created, left=(("b", 1),))


def test_replica_is_deleted_when_the_others_are_whole_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real etcd."""
    keys = ClusterKeys("plant")
    monkeypatch.setattr(held_shards, "WHOLE_S", 0.0)

    async def run(etcd: EtcdClient, store: Store) -> None:
        held = HeldShards(store, CLUSTER, "b", Noted(), has_front=False)
        registry = Registry(etcd, keys, lambda: None)
        store.log("telemetry", 0)
        store.log("telemetry", 1)
        led = await left_by_b(etcd, keys)
        for stays in (
            replace(led, isr=frozenset("ac")),  # d has less
            replace(led, run=1),  # not led
            replace(led, left=()),
        ):
            await etcd.put(keys.shard(0), stays.encode())
            await registry.refresh()
            await held.discard(registry)
            assert len(store.log_names()) == 2, stays
        await etcd.put(keys.shard(0), led.encode())
        await registry.refresh()
        await held.discard(registry)
        assert store.log_names() == [("telemetry", 1)]
        assert not (tmp_path / "b" / "telemetry-0").exists()
        await held.discard(registry)  # not cleared in the same generation
        assert (await etcd.read(keys.shard(0))).pairs[keys.shard(0)].value == led.encode()
        await etcd.put(keys.shard(0), replace(led, generation=2).encode())
        await registry.refresh()
        await held.discard(registry)
        value = (await etcd.read(keys.shard(0))).pairs[keys.shard(0)].value
        assert ShardRecord.decode(value) == replace(led, generation=2, left=())

    async def with_etcd(url: str) -> None:
        async with EtcdClient([url]) as etcd:
            with Store(tmp_path / "b", crash_config(), log_type=ReplicatedLog) as store:
                await run(etcd, store)

    with etcd_server(tmp_path / "etcd") as server:
        asyncio.run(with_etcd(server.url))


def test_node_that_observes_has_what_others_hold_and_says_on_its_disk_that_it_is_no_replica(
    tmp_path: Path,
) -> None:
    elsewhere, here = ShardRecord.first(("a", "c", "d")), ShardRecord.first(("a", "b", "c"))

    def observe(held: HeldShards, store: Store) -> None:
        held.observes = True
        held.take(0, pair(elsewhere), LOGS, 7)
        assert held.shards[0].replica.observes
        assert held.observed == {0}

    def become_replica(held: HeldShards, store: Store) -> None:
        assert held.observed == {0}  # as the disk has it
        held.observes = True
        assert held.take(0, pair(here), LOGS, 7) is None
        assert not held.shards[0].replica.observes
        assert not held.observed
        assert store.log_names() == [("telemetry", 0)]

    for check in (observe, become_replica, observe):
        holding(tmp_path, check)


def test_replica_stays_one_when_etcd_was_restored_from_before_it_was(tmp_path: Path) -> None:
    async def run() -> None:
        with Store(tmp_path, crash_config(), log_type=ReplicatedLog) as store:
            leading(store, 5)
            held = HeldShards(store, CLUSTER, "b", Noted(), has_front=False)
            held.observes = True
            held.take(0, pair(ShardRecord.first(("a", "c", "d"))), LOGS, 7)
            assert held.shards[0].alarm.startswith("etcd was restored from the past")
            assert not held.observed  # recovery counts it
            await held.shards[0].close()

    asyncio.run(run())


def test_observer_copies_a_compacted_log_again_before_it_is_a_replica(tmp_path: Path) -> None:
    logs = {"flow": LogValue({"compact": True}), **LOGS}

    async def run() -> None:
        with Store(tmp_path, crash_config(), log_type=ReplicatedLog) as store:
            held = HeldShards(store, CLUSTER, "b", Noted(), has_front=True)
            held.observes = True
            held.take(0, pair(ShardRecord.first(("a", "c", "d"))), logs, 7)
            before = store.log("flow"), store.log("telemetry")
            here = pair(ShardRecord.first(("a", "b", "c")))
            ending = held.take(0, here, logs, 7)
            assert ending is not None
            assert held.take(0, here, logs, 7) is None and not held.shards  # until the files are gone
            await ending
            assert not held.observed
            held.take(0, here, logs, 7)
            assert not held.shards[0].replica.observes
            assert store.log("flow") is not before[0]
            assert store.log("telemetry") is before[1]
            await held.shards[0].close()

    asyncio.run(run())


def test_observer_may_come_back_with_its_files_and_deletes_them_when_it_observes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real etcd."""
    keys = ClusterKeys("plant")
    monkeypatch.setattr(held_shards, "WHOLE_S", 0.0)

    async def run(etcd: EtcdClient, store: Store) -> None:
        registry = Registry(etcd, keys, lambda: None)
        led = await left_by_b(etcd, keys)
        held = HeldShards(store, CLUSTER, "b", Noted(), has_front=False)
        held.observes = True

        async def left_after(value: ShardRecord) -> tuple[tuple[str, int], ...]:
            await etcd.put(keys.shard(0), value.encode())
            await registry.refresh()
            held.take(0, registry.below("shards")["0"], LOGS, 7)
            await held.discard(registry)
            return ShardRecord.decode((await etcd.read(keys.shard(0))).pairs[keys.shard(0)].value).left

        assert await left_after(led) == (("b", 1),)  # what it has promised counts still
        assert await left_after(replace(led, generation=2)) == ()
        assert store.log_names() == [("telemetry", 0)]
        await held.shards[0].close()
        held = HeldShards(store, CLUSTER, "b", Noted(), has_front=False)
        assert await left_after(replace(led, generation=2, left=(), isr=frozenset("ac"))) == ()
        assert store.log_names() == [("telemetry", 0)]  # others are not whole
        assert await left_after(replace(led, generation=2, left=())) == ()
        assert store.log_names() == []
        await held.discard(registry)
        assert not held.observed

    async def with_etcd(url: str) -> None:
        async with EtcdClient([url]) as etcd:
            with Store(tmp_path / "b", crash_config(), log_type=ReplicatedLog) as store:
                await run(etcd, store)

    with etcd_server(tmp_path / "etcd") as server:
        asyncio.run(with_etcd(server.url))


def test_deleted_log_is_replicated_no_more_and_its_files_go_and_the_next_one_is_another(
    tmp_path: Path,
) -> None:
    here, again = pair(ShardRecord.first(("a", "b", "c"))), {"telemetry": LogValue(deletions=1)}

    async def run() -> None:
        with Store(tmp_path, crash_config(), log_type=ReplicatedLog) as store:
            around = Noted()
            held = HeldShards(store, CLUSTER, "b", around, has_front=True)
            held.take(0, here, {**LOGS, "flow": LogValue()}, 7)
            before = store.log("telemetry")
            assert held.delete({}) is None  # a key that is missing proves nothing
            deleting = held.delete({"telemetry": COUNTED[1], "unknown": COUNTED[1]})
            assert deleting is not None
            assert (around.deletions, list(held.shards[0].replica.logs)) == (["telemetry"], ["flow-0"])
            assert held.delete({"telemetry": COUNTED[1]}) is None  # under way
            held.take(0, here, again, 7)
            assert held.shards[0].log("telemetry-0") is None  # until the files are gone
            await deleting
            assert (store.log_names(), around.refreshed) == ([("flow", 0)], 1)
            held.take(0, here, again, 7)
            assert list(held.shards[0].replica.logs) == ["flow-0", "telemetry-0@1"]
            after = held.shards[0].log("telemetry-0")
            assert after is not None and after.id not in (before.id, replica_id("c1", "telemetry", 0))
            assert held.delete({"telemetry": COUNTED[1]}) is None
            await held.shards[0].close()

    asyncio.run(run())


def test_deleted_log_of_a_shard_that_was_left_is_deleted_after_the_next_start(tmp_path: Path) -> None:
    async def run() -> None:
        for deletions, left in ((0, 1), (1, 0)):
            with Store(tmp_path, crash_config(), log_type=ReplicatedLog) as store:
                make_replica_folder(store, "telemetry", 1, replica_id("c1", "telemetry", 1))
                store.log("telemetry", 1)
                held = HeldShards(store, CLUSTER, "b", Noted(), has_front=True)
                if (deleting := held.delete({"telemetry": COUNTED[deletions]})) is not None:
                    await deleting
                assert len(store.log_names()) == left

    asyncio.run(run())


def test_log_of_a_later_deletion_than_etcd_knows_of_is_refused_and_stays(tmp_path: Path) -> None:
    here = pair(ShardRecord.first(("a", "b", "c")))

    def make(held: HeldShards, store: Store) -> None:
        held.take(0, here, {"telemetry": LogValue(deletions=2)}, 7)

    def refuse(held: HeldShards, store: Store) -> None:
        assert held.delete({"telemetry": COUNTED[1]}) is None
        with pytest.raises(WrongCluster, match="etcd was restored from the past"):
            held.take(0, here, {"telemetry": LogValue(deletions=1)}, 7)
        assert store.log_names() == [("telemetry", 0)]

    for check in (make, refuse):
        holding(tmp_path, check)


def test_damage_that_a_start_has_found_is_known_to_the_next_one(tmp_path: Path) -> None:
    with Store(tmp_path / "a", crash_config(), log_type=ReplicatedLog) as store:
        leading(store, 5)
        shutil.copytree(tmp_path / "a", tmp_path / "b")  # as after kill -9
    path = tmp_path / "b" / "telemetry-0" / "00000000000000000000.index"
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES] ^= 1
    path.write_bytes(data)

    def check(held: HeldShards, store: Store) -> None:
        assert held.damaged() == {"telemetry-0"}
        log = store.log("telemetry")
        assert isinstance(log, ReplicatedLog) and log.repair.bases() == [0]

    for _ in range(2):
        holding(tmp_path / "b", check)


def opened(path: Path) -> Store:
    return Store(path, crash_config(), log_type=ReplicatedLog)


def test_log_has_the_id_that_its_folder_was_made_with_on_each_node(tmp_path: Path) -> None:
    wanted = replica_id("plant", "telemetry", 0)
    assert wanted not in (replica_id("other", "telemetry", 0), replica_id("plant", "telemetry", 1))
    for name in "ab":
        with opened(tmp_path / name) as store:
            make_replica_folder(store, "telemetry", 0, wanted)
            assert store.log("telemetry").id == wanted
        with opened(tmp_path / name) as store:
            assert store.log("telemetry").id == wanted


def test_folder_is_made_again_when_its_making_was_interrupted(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        (tmp_path / "telemetry-0").mkdir()
        make_replica_folder(store, "telemetry", 0, 7)
        assert store.log("telemetry").id == 7


def test_log_keeps_its_id_when_it_exists(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        before = store.log("telemetry").id
        make_replica_folder(store, "telemetry", 0, before ^ 1)
    with opened(tmp_path) as store:
        assert store.log("telemetry").id == before


def test_node_is_another_member_after_each_boot_and_each_failed_flush(tmp_path: Path) -> None:
    files = Files()
    note_failed_flushes(files, tmp_path)  # a new folder has no identity yet
    node = identity(files, tmp_path, "c1")
    first = boot_of(tmp_path, b"boot one")
    assert first == boot_of(tmp_path, b"boot one") != boot_of(tmp_path, b"boot two")
    note_failed_flushes(files, tmp_path)
    assert boot_of(tmp_path, b"boot one") == first
    (tmp_path / "telemetry-0").mkdir()
    mark_failed_fsync(files, tmp_path / "telemetry-0")
    note_failed_flushes(files, tmp_path)
    assert boot_of(tmp_path, b"boot one") != first
    assert identity(files, tmp_path, "c1") == node
    assert boot_of(tmp_path, bytes(16)) != boot_of(tmp_path, bytes(16)), "of a system that has none"
    (tmp_path / "NODE").write_text(f'{{"node": "{node}", "cluster": "c1", "failures": "many"}}')
    with pytest.raises(WrongCluster, match=r"NODE is not valid: .*expected a whole number, got 'many'"):
        note_failed_flushes(files, tmp_path)

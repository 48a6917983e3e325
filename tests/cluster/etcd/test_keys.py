"""Keys and values in etcd."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from timestone.config import Ack
from timestone.errors import InvalidName
from timestone_cluster.affinity import Arrivals
from timestone_cluster.errors import UndecodableValue
from timestone_cluster.etcd.keys import (
    ClusterKeys,
    ClusterValue,
    LogValue,
    NodeValue,
    check_log_name,
    decode_arrivals,
    decode_deletions,
    deletions_before,
    encode_arrivals,
    encode_deletions,
    replica_id,
    replica_name,
)


def test_values_are_the_same_when_they_were_encoded_and_decoded() -> None:
    cluster, node = ClusterValue("0123", 4, 3, 2), NodeValue("a", "[::1]:7000")
    keyed, written = replace(cluster, topic_keys=("a/{key}/#",)), replace(cluster, ack=Ack.WRITTEN)
    for one in (cluster, keyed, written):
        assert ClusterValue.decode(one.encode()) == one
    for value in (node, replace(node, boot="0f", alarm="shard 0: a record is damaged", is_stopping=True)):
        assert NodeValue.decode(value.encode()) == value


@pytest.mark.parametrize(
    "value",
    [
        b"", b"[]", b"null", b'{"version": 2}', b"[" * 10_000,
        b'{"version": 1, "id": "", "shards": 1, "replicas": 3, "min_isr": 2}',
        b'{"version": 1, "id": "a", "shards": 0, "replicas": 3, "min_isr": 2}',
        b'{"version": 1, "id": "a", "shards": 1, "replicas": 1, "min_isr": 2}',
        b'{"version": 1, "id": "a", "shards": 1, "replicas": 3, "min_isr": 2, "topic_keys": ["a"]}',
        b'{"version": 1, "id": "a", "shards": 1.5, "replicas": 3, "min_isr": 2}',
        b'{"version": 1, "id": "a", "shards": 1, "replicas": 3, "min_isr": 2, "ack": "memory"}',
    ],
)  # fmt: skip
def test_value_that_no_cluster_has_written_is_refused(value: bytes) -> None:
    with pytest.raises(UndecodableValue):
        ClusterValue.decode(value)


@pytest.mark.parametrize("value", [b"{}", b'{"version": 1, "name": "a", "peer": "nowhere"}'])
def test_node_without_a_valid_address_is_refused(value: bytes) -> None:
    with pytest.raises(UndecodableValue):
        NodeValue.decode(value)


def test_settings_of_a_log_are_those_that_replicas_can_have() -> None:
    value = LogValue().changed({"retention_ms": 5}).changed({"segment_bytes": 1 << 20})
    assert LogValue.decode(value.encode()) == value
    assert (value.config.retention_ms, value.config.segment_bytes) == (5, 1 << 20)
    assert LogValue.decode(b'{"version": 1}') == LogValue()
    assert LogValue().changed({"compact": True}).config.compact  # which is no reason to take 1 for it below
    table = value.changed({"compact": True, "compression": "zstd"})
    assert LogValue.decode(table.encode()).config == table.config
    for settings in ({"record_bytes": 1}, {"retention_ms": -1}, {"segment_bytes": "x"}):
        with pytest.raises((ValueError, TypeError)):
            LogValue().changed(settings)
    for text in (b'{"version": 1, "compact": 1}', b'{"version": 1, "retention_ms": "x"}'):
        with pytest.raises(UndecodableValue):
            LogValue.decode(text)


def test_fields_of_a_later_version_are_kept_when_a_value_is_changed() -> None:
    later = {"version": 1, "quota": {"a": [1]}}
    old = ClusterValue("0123", 4, 3, 2)
    cluster = ClusterValue.decode(json.dumps({**json.loads(old.encode()), **later}).encode())
    assert (cluster.shards, json.loads(old.encode()).get("quota")) == (4, None)
    for changed in (cluster.changed({"balance": False}), replace(cluster, level=9)):
        assert json.loads(changed.encode())["quota"] == later["quota"]
    log = LogValue.decode(json.dumps({**later, "retention_ms": 5}).encode())
    assert log.config == LogValue({"retention_ms": 5}).config
    assert json.loads(log.changed({"retention_ms": 6}).encode()) == {**later, "retention_ms": 6}
    deletions = json.loads(encode_deletions(2, json.dumps({**later, "count": 1}).encode()))
    assert deletions == {**later, "count": 2}


@pytest.mark.parametrize("time_ms", [-1, 2**63, 10**30])
def test_time_that_could_not_be_read_again_is_refused(time_ms: int) -> None:
    cluster = ClusterValue("0123", 4, 3, 2)
    assert ClusterValue.decode(cluster.changed({"affinity_ms": 2**63 - 1}).encode()).affinity_ms == 2**63 - 1
    with pytest.raises(ValueError, match="invalid affinity_ms: expected a whole number of milliseconds"):
        cluster.changed({"affinity_ms": time_ms})


def test_keys_of_a_cluster_have_its_prefix() -> None:
    keys = ClusterKeys("plant")
    assert keys.shard(3) == "/timestone/plant/shards/3"
    assert all(key.startswith(keys.prefix) for key in (keys.cluster, keys.node("a"), keys.log("b")))
    with pytest.raises(InvalidName):
        check_log_name("a/../b")


def test_counts_are_the_same_after_etcd_and_anything_else_is_refused() -> None:
    found = Arrivals({0: 3, 12: 1}, Counter({7: 2}))
    assert decode_arrivals(encode_arrivals(found)) == found
    for value in (b"", b"[]", b'{"version": 2}', b'{"version": 1, "served": {"x": 1}, "passed_on": {}}',
                  b'{"version": 1, "served": {"1": -1}, "passed_on": {}}'):  # fmt: skip
        with pytest.raises(UndecodableValue, match="invalid value in etcd"):
            decode_arrivals(value)


def test_count_of_deletions_is_the_same_after_etcd_and_makes_another_log() -> None:
    assert [decode_deletions(encode_deletions(count)) for count in (1, 7)] == [1, 7]
    too_many = b'{"version": 1, "count": 100001}'
    for wrong in (b"", b"7", b'{"version": 1, "count": -1}', b'{"version": 1}', too_many):
        with pytest.raises(UndecodableValue):
            decode_deletions(wrong)
    with pytest.raises(ValueError, match="expected 0 to 100000, got 100001"):
        encode_deletions(100_001)
    assert len({replica_id("c", "a", shard, count) for shard in (0, 1) for count in (0, 1, 2)}) == 6
    assert replica_id("c", "a", 0) == replica_id("c", "a", 0, 0)  # of a version without deletions
    assert [deletions_before(replica_id("c", "a", 0, 2), "c", "a", 0, most) for most in (2, 3)] == [None, 2]
    assert [replica_name("a", 3, count) for count in (0, 1)] == ["a-3", "a-3@1"]
    assert LogValue(deletions=3).encode() == LogValue().encode()

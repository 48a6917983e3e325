from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone_bench.sizing.constants import constants
from timestone_bench.sizing.model import Fleet, size

MILLION = Fleet(devices=1_000_000)


def test_bytes_of_a_million_devices_are_those_on_paper() -> None:
    """100,000 messages of 200 bytes and 32 of index a second."""
    found = size(MILLION, constants())
    assert found.messages_per_s == 100_000
    assert found.bucket_gb_per_day == pytest.approx(0.0232 * 86_400)
    assert (found.clusters, found.nodes) == (2, 22)
    assert found.local_gb_per_day == pytest.approx(11 * found.bucket_gb_per_day), (
        "each node has its cluster's"
    )
    assert found.node_disk_mb_per_s == pytest.approx(23.2 / 2)
    assert found.bucket_tb == pytest.approx(found.bucket_gb_per_day * 0.365)
    assert found.cost == pytest.approx(sum(found.costs.values()))


@pytest.mark.parametrize(
    ("changes", "settings", "nodes", "bound"),
    [
        ({"devices": 10}, {}, 3, "replicas"),
        ({"devices": 100_000}, {"connections": 20_000}, 6, "connections, one away"),
        (
            {"devices": 100_000, "interval_s": 0.1},
            {"led message": 2.0, "followed message": 1.0},
            9,
            "replicas",
        ),
        ({"devices": 60_000, "interval_s": 1.0}, {}, 5, "processor"),
        (
            {"devices": 100_000, "interval_s": 0.1},
            {"led message": 2.0, "followed message": 0.1, "busy": 1.0, "busy without one": 1.0},
            4,
            "processor, one away",
        ),
        ({"devices": 1000, "replicas": 1}, {}, 1, "replicas"),
    ],
)
def test_nodes_are_as_many_as_the_scarcest_needs(
    changes: dict[str, float], settings: dict[str, float], nodes: int, bound: str
) -> None:
    found = size(replace(MILLION, **changes), constants() | settings)  # type: ignore[arg-type]
    assert (found.nodes, found.bound) == (nodes, bound)


def test_each_node_follows_all_of_its_cluster_so_that_small_clusters_need_less_disk() -> None:
    """What a node does not lead it follows, as a replica or as an observer: docs/decisions/0172-observers.md."""
    few, many = size(MILLION, constants()), size(replace(MILLION, clusters=10), constants())
    led, followed = constants()["led message"], constants()["followed message"]
    assert few.node_busy == pytest.approx(50_000 * (led + 10 * followed) / 11 / 1e6)
    assert (many.clusters, many.nodes) == (10, 30)
    assert many.local_gb_per_day == pytest.approx(few.local_gb_per_day * 3 / 11)
    assert many.costs["disks"] < few.costs["disks"]
    with pytest.raises(ValueError, match="with --clusters 1, got 100,000 messages/s"):
        size(replace(MILLION, clusters=1), constants())


def test_fleet_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="one server is not enough for 1,000,000 devices"):
        size(replace(MILLION, replicas=1), constants())
    with pytest.raises(ValueError, match="invalid --clusters 2: expected 1 with --replicas 1"):
        size(Fleet(devices=1, replicas=1, clusters=2), constants())
    with pytest.raises(ValueError, match="expected one of at most 10,000 nodes"):
        size(replace(MILLION, devices=10**10), constants())


@given(st.integers(1, 10**7), st.floats(0.5, 3600), st.integers(1, 100_000), st.integers(2, 5), st.booleans())
def test_more_devices_need_no_less(
    devices: int, interval_s: float, payload_bytes: int, replicas: int, tls: bool
) -> None:
    fleet = Fleet(
        devices=devices, interval_s=interval_s, payload_bytes=payload_bytes, replicas=replicas, tls=tls
    )
    one, twice = size(fleet, constants()), size(replace(fleet, devices=2 * devices), constants())
    assert fleet.replicas <= one.nodes <= twice.nodes
    assert 0 < one.cost <= twice.cost
    assert one.node_busy <= constants()["busy"] + 1e-9
    assert one.node_memory_gib > 0


def test_compression_makes_only_the_bucket_smaller() -> None:
    raw, compressed = size(MILLION, constants()), size(replace(MILLION, compression=8.0), constants())
    assert compressed.bucket_tb == pytest.approx(raw.bucket_tb / 8)
    assert compressed.bucket_writes_per_day < raw.bucket_writes_per_day
    assert compressed.local_gb_per_day == raw.local_gb_per_day


def test_requests_are_those_of_the_page_about_buckets() -> None:
    """Its example: 1,000 devices with 200 bytes each second, segments of 256 MiB."""
    found = size(Fleet(devices=1000, interval_s=1.0), constants())
    assert found.bucket_writes_per_day == pytest.approx(2800, rel=0.05)

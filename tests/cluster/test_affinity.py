"""Which node most clients of a shard come in through."""

import pytest

from timestone_cluster.affinity import FEWEST_CLIENTS, Affinity, Arrivals
from timestone_cluster.shard_record import ShardRecord

AFTER_S = 300.0


def led_by_a() -> dict[int, ShardRecord]:
    record = ShardRecord.first(("a", "b", "c")).elected("a", 7, 2)
    assert record is not None
    return {0: record}


def through(b: int, c: int = 0, served: int = 100) -> dict[str, Arrivals]:
    return {"a": Arrivals({0: served}), "b": Arrivals({}, {0: b}), "c": Arrivals({}, {0: c})}


def test_node_is_near_once_most_clients_have_come_in_through_it_for_a_while() -> None:
    affinity, shards = Affinity(), led_by_a()
    due = [
        affinity.due(shards, through(61), {}, after_s=AFTER_S, now_s=now_s) for now_s in (0, 299, 300, 301)
    ]
    assert due == [{}, {}, {0: "b"}, {0: "b"}]


def test_time_begins_again_when_the_majority_was_gone_in_between() -> None:
    affinity, shards = Affinity(), led_by_a()
    for now_s, b in ((0, 61), (200, 59), (300, 61)):
        assert affinity.due(shards, through(b), {}, after_s=AFTER_S, now_s=now_s) == {}
    assert affinity.due(shards, through(61), {}, after_s=AFTER_S, now_s=600) == {0: "b"}


@pytest.mark.parametrize(
    "arrivals",
    [
        through(60, 40),
        through(0),
        through(9, served=FEWEST_CLIENTS - 1),
        {},
        {"d": Arrivals({}, {0: 100}), **through(0)},
    ],
    ids=["no majority", "at the leader", "few", "nothing is known", "a node that is not in sync"],
)
def test_leader_stays(arrivals: dict[str, Arrivals]) -> None:
    assert Affinity().due(led_by_a(), arrivals, {}, after_s=0, now_s=0) == {}


def test_node_stays_near_until_less_than_two_fifths_come_in_through_it() -> None:
    shards = led_by_a()
    for b, c, due in ((41, 59, {}), (39, 59, {0: None}), (10, 61, {0: "c"}), (61, 0, {})):
        assert Affinity().due(shards, through(b, c), {0: "b"}, after_s=0, now_s=0) == due
    assert Affinity().due(shards, through(30, 30), {0: "a"}, after_s=0, now_s=0) == {}
    assert Affinity().due(shards, through(31, 30), {0: "a"}, after_s=0, now_s=0) == {0: None}

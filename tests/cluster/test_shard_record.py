import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone_cluster.errors import UndecodableShardRecord
from timestone_cluster.shard_record import MOST_GENERATION, ShardRecord, Unclean, node_of

FIRST = ShardRecord.first(("a", "b", "c"))
LED = ShardRecord(4, "a", 17, frozenset({"a", "b", "c"}), ("a", "b", "c"))


def test_first_record_has_all_replicas_in_sync_and_no_leader() -> None:
    assert ShardRecord.first(("a@1", "b@2")) == ShardRecord(0, None, 0, frozenset({"a@1", "b@2"}), ("a", "b"))


def test_node_of_a_member_is_what_stands_before_its_boot() -> None:
    assert (node_of("a"), node_of("a@77")) == ("a", "a")


def test_election_raises_the_generation_and_drops_the_old_leader_when_enough_remain() -> None:
    assert LED.elected("b", 20, 2) == ShardRecord(5, "b", 20, frozenset({"b", "c"}), ("a", "b", "c"))


def test_election_keeps_the_old_leader_in_sync_when_the_set_is_at_its_minimum() -> None:
    small = replace(LED, isr=frozenset({"a", "b"}))
    elected = small.elected("b", 20, 2)
    assert elected is not None and elected.isr == {"a", "b"}


def test_election_is_refused_when_the_member_is_not_in_sync() -> None:
    assert replace(LED, isr=frozenset({"a", "b"})).elected("c", 20, 2) is None


def test_election_of_the_same_leader_makes_a_new_generation_when_it_was_restarted() -> None:
    assert LED.elected("a", 30, 2) == replace(LED, generation=5, run=30)


def test_election_is_refused_when_generations_are_used_up() -> None:
    assert replace(LED, generation=MOST_GENERATION).elected("b", 20, 2) is None


def test_hand_over_keeps_the_whole_in_sync_set() -> None:
    assert LED.handed_over("c", 9) == replace(LED, generation=5, leader="c", run=9)
    assert LED.handed_over("a", 9) is None
    assert LED.handed_over("d", 9) is None


def test_resignation_leaves_no_leader_and_the_generation_as_it_is() -> None:
    assert LED.resigned() == replace(LED, leader=None, run=0)
    assert FIRST.resigned() is None


def test_renewal_changes_the_run_alone() -> None:
    assert LED.renewed(18) == replace(LED, run=18)
    assert LED.renewed(17) is None


def test_dismissal_never_goes_below_the_minimum_and_never_takes_the_leader() -> None:
    smaller = LED.dismissed("b", 2)
    assert smaller is not None and smaller.isr == {"a", "c"}
    assert smaller.dismissed("c", 2) is None
    assert LED.dismissed("a", 2) is None
    assert LED.dismissed("d", 2) is None


def test_admission_is_for_replicas_and_for_nodes_that_copy_the_shard() -> None:
    small = replace(LED, isr=frozenset({"a", "b"}))
    assert small.admitted("c") == LED
    assert small.admitted("d") is None
    assert small.admitted("b") is None
    adding = small.adds("d")
    assert adding is not None and adding.admitted("d") is not None


def test_node_takes_the_place_of_another_one_when_it_is_in_sync_and_the_other_does_not_lead() -> None:
    adding = replace(LED, isr=frozenset({"a", "b"})).adds("d")
    assert adding is not None and adding.adding == ("d",)
    assert adding.moved("d", "c", 2) is None
    in_sync = adding.admitted("d")
    assert in_sync is not None
    assert in_sync.moved("d", "a", 2) is None  # it leads
    for away, left in (("c", {"a", "b", "d"}), ("b", {"a", "d"})):
        moved = in_sync.moved("d", away, 2)
        assert moved is not None and (set(moved.replicas), moved.adding) == ({*"abcd"} - {away}, ())
        assert moved.isr == left
    assert in_sync.moved("d", "b", 3) is None


def test_replica_that_is_dropped_leaves_the_minimum_in_sync_and_comes_back_in_another_generation() -> None:
    whole = replace(LED, isr=frozenset("abc"))
    dropped = whole.dropped("c", 2)
    assert dropped is not None
    assert (dropped.replicas, dropped.isr) == (("a", "b"), frozenset("ab"))
    assert dropped.left == (("c", LED.generation),) and dropped.adds("c") is None
    assert whole.dropped("a", 2) is None, "it leads"
    assert whole.dropped("d", 2) is None, "it has no replica"
    below = replace(LED, isr=frozenset("ac"))
    assert below.dropped("c", 2) is None, "the minimum"
    assert below.dropped("b", 2) == replace(below, replicas=("a", "c"), left=(("b", LED.generation),))
    resigned = whole.resigned()
    assert resigned is not None and resigned.dropped("c", 2) is None


def test_node_is_one_more_replica_when_it_is_in_sync() -> None:
    alone = replace(LED, isr=frozenset({"a"}), replicas=("a",)).adds("d")
    assert alone is not None and alone.grown("d") is None
    in_sync = alone.admitted("d")
    assert in_sync is not None
    grown = in_sync.grown("d")
    assert grown is not None
    assert (grown.replicas, grown.adding, grown.isr) == (("a", "d"), (), frozenset({"a", "d"}))
    assert grown.grown("d") is None


def test_node_that_copies_a_shard_can_be_left_out_when_it_does_not_lead_and_the_minimum_stays() -> None:
    adding = LED.adds("d")
    assert adding is not None and adding.spared("d", 2) == replace(LED, left=(("d", LED.generation),))
    assert LED.spared("d", 2) is None and LED.spared("c", 2) is None
    below = replace(adding, isr=frozenset({"a"}))
    assert below.spared("d", 2) == replace(LED, isr=frozenset({"a"}), left=(("d", LED.generation),))
    in_sync = replace(adding, isr=frozenset({"a", "b", "d"}))
    assert in_sync.spared("d", 2) == replace(LED, isr=frozenset({"a", "b"}), left=(("d", LED.generation),))
    assert in_sync.spared("d", 3) is None
    led = in_sync.handed_over("d", 9)
    assert led is not None and led.spared("d", 2) is None


def test_node_that_has_left_comes_back_in_another_generation_only() -> None:
    adding = replace(LED, isr=frozenset({"a", "b"})).adds("d")
    in_sync = adding and adding.admitted("d")
    moved = in_sync and in_sync.moved("d", "c", 2)
    assert moved is not None and moved.left == (("c", 4),)
    assert moved.adds("c") is None and moved.cleared("c") is None
    assert ShardRecord.decode(moved.encode()) == moved
    later = moved.handed_over("b", 3)
    assert later is not None and later.adds("c") is None  # it may have files still
    cleared = later.cleared("c")
    assert cleared is not None and cleared.left == () and cleared.adds("c") is not None
    assert cleared.cleared("c") is None
    without = moved.encode().replace(b'"left":[["c",4]],', b"")  # of an earlier version
    assert ShardRecord.decode(without) == replace(moved, left=())


def test_fields_of_a_later_version_are_kept_by_every_change() -> None:
    later = LED.encode().replace(b"{", b'{"term":{"a":[2]},', 1)
    record = ShardRecord.decode(later)
    lost = (Unclean(5, "telemetry", 100),)
    changes = (
        record, record.elected("b", 20, 2), record.handed_over("c", 9), record.resigned(), record.renewed(18),
        record.dismissed("b", 2), record.adds("d"), record.ordered(("c", "a", "b")), record.recovered("c", 8, lost),
    )  # fmt: skip
    assert [one is not None and json.loads(one.encode())["term"] for one in changes] == [{"a": [2]}] * 9
    assert replace(record, others="") == LED


def test_replicas_can_be_put_in_another_order() -> None:
    assert LED.ordered(("c", "a", "b")) == replace(LED, replicas=("c", "a", "b"))
    assert LED.ordered(LED.replicas) is None and LED.ordered(("a", "b", "d")) is None


def test_recovery_makes_one_member_the_whole_set_and_says_what_is_unclean() -> None:
    lost = (Unclean(5, "telemetry", 100),)
    recovered = replace(LED, leader=None, run=0, isr=frozenset({"a", "b"})).recovered("c", 8, lost)
    assert recovered == ShardRecord(5, "c", 8, frozenset({"c"}), ("a", "b", "c"), unclean=lost)
    assert LED.recovered("c", 8, ()) is None
    assert LED.recovered("d", 8, lost) is None


names = st.text("abcdefgh0123456789@-", min_size=1, max_size=20)


@given(
    generation=st.integers(0, MOST_GENERATION),
    run=st.integers(1, 2**63 - 1),
    isr=st.frozensets(names, min_size=1, max_size=5),
    replicas=st.lists(names, min_size=1, max_size=5, unique=True),
    unclean=st.lists(st.builds(Unclean, st.integers(0, 9), names, st.integers(0, 2**63 - 1)), max_size=3),
)
def test_record_survives_its_bytes(
    generation: int, run: int, isr: frozenset[str], replicas: list[str], unclean: list[Unclean]
) -> None:
    record = ShardRecord(generation, min(isr), run, isr, tuple(replicas), (), tuple(unclean))
    assert ShardRecord.decode(record.encode()) == record


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version":1', b'"version":2'),
        (b'"generation":4', b'"generation":-1'),
        (b'"generation":4', b'"generation":true'),
        (b'"generation":4', b'"generation":4294967296'),
        (b'"leader":"a"', b'"leader":"d"'),
        (b'"leader":"a"', b'"leader":7'),
        (b'"run":17', b'"run":0'),
        (b'"isr":["a","b","c"]', b'"isr":[]'),
        (b'"isr":["a","b","c"]', b'"isr":["a","a"]'),
        (b'"isr":["a","b","c"]', b'"isr":"abc"'),
        (b'"replicas":["a","b","c"]', b'"replicas":[]'),
        (b'"unclean":[]', b'"unclean":[[1,2]]'),
        (b'"adding":[]', b'"adding":[""]'),
        (b"{", b"["),
        (b'"version":1', b'"nothing":1'),
    ],
)
def test_bytes_are_refused_when_they_are_not_a_record(old: bytes, new: bytes) -> None:
    value = LED.encode()
    assert old in value
    with pytest.raises(UndecodableShardRecord, match="invalid shard record"):
        ShardRecord.decode(value.replace(old, new))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(value: bytes) -> None:
    with pytest.raises(UndecodableShardRecord):
        ShardRecord.decode(value)


def test_member_replaces_what_its_node_was_before_another_boot_when_it_is_admitted() -> None:
    booted = replace(LED, leader="a@1", isr=frozenset({"a@1", "b@1", "c@1"}))
    admitted = booted.admitted("b@2")
    assert admitted is not None and admitted.isr == {"a@1", "b@2", "c@1"}
    leading = booted.admitted("a@2")
    assert leading is not None and leading.isr == {"a@1", "a@2", "b@1", "c@1"}, "the leader stays"


def test_node_without_a_boot_is_elected_with_any_when_all_that_it_has_promised_is_on_its_disk() -> None:
    restored = ShardRecord(1000, None, 0, frozenset({"a"}), ("a",))
    elected = restored.elected("a@7", 3, 1)
    assert elected is not None and elected.leader == "a@7" and elected.isr == {"a@7"}
    assert replace(restored, isr=frozenset({"a@6"})).elected("a@7", 3, 1) is None


def test_offset_where_records_resume_is_written_only_where_there_is_one() -> None:
    plain, resumed = Unclean(5, "flow", 7), Unclean(6, "flow", 9, 20)
    assert (plain.fields, resumed.fields) == ((5, "flow", 7), (6, "flow", 9, 20))
    record = replace(LED, unclean=(plain, resumed))
    assert ShardRecord.decode(record.encode()) == record
    assert [resumed.is_of(folder) for folder in ("flow-0", "flow-11", "flow-x-0", "flow")] == [
        True,
        True,
        False,
        False,
    ]


def test_what_was_given_up_is_of_no_other_log_of_the_name_when_one_was_deleted() -> None:
    known = ("flow-0", "flow-0@1", "flow-0@2")
    assert [Unclean(6, "flow", 9, 20).is_of(one) for one in known] == [True, False, False]
    assert [Unclean(6, "flow@1", 9, 20).is_of(one) for one in known] == [False, True, False]

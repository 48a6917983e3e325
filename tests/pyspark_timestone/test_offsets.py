"""The offset JSON: what it looks like, that its text is stable, and that it remembers where the first batch began."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_timestone.errors import InvalidOffsets
from pyspark_timestone.offsets import LogPartition, OffsetRange, Origin, SourceOffset

A, B, C = LogPartition("telemetry", 0), LogPartition("telemetry", 10), LogPartition("alarms", 2)
ORIGINS = {A: Origin(0xC3A1, 1), B: Origin(7, 1), C: Origin(2**64 - 1, 3)}

keys = st.builds(LogPartition, st.from_regex(r"[A-Za-z0-9._-]{1,8}", fullmatch=True), st.integers(0, 300))
positions = st.dictionaries(keys, st.integers(0, 2**62), max_size=5)
offsets = st.builds(
    SourceOffset,
    positions,
    st.dictionaries(keys, st.builds(Origin, st.integers(0, 2**64 - 1), st.integers(0, 2**31)), max_size=4),
    positions,
)


def test_offsets_look_like_those_of_kafka_with_one_key_more() -> None:
    written = SourceOffset({A: 123, C: 4}, {A: ORIGINS[A]}, {C: 0}).to_json()
    assert json.dumps(written) == (
        '{"#": {"version": 1, "logs": {"telemetry": {"0": {"epoch": 1, "id": "000000000000c3a1"}}},'
        ' "since": {"alarms": {"2": 0}}}, "alarms": {"2": 4}, "telemetry": {"0": 123}}'
    )


@pytest.mark.slow
@given(offset=offsets)
def test_offsets_survive_the_checkpoint(offset: SourceOffset) -> None:
    again = SourceOffset.from_json(json.loads(json.dumps(offset.to_json())))
    assert again == offset
    assert json.dumps(again.to_json()) == json.dumps(offset.to_json())


@pytest.mark.slow
@given(offset=offsets, random=st.randoms())
def test_the_same_offsets_are_the_same_text_in_whatever_order_they_came(
    offset: SourceOffset, random: Random
) -> None:
    """Spark compares the texts: another order of keys was new data to it, and a stream never ended (batch after batch
    without a row)."""
    positions = dict(random.sample(list(offset.positions.items()), len(offset.positions)))
    origins = dict(random.sample(list(offset.origins.items()), len(offset.origins)))
    again = SourceOffset(positions, origins, offset.since)
    assert json.dumps(again.to_json()) == json.dumps(offset.to_json())


def test_offsets_written_by_hand_need_no_identity() -> None:
    assert SourceOffset.from_json({"telemetry": {"0": 5}}) == SourceOffset({A: 5})


@pytest.mark.parametrize(
    "data",
    [
        [],
        {"telemetry": 5},
        {"telemetry": {"x": 5}},
        {"telemetry": {"0": "5"}},
        {"telemetry": {"0": True}},
        {"telemetry": {"-1": 5}},
        {"telemetry": {"0": 1, "00": 2}},
        {"telemetry": {"٣": 5}},
        {"telemetry": {"9" * 5000: 5}},
        {"telemetry": {"0": 10**19}},
        {"telemetry": {"0": float("inf")}},
        {"#": {"version": 1, "logs": {"telemetry": {"0": {"id": "1", "epoch": float("inf")}}}}},
        {"#": 1},
        {"#": {"version": 2}, "telemetry": {"0": 5}},
        {"#": {"version": 1, "logs": {"telemetry": {"0": {"id": "zz", "epoch": 1}}}}},
        {"#": {"version": 1, "since": 4}},
    ],
)
def test_offsets_that_are_none_are_refused(data: object) -> None:
    with pytest.raises(InvalidOffsets):
        SourceOffset.from_json(data)


def test_unknown_version_is_told_apart_from_nonsense() -> None:
    with pytest.raises(InvalidOffsets, match="newer"):
        SourceOffset.from_json({"#": {"version": 2}})


def test_first_batch_begins_where_it_began_although_spark_says_otherwise() -> None:
    """kill -9 of the driver in batch 0 of a stream from "latest": Spark asks for the start again and gets a later
    one."""
    first = SourceOffset.first({A: 100}, ORIGINS)
    end = SourceOffset.from_json(first.advanced({A: 150}, ORIGINS, {A: 100}).to_json())
    asked_again = SourceOffset.first({A: 170}, ORIGINS)
    assert end.ranges_since(asked_again) == [OffsetRange(A, 100, 150)]
    assert end.ranges_since(first) == [OffsetRange(A, 100, 150)]


def test_an_empty_first_batch_does_not_forget_the_start() -> None:
    first = SourceOffset.first({A: 100}, ORIGINS)
    empty = first.advanced({A: 100}, ORIGINS, {A: 100})
    assert empty is first
    assert empty.advanced({A: 130}, ORIGINS, {A: 100}).ranges_since(empty) == [OffsetRange(A, 100, 130)]


def test_later_batches_begin_at_the_end_of_the_one_before() -> None:
    first = SourceOffset.first({A: 100}, ORIGINS)
    second = first.advanced({A: 150}, ORIGINS, {A: 100})
    third = second.advanced({A: 180}, ORIGINS, {A: 150})
    assert third.since == {}
    assert third.ranges_since(second) == [OffsetRange(A, 150, 180)]


def test_a_new_log_begins_where_it_was_found_to_begin() -> None:
    before = SourceOffset({A: 150}, ORIGINS)
    after = before.advanced({A: 150, C: 9}, ORIGINS, {A: 150, C: 4})
    assert after.ranges_since(before) == [OffsetRange(C, 4, 9)]
    assert after.advanced({A: 151, C: 9}, ORIGINS, {A: 150, C: 9}).since == {}


def test_nothing_new_is_the_same_text_even_in_a_new_epoch() -> None:
    before = SourceOffset({A: 150}, ORIGINS)
    assert before.advanced({A: 150}, {A: Origin(0xC3A1, 2)}, {A: 150}) is before


VERSION_1 = (
    '{"#": {"version": 1, "logs": {"telemetry": {"0": {"epoch": 1, "id": "37277be6e22a4e68"}}}, '
    '"since": {"telemetry": {"0": 100}}}, "telemetry": {"0": 123, "1": 7}}'
)
"""A checkpoint as this version wrote it. Never change it: a query that began with it has to continue."""


def test_a_checkpoint_of_version_1_is_read_and_written_back_to_the_letter() -> None:
    offset = SourceOffset.from_json(json.loads(VERSION_1))
    assert offset.positions == {LogPartition("telemetry", 0): 123, LogPartition("telemetry", 1): 7}
    assert offset.origins == {LogPartition("telemetry", 0): Origin(0x37277BE6E22A4E68, 1)}
    assert offset.since == {LogPartition("telemetry", 0): 100}
    assert offset.to_json() == json.loads(VERSION_1)

"""Parsing of the start of a replay."""

import pytest

from mqtt_front.topics.replay_start import (
    EARLIEST,
    LATEST,
    Start,
    StartKind,
    parse_property_start,
    parse_topic_start,
)
from timestone.errors import InvalidName


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", EARLIEST), ("latest", LATEST), ("offset:0", Start(StartKind.OFFSET, 0)),
        ("offset:9223372036854775807", Start(StartKind.OFFSET, 2**63 - 1)),
        ("1700000000000000", Start(StartKind.TIME, 1_700_000_000_000_000)), ("0", Start(StartKind.TIME, 0)),
    ],
)  # fmt: skip
def test_start_property_is_parsed(text: str, start: Start) -> None:
    assert parse_property_start(text) == start


@pytest.mark.parametrize(
    "text", ["", "first", "Earliest", "offset:", "offset:-1", "offset:1.5", "-1", "1e3", "٣", "1" * 20, "offset: 1",
             "9223372036854775808", "@earliest", "time:2026-01-01T00:00:00Z"],
)  # fmt: skip
def test_invalid_start_property_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(InvalidName, match="offset:<n>"):
        parse_property_start(text)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("@earliest", EARLIEST), ("@latest", LATEST), ("@offset:12", Start(StartKind.OFFSET, 12)),
        ("@time:1970-01-01T00:00:01Z", Start(StartKind.TIME, 1_000_000)),
        ("@time:2026-11-21T09:00:00.000001Z", Start(StartKind.TIME, 1_795_251_600_000_001)),
        ("@time:2026-11-21T10:00:00+01:00", Start(StartKind.TIME, 1_795_251_600_000_000)),
        ("@time:1960-01-01T00:00:00Z", Start(StartKind.TIME, 0)),
    ],
)  # fmt: skip
def test_start_level_of_a_filter_is_parsed(text: str, start: Start) -> None:
    assert parse_topic_start(text) == start


@pytest.mark.parametrize(
    "text", ["@", "@now", "@time", "@time:", "@time:yesterday", "@time:2026-11-21T09:00:00", "@offset:x"]
)
def test_invalid_start_level_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_topic_start(text)


def test_offsets_by_partition_are_those_that_are_named_and_the_oldest_record_of_others() -> None:
    start = parse_property_start("offset:3:17,0:5")
    assert (start.kind, start.of_partition(0)) == (StartKind.OFFSETS, Start(StartKind.OFFSET, 5))
    assert (start.of_partition(3), start.of_partition(1)) == (Start(StartKind.OFFSET, 17), EARLIEST)
    assert parse_topic_start("@offset:3:17").of_partition(3) == Start(StartKind.OFFSET, 17)
    assert LATEST.of_partition(7) is LATEST


@pytest.mark.parametrize(
    "text", ["offset:1:", "offset::1", "offset:1:2,", "offset:1:2,3", "offset:1:2:3", "offset:1:-2"]
)
def test_invalid_offsets_by_partition_are_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_property_start(text)

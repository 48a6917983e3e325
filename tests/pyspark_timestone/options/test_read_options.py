"""Every option: what it may be, what it means, and what is said when it is wrong."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.bounds import EARLIEST, LATEST, Unmatched
from pyspark_timestone.options.columns import NAMES
from pyspark_timestone.options.read_options import RECORDS_PER_TASK, ReadOptions, TriggerLimits, read_options
from timestone import Pin

T0 = LogPartition("telemetry", 0)


def options(**given: str) -> ReadOptions:
    return read_options({"path": "/data", **given}, streaming=False)


def test_defaults_of_a_batch_read_all_logs_from_the_first_record_on() -> None:
    chosen = options()
    assert chosen.source == Path("/data")
    assert chosen.selection.choose([("b", 0), ("a", 1)]) == [LogPartition("a", 1), LogPartition("b", 0)]
    assert (chosen.starting.default, chosen.ending.default) == (EARLIEST, LATEST)
    assert chosen.topics == ()
    assert chosen.fail_on_data_loss
    assert chosen.columns == NAMES
    assert (chosen.limits.most_records, chosen.partition_count, chosen.records_per_task) == (
        None,
        1,
        RECORDS_PER_TASK,
    )


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    assert read_options({"path": "/data"}, streaming=True).starting.default == LATEST
    told = read_options({"path": "/data", "startingOffsets": "earliest"}, streaming=True)
    assert told.starting.default == EARLIEST


def test_names_and_words_may_have_any_case() -> None:
    chosen = options(
        SUBSCRIBE="a, b", failondataloss="FALSE", StartingOffsets="Earliest", maxoffsetspertrigger="5"
    )
    assert chosen.selection.names == ("a", "b")
    assert not chosen.fail_on_data_loss
    assert chosen.limits.most_records == 5


def test_a_relative_path_is_the_same_folder_for_every_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert options(path="data").source == tmp_path / "data"
    assert options(path=f"file://{tmp_path}/data").source == tmp_path / "data"


def test_assign_names_partitions() -> None:
    chosen = options(assign='{"telemetry":[1,0]}').selection
    assert chosen.choose([("telemetry", 0), ("telemetry", 1), ("telemetry", 2)]) == [
        T0,
        LogPartition("telemetry", 1),
    ]


def test_topics_are_mqtt_filters() -> None:
    assert options(topics="devices/+/temp, plant/#").topics == ("devices/+/temp", "plant/#")


def test_offsets_may_be_json_as_kafka_writes_it() -> None:
    assert options(startingOffsets='{"telemetry":{"0":23}}').starting.offsets == {T0: 23}
    assert options(startingOffsets='{"telemetry":{"0":-2}}').starting.offsets == {T0: EARLIEST}
    assert options(endingOffsets='{"telemetry":{"0":-1}}').ending.offsets == {T0: LATEST}


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1767225600000", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T01:00:00.000001+01:00", datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    ],
)
def test_times_are_milliseconds_or_text_with_a_zone(text: str, moment: datetime) -> None:
    whole_us = int(moment.replace(microsecond=0).timestamp()) * 1_000_000 + moment.microsecond
    assert options(startingTimestamp=text).starting.time_us == whole_us
    assert options(endingTimestamp=text).ending.time_us == whole_us


def test_times_by_partition_are_milliseconds() -> None:
    assert options(startingOffsetsByTimestamp='{"telemetry":{"0":5}}').starting.times_us == {T0: 5000}


def test_the_stronger_of_two_bounds_counts_as_with_kafka() -> None:
    starting = options(
        startingTimestamp="7", startingOffsetsByTimestamp='{"telemetry":{"0":5}}', startingOffsets="earliest"
    ).starting
    assert (starting.time_us, starting.times_us, starting.offsets) == (7000, None, None)


def test_strategy_is_an_error_unless_it_is_latest() -> None:
    assert options().unmatched_start is Unmatched.ERROR
    assert options(startingOffsetsByTimestampStrategy="latest").unmatched_start is Unmatched.LATEST


def test_columns_are_read_in_the_order_asked_for() -> None:
    assert options(columns="value, offset").columns == ("value", "offset")
    assert "headers" not in options(includeHeaders="false").columns


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscrib": "a"}, "unknown option 'subscrib'; did you mean 'subscribe'?"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"paths": '["a","b"]'}, "load() takes one path"),
        ({"path": ""}, "invalid path: expected the folder of a store, as in .load('data'), got none"),
        ({"path": "ftp://bucket/data"}, "expected s3://BUCKET/PREFIX"),
        (
            {"path": "s3://bucket/data", "group": "g"},
            "invalid group: expected the folder of a store as path or tail, got a bucket",
        ),
        (
            {"subscribe": "a", "assign": "{}"},
            "expected at most one of subscribe, subscribePattern and assign, got subscribe and",
        ),
        ({"subscribe": " , "}, "invalid subscribe: expected names of logs, got ' , '"),
        ({"assign": '["a"]'}, "invalid assign: expected JSON like"),
        ({"assign": "{}"}, "invalid assign: expected a partition, got {}"),
        ({"assign": '{"a":[0.9]}'}, "invalid assign: expected JSON like"),
        ({"assign": '{"a":"01"}'}, "invalid assign: expected JSON like"),
        ({"assign": '{"a":[1e999]}'}, "invalid assign: expected JSON like"),
        ({"assign": '{"a":[-1]}'}, "invalid assign: expected JSON like"),
        ({"startingOffsets": '{"a":{"0":1},"a":{"1":2}}'}, "'a' is there twice"),
        ({"startingTimestamp": "9" * 5000}, "invalid startingTimestamp: expected milliseconds since 1970 or"),
        ({"topics": "devices/temp#"}, "invalid topics: "),
        (
            {"startingOffsets": "latest"},
            "invalid startingOffsets: expected earliest or JSON, got 'latest', which would read nothing",
        ),
        (
            {"endingOffsets": "earliest"},
            "invalid endingOffsets: expected latest or JSON, got 'earliest', which would read nothing",
        ),
        (
            {"endingOffsets": '{"a":{"0":-2}}'},
            "invalid endingOffsets: expected an offset of a-0 that a read can use, got -2",
        ),
        ({"startingOffsets": '{"a":{"0":'}, """invalid startingOffsets: expected JSON, got '{"a":{"0":': """),
        ({"startingOffsets": '{"a":[1]}'}, "invalid startingOffsets: "),
        (
            {"startingTimestamp": "yesterday"},
            "invalid startingTimestamp: expected milliseconds since 1970 or",
        ),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, "with its zone"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, "Strategy: expected error or latest, got 'skip'"),
        ({"failOnDataLoss": "no"}, "invalid failOnDataLoss: expected true or false, got 'no'"),
        (
            {"maxOffsetsPerTrigger": "0"},
            "invalid maxOffsetsPerTrigger: expected a whole number from 1 on, got '0'",
        ),
        ({"minPartitions": "-3"}, "invalid minPartitions: expected a whole number from 1 on, got '-3'"),
        ({"columns": "offset,payload"}, "invalid columns: expected some of log, "),
        ({"columns": "offset,offset"}, "invalid columns: expected each once, got offset, offset"),
        (
            {"subscribePattern": "plant-("},
            "invalid subscribePattern: expected a regular expression of Java, got",
        ),
        ({"subscribePattern": "[a-"}, "invalid subscribePattern: "),
        ({"subscribePattern": " "}, "invalid subscribePattern: expected a regular expression, got nothing"),
        ({"subscribePattern": r"\p{Klingon}"}, r"unknown class \p{Klingon}"),
        ({"Kafka.Auto.Offset.Reset": "earliest"}, "unsupported option 'Kafka.Auto.Offset.Reset'"),
        ({"kafka.auto.offset.reset": "earliest"}, "set startingOffsets to earliest or latest"),
        ({"kafka.key.deserializer": "x"}, "unsupported option 'kafka.key.deserializer'"),
        ({"kafka.value.deserializer": "x"}, "unsupported option 'kafka.value.deserializer'"),
        ({"kafka.enable.auto.commit": "true"}, "unsupported option 'kafka.enable.auto.commit'"),
        ({"kafka.interceptor.classes": "x"}, "unsupported option 'kafka.interceptor.classes'"),
        ({"maxTriggerDelay": "5m"}, "invalid maxTriggerDelay: expected minOffsetsPerTrigger beside it"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "invalid minOffsetsPerTrigger: expected at most maxOffsetsPerTrigger (4), got 5",
        ),
        ({"group": "a\nb"}, "invalid group: "),
        ({"pinMaxBytes": "5"}, "invalid pinMaxBytes: expected group beside it"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_a_wrong_option_is_refused_with_the_one_thing_to_change(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        options(**given)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_limits_of_a_batch_are_those_of_kafka_and_bytes() -> None:
    chosen = options(
        maxOffsetsPerTrigger="50", minOffsetsPerTrigger="5", maxTriggerDelay="1m", maxBytesPerTrigger="9"
    )
    assert chosen.limits == TriggerLimits(most_records=50, least_records=5, delay_s=60.0, most_bytes=9)
    assert options(minOffsetsPerTrigger="5").limits.delay_s == 15 * 60


def test_a_group_may_pin_what_it_has_not_read() -> None:
    assert options(group="billing").pin is None
    chosen = options(group="billing", pinMaxAge="7d", pinMaxBytes="1000000")
    assert (chosen.group, chosen.pin) == (
        "billing",
        Pin(max_age_ms=7 * 24 * 3600 * 1000, max_bytes=1_000_000),
    )


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"])
def test_limits_are_refused_by_name_when_spark_is_too_old_for_them(name: str) -> None:
    options().refuse_limits()
    with pytest.raises(InvalidOption, match=rf"^{name} needs Spark 4\.2 or newer"):
        options(**{name: "5"}).refuse_limits()

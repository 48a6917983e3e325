"""Options as text: found in any case, read as what they are, refused with the one thing to change."""

from pathlib import Path

import pytest

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.options.option_text import OptionText

KNOWN = ("path", "delay", "maxOffsets", "mode", "failOnDataLoss", "topics", "assign")


def text(**given: str) -> OptionText:
    return OptionText(given, KNOWN)


def test_names_are_found_in_any_case_and_strange_ones_get_a_hint() -> None:
    assert OptionText({"MAXOFFSETS": "5"}, KNOWN).count("maxOffsets") == 5
    with pytest.raises(InvalidOption, match="did you mean 'maxOffsets'"):
        text(maxOffset="5")
    with pytest.raises(InvalidOption, match="load\\(\\) takes one path"):
        text(paths="[]")


def test_what_configures_a_client_of_kafka_is_passed_over_and_named_without_its_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    left_over = {
        "kafka.bootstrap.servers": "b:9092",
        "Kafka.sasl.jaas.config": "password=x",
        "groupIdPrefix": "g",
    }
    given = OptionText({**left_over, "maxOffsets": "5"}, KNOWN)
    assert dict(given) == {"maxOffsets": "5"}
    given.warn_of_ignored()
    (told,) = caplog.messages
    assert told.endswith(
        "change nothing but the layout, which is kafka: kafka.bootstrap.servers, Kafka.sasl.jaas.config, groupIdPrefix"
    )
    with pytest.raises(
        InvalidOption, match=r"^invalid path: .* got none \(instead of kafka.bootstrap.servers\)"
    ):
        given.path()


def test_a_path_is_a_folder_on_this_machine() -> None:
    assert text(path="file:///data").path() == text(path="/data").path() == Path("/data")
    assert text(path="data").path().is_absolute()
    with pytest.raises(
        InvalidOption, match=r"^invalid path: expected the folder of a store, as in .*, got none$"
    ):
        text().path()
    with pytest.raises(InvalidOption, match="driver and workers can open"):
        text(path="s3://bucket").path()


def test_values_are_read_or_refused() -> None:
    given = text(maxOffsets=" 7 ", mode="Fast", failOnDataLoss="FALSE", topics="a, b,,c", assign="[1]")
    assert given.count("maxOffsets") == 7
    assert given.one_of("mode", {"fast": 1, "slow": 2}, default=3) == 1
    assert given.boolean("failOnDataLoss", default=True) is False
    assert given.words("topics") == ("a", "b", "c")
    assert given.parsed("assign") == [1]


def test_what_is_not_given_has_its_default() -> None:
    given = text()
    assert given.count("maxOffsets") is None
    assert given.one_of("mode", {"fast": 1}, default=3) == 3
    assert given.boolean("failOnDataLoss", default=True) is True
    assert given.words("topics") == ()


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "many", "٣", "9" * 5000])
def test_numbers_that_count_nothing_are_refused(number: str) -> None:
    with pytest.raises(InvalidOption, match="invalid maxOffsets: expected a whole number from 1 on, got '"):
        text(maxOffsets=number).count("maxOffsets")


def test_a_number_that_no_counter_holds_is_refused() -> None:
    assert text(maxOffsets=str(2**63 - 1)).count("maxOffsets") == 2**63 - 1
    with pytest.raises(
        InvalidOption,
        match="invalid maxOffsets: expected at most 9223372036854775807, got 9223372036854775808",
    ):
        text(maxOffsets=str(2**63)).count("maxOffsets")


@pytest.mark.parametrize(
    "value", ["[" * 100_000, "9" * 5000, '{"a": {"b": 1, "b": 2}}'], ids=["deep", "long", "twice"]
)
def test_json_that_python_does_not_take_is_refused_with_the_name_of_the_option(value: str) -> None:
    with pytest.raises(InvalidOption, match="invalid assign: expected JSON, got"):
        text(assign=value).parsed("assign")


def test_other_values_are_refused_with_what_they_may_be() -> None:
    with pytest.raises(InvalidOption, match="invalid mode: expected fast or slow, got 'x'"):
        text(mode="x").one_of("mode", {"fast": 1, "slow": 2}, default=1)
    with pytest.raises(InvalidOption, match="invalid assign: expected JSON, got"):
        text(assign="{").parsed("assign")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("15m", 900), ("15 min", 900), ("2H", 7200), ("7d", 604_800)],
)
def test_times_are_written_as_spark_writes_them(written: str, seconds: float) -> None:
    assert text(delay=written).seconds("delay") == seconds


@pytest.mark.parametrize("written", ["15", "0s", "-1s", "1.5h", "soon", "", "9" * 400 + "s"])
def test_other_times_are_refused(written: str) -> None:
    with pytest.raises(InvalidOption, match="invalid delay: expected a time like 500ms, 30s"):
        text(delay=written).seconds("delay")
    assert text().seconds("delay") is None

"""Settings that contradict each other are refused, with the key in the error."""

from typing import Any

import pytest

from timestone_pipeline.config import MessageConfig, PipelineConfig, SourceConfig, WindowsConfig
from timestone_pipeline.errors import InvalidConfig


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"device": "dev"}, r"^invalid message.device: expected one of message.fields \(device, seq"),
        ({"time": "temperature"}, "^invalid message.time: expected a timestamp, got 'temperature', a double"),
        (
            {"fields": {"device": "text"}},
            "^invalid message.fields.device: expected a type of Spark, got 'text'",
        ),
        (
            {"fields": {"offset": "int"}},
            "^invalid message.fields: expected names that the tables .* got 'offset'",
        ),
        (
            {"fields": {"Offset": "int"}},
            "^invalid message.fields: expected names that the tables .* got 'Offset'",
        ),
        (
            {"fields": {"device": "string", "Device": "int"}},
            "expected names that differ in more than case, got device and Device",
        ),
        (
            {
                "fields": {"t": "double", "t_mean": "string", "seq": "int", "ts": "timestamp"},
                "device": "t_mean",
            },
            "^invalid message.device: .* got 't_mean', which is made of 't'",
        ),
        (
            {"fields": {"a b": "int"}},
            "^invalid message.fields: expected names of letters, digits and _, got 'a b'",
        ),
    ],
)
def test_error_names_the_invalid_setting(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        MessageConfig(**settings)


@pytest.mark.parametrize("minutes", [(1, 1), (0,), (7,), (1, 5, 11)])
def test_window_lengths_divide_a_day(minutes: tuple[int, ...]) -> None:
    with pytest.raises(InvalidConfig, match=r"^invalid windows\.minutes: expected .*, got \["):
        WindowsConfig(minutes=minutes)


def test_windows_of_all_lengths_share_block_boundaries() -> None:
    assert WindowsConfig(minutes=(1, 5, 15)).block_minutes == 15
    assert WindowsConfig(minutes=(10, 15)).block_minutes == 30
    assert WindowsConfig(minutes=()).block_minutes == 1


def test_measurements_are_the_numeric_fields_without_another_role() -> None:
    assert PipelineConfig().message.measurements == ("temperature", "humidity")
    assert PipelineConfig().message.keys == ("device", "seq")


def test_numbers_are_checked_against_their_declared_range() -> None:
    with pytest.raises(ValueError, match="invalid records_per_batch: expected at least 1, got 0"):
        SourceConfig(records_per_batch=0)
    with pytest.raises(TypeError, match=r"invalid lateness_s: expected a whole number, got 600\.5"):
        WindowsConfig(lateness_s=600.5)  # type: ignore[arg-type]

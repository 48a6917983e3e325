"""Settings that contradict each other are refused, and the key is named."""

from typing import Any

import pytest

from timestone_pipeline.config import MessageConfig, PipelineConfig, SourceConfig, WindowsConfig
from timestone_pipeline.errors import InvalidConfig


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"device": "dev"}, r"message.device: 'dev' is none of message.fields \(device, seq"),
        ({"time": "temperature"}, "message.time: 'temperature' is a double, not a timestamp"),
        ({"fields": {"device": "text"}}, "message.fields.device: 'text' is no type"),
        ({"fields": {"offset": "int"}}, "message.fields.offset: the pipeline has a column of that name"),
        ({"fields": {"Offset": "int"}}, "message.fields.Offset: the pipeline has a column of that name"),
        ({"fields": {"device": "string", "Device": "int"}}, "to Spark device and Device are one name"),
        (
            {
                "fields": {"t": "double", "t_mean": "string", "seq": "int", "ts": "timestamp"},
                "device": "t_mean",
            },
            "message.device: 't_mean' is what windows call a value made of 't'",
        ),
        ({"fields": {"a b": "int"}}, "message.fields: 'a b' is no name"),
    ],
)
def test_a_message_names_what_does_not_fit(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        MessageConfig(**settings)


@pytest.mark.parametrize("minutes", [(), (1, 1), (0,), (7,), (1, 5, 11)])
def test_windows_fit_into_a_day(minutes: tuple[int, ...]) -> None:
    with pytest.raises(InvalidConfig, match=r"windows\.minutes"):
        WindowsConfig(minutes=minutes)


def test_windows_of_all_lengths_meet_at_blocks() -> None:
    assert WindowsConfig(minutes=(1, 5, 15)).block_minutes == 15
    assert WindowsConfig(minutes=(10, 15)).block_minutes == 30


def test_measurements_are_the_numbers_that_name_nothing() -> None:
    assert PipelineConfig().message.measurements == ("temperature", "humidity")
    assert PipelineConfig().message.keys == ("device", "seq")


def test_numbers_are_held_to_what_their_setting_declares() -> None:
    with pytest.raises(ValueError, match="records_per_batch is 0; it goes from 1"):
        SourceConfig(records_per_batch=0)
    with pytest.raises(TypeError, match="lateness_s is '600'; it has to be a whole number"):
        WindowsConfig(lateness_s="600")  # type: ignore[arg-type]

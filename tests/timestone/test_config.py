from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from timestone.config import Ack, LogConfig, Recovery, StoreConfig, with_settings

OUT_OF_RANGE: list[tuple[type, str, int]] = [
    (LogConfig, "segment_bytes", 0),
    (LogConfig, "segment_bytes", 2**32),
    (LogConfig, "segment_entries", 0),
    (LogConfig, "segment_age_ms", 0),
    (LogConfig, "record_bytes", 0),
    (LogConfig, "topic_count", -1),
    (LogConfig, "topic_count", 2**32 - 1),
    (StoreConfig, "min_free_bytes", -1),
    (StoreConfig, "tail_bytes", -1),
    (StoreConfig, "sync_interval_ms", 0),
    (StoreConfig, "sync_interval_bytes", 0),
    (StoreConfig, "open_segment_count", 0),
]


@pytest.mark.parametrize(("settings", "name", "value"), OUT_OF_RANGE)
def test_value_out_of_range_is_refused_with_the_range(settings: type, name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"{name} is {value}; it goes from \d+"):
        settings(**{name: value})


@pytest.mark.parametrize("settings", [LogConfig, StoreConfig])
def test_defaults_are_in_their_own_ranges(settings: type) -> None:
    settings()


@pytest.mark.parametrize("settings", [LogConfig, StoreConfig])
def test_every_setting_says_what_it_is(settings: Any) -> None:
    assert [setting.name for setting in fields(settings) if not setting.metadata.get("help")] == []


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        StoreConfig().tail_bytes = 1  # type: ignore[misc]


def test_strings_do_where_an_enum_is_meant() -> None:
    config = StoreConfig(ack="written", recovery="strict")  # type: ignore[arg-type]
    assert config.ack is Ack.WRITTEN
    assert config.recovery is Recovery.STRICT


@pytest.mark.parametrize("name", ["ack", "recovery"])
def test_unknown_word_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="sometimes"):
        StoreConfig(**{name: "sometimes"})  # type: ignore[arg-type]


def test_refusal_of_a_word_says_which_ones_there_are() -> None:
    with pytest.raises(ValueError, match="'lz4' is none of none, zstd"):
        LogConfig(compression="lz4")  # type: ignore[arg-type]


def test_settings_of_new_logs_are_settings_of_a_log() -> None:
    with pytest.raises(TypeError, match="log is 5; it has to be a LogConfig"):
        StoreConfig(log=5)  # type: ignore[arg-type]


def test_other_values_leave_the_rest_as_it_was() -> None:
    changed = with_settings(LogConfig(retention_ms=5), {"compact": True})
    assert (changed.retention_ms, changed.compact) == (5, True)


@pytest.mark.parametrize(
    ("config", "name", "hint"),
    [
        (
            LogConfig(),
            "segment_byte",
            r"LogConfig has no setting 'segment_byte'; did you mean 'segment_bytes'\?",
        ),
        (
            StoreConfig(),
            "segment_bytes",
            r"StoreConfig has no setting .*; it is one of a log: LogConfig\(seg",
        ),
        (LogConfig(), "ack", r"LogConfig has no setting 'ack'; it is one of the store: timestone\.open\("),
        (LogConfig(), "zzz", r"LogConfig has no setting 'zzz'$"),
    ],
)
def test_unknown_setting_names_the_nearest_or_whose_it_is(config: Any, name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        with_settings(config, {name: 1})


def test_only_settings_are_changed() -> None:
    with pytest.raises(TypeError, match=r"config is \{'ack': 'written'\}; it has to be a StoreConfig"):
        with_settings({"ack": "written"}, {})  # type: ignore[type-var]


def test_nothing_but_a_word_of_the_caller_makes_an_append_wait_for_less_than_the_disk() -> None:
    assert StoreConfig().ack is Ack.SYNCED


def test_segment_can_hold_the_largest_record_of_the_defaults() -> None:
    assert LogConfig().record_bytes <= LogConfig().segment_bytes

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
    with pytest.raises(ValueError, match=rf"invalid {name}: expected (at least )?\d+.*, got {value}"):
        settings(**{name: value})


@pytest.mark.parametrize("settings", [LogConfig, StoreConfig])
def test_defaults_are_within_their_ranges(settings: type) -> None:
    settings()


@pytest.mark.parametrize("settings", [LogConfig, StoreConfig])
def test_every_setting_has_a_help_text(settings: Any) -> None:
    assert [setting.name for setting in fields(settings) if not setting.metadata.get("help")] == []


def test_settings_are_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        StoreConfig().tail_bytes = 1  # type: ignore[misc]


def test_strings_are_accepted_as_enum_values() -> None:
    config = StoreConfig(ack="written", recovery="strict")  # type: ignore[arg-type]
    assert config.ack is Ack.WRITTEN
    assert config.recovery is Recovery.STRICT


@pytest.mark.parametrize("name", ["ack", "recovery"])
def test_unknown_enum_value_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^invalid {name}: expected one of .*, got 'sometimes'$"):
        StoreConfig(**{name: "sometimes"})  # type: ignore[arg-type]


def test_refused_enum_value_is_answered_with_the_valid_ones() -> None:
    with pytest.raises(ValueError, match=r"^invalid compression: expected one of none, zstd, got 'lz4'$"):
        LogConfig(compression="lz4")  # type: ignore[arg-type]


def test_settings_of_new_logs_are_also_settings_of_a_log() -> None:
    with pytest.raises(TypeError, match="invalid log: expected a LogConfig, got 5"):
        StoreConfig(log=5)  # type: ignore[arg-type]


def test_changed_settings_keep_the_other_values() -> None:
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
            r"StoreConfig has no setting .*; it is a setting of a log: LogConfig\(seg",
        ),
        (
            LogConfig(),
            "ack",
            r"LogConfig has no setting 'ack'; it is a setting of the store: timestone\.open\(",
        ),
        (LogConfig(), "zzz", r"LogConfig has no setting 'zzz'$"),
    ],
)
def test_unknown_setting_is_refused_with_the_nearest_name_or_its_owner(
    config: Any, name: str, hint: str
) -> None:
    with pytest.raises(TypeError, match=hint):
        with_settings(config, {name: 1})


def test_only_declared_settings_can_be_changed() -> None:
    with pytest.raises(TypeError, match=r"invalid config: expected a StoreConfig, got"):
        with_settings({"ack": "written"}, {})  # type: ignore[type-var]


def test_default_ack_level_is_synced() -> None:
    assert StoreConfig().ack is Ack.SYNCED


def test_segment_can_hold_the_largest_record_of_the_defaults() -> None:
    assert LogConfig().record_bytes <= LogConfig().segment_bytes

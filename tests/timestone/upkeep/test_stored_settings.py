from pathlib import Path

import pytest

import timestone
from timestone import LogConfig
from timestone.errors import NotAStore, StoreLocked, UnknownLog
from timestone.upkeep.stored_settings import Configured, configure_logs, settings_of_logs

LOGS = [("telemetry", 0), ("telemetry", 1)]


@pytest.fixture
def root(quick_directory: Path) -> Path:
    with timestone.open(quick_directory, min_free_bytes=0) as store:
        for log in [*LOGS, ("events", 0)]:
            for _ in range(25):
                store.log(*log, config=LogConfig(segment_entries=10)).append(b"x", ack="written")
    return quick_directory


def segments(root: Path, log: str) -> int:
    return len(list((root / log).glob("*.index")))


def test_settings_of_a_live_store_can_be_read(root: Path) -> None:
    with timestone.open(root, min_free_bytes=0) as store:
        store.log("events").configure(retention_ms=5)
        assert settings_of_logs(root)["events", 0] == LogConfig(segment_entries=10, retention_ms=5)
    assert settings_of_logs(root)["telemetry", 1] == LogConfig(segment_entries=10)


def test_change_is_stored_for_the_next_owner_and_changes_nothing_else(root: Path) -> None:
    before = LogConfig(segment_entries=10)
    done = configure_logs(root, LOGS, {"compression": "zstd"})
    after = LogConfig(segment_entries=10, compression=timestone.Compression.ZSTD)
    assert done == dict.fromkeys(LOGS, Configured(before, after))
    with timestone.open(root, min_free_bytes=0) as store:
        assert store.recoveries == ()
        assert [store.log(*log, create=False).config for log in store.log_names()] == [before, after, after]
        assert store.log("telemetry", 1).end_offset == 25


def test_no_record_is_deleted_before_the_store_is_opened_with_the_new_settings(root: Path) -> None:
    configure_logs(root, LOGS, {"retention_bytes": 1})
    assert segments(root, "telemetry-0") == 3
    configure_logs(root, [LOGS[0]], {"retention_bytes": 0})
    with timestone.open(root, min_free_bytes=0) as store:
        assert store.log("telemetry", 0).start_offset == 0
        store.log("telemetry", 1).apply_retention()
        assert store.log("telemetry", 1).start_offset == 20


@pytest.mark.parametrize(
    ("settings", "error"),
    [({"colour": 1}, TypeError), ({"retention_ms": -1}, ValueError), ({"retention_ms": 1.5}, TypeError)],
)
def test_unknown_setting_changes_nothing(root: Path, settings: dict[str, object], error: type) -> None:
    with pytest.raises(error):
        configure_logs(root, LOGS, {"retention_bytes": 1, **settings})
    assert settings_of_logs(root)["telemetry", 0] == LogConfig(segment_entries=10)


def test_change_of_several_logs_applies_to_all_or_none(root: Path) -> None:
    with pytest.raises(
        UnknownLog, match=r"no log named 'telemetry-2'.*it has events-0, telemetry-0, telemetry-1"
    ):
        configure_logs(root, [*LOGS, ("telemetry", 2)], {"retention_ms": 1})
    assert {config.retention_ms for config in settings_of_logs(root).values()} == {0}


def test_change_is_refused_for_an_owned_store_and_releases_the_lock(root: Path) -> None:
    with timestone.open(root, min_free_bytes=0) as store:
        with pytest.raises(StoreLocked):
            configure_logs(root, LOGS, {"retention_ms": 1})
        assert store.log(*LOGS[0]).config.retention_ms == 0
    configure_logs(root, LOGS, {"retention_ms": 1})
    with pytest.raises(TypeError):
        configure_logs(root, LOGS, {"colour": 1})
    timestone.open(root, min_free_bytes=0).close()


def test_settings_are_empty_and_cannot_change_without_a_catalogue(root: Path, tmp_path: Path) -> None:
    (root / "catalog.db").unlink()
    assert settings_of_logs(root) == {}
    for directory in (root, tmp_path / "nothing"):
        with pytest.raises(NotAStore):
            configure_logs(directory, LOGS, {"retention_ms": 1})
    assert not (tmp_path / "nothing").exists()

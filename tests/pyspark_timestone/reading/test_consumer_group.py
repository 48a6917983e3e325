"""Groups: one query a name, and progress that the log knows."""

from pathlib import Path

import pytest

import timestone
from pyspark_timestone.errors import GroupInUse
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.reading import consumer_group
from pyspark_timestone.reading.consumer_group import ConsumerGroup
from tests.support.stores import LOG, fill
from timestone import Pin, ReaderId
from timestone.errors import NotAStore

KEY = LogPartition(LOG, 0)


def test_a_group_is_one_querys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_group, "_PATIENCE_S", 0.1)
    fill(tmp_path, 10)
    first, second = (ConsumerGroup(tmp_path, "billing", None) for _ in range(2))
    first.join()
    first.join()
    with pytest.raises(GroupInUse, match=r"another query reads .* as group 'billing'"):
        second.join()
    other = ConsumerGroup(tmp_path, "alarms", None)
    other.join()
    other.leave()
    first.leave()
    second.join()
    second.leave()


def test_nothing_is_made_in_a_folder_that_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        ConsumerGroup(tmp_path, "billing", None).join()
    assert list(tmp_path.iterdir()) == []


def test_progress_and_pin_are_in_the_log_also_beside_its_owner(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    pin = Pin(max_age_ms=60_000)
    with timestone.open(tmp_path) as store:
        ConsumerGroup(tmp_path, "billing", pin).commit({KEY: 7, LogPartition("gone", 0): 3})
        (reader,) = store.readers()
        assert reader == ReaderId(LOG, 0, "billing")
        commitment = store.committed(reader)
        assert commitment is not None
        assert (commitment.offset, commitment.pin) == (7, pin)


def test_a_store_that_cannot_be_written_costs_a_warning_and_no_query(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ConsumerGroup(tmp_path / "nowhere", "billing", None).commit({KEY: 7})
    assert "group billing: its progress is not in the log" in caplog.text

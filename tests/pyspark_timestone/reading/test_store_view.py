"""Opening the chosen logs."""

import shutil
from pathlib import Path

import pytest

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import LogPartition
from pyspark_timestone.options.read_options import ReadOptions, read_options
from pyspark_timestone.options.selection import Selection
from pyspark_timestone.reading.store_view import chosen_logs
from tests.support.stores import LOG, fill
from timestone import NotAStore

KEY, ALARMS = LogPartition(LOG, 0), LogPartition("alarms", 0)


def options(path: Path) -> ReadOptions:
    return read_options({"path": str(path)}, streaming=False)


def test_chosen_logs_are_views_as_of_now(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    fill(tmp_path, 5, log="alarms")
    with chosen_logs(options(tmp_path), Selection(names=(LOG,))) as chosen:
        assert {key: log.end_offset for key, log in chosen.views.items()} == {KEY: 10}
        assert chosen.missing == ()


def test_a_log_known_from_before_that_has_vanished_is_missing_and_no_mistake(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    fill(tmp_path, 5, log="alarms")
    shutil.rmtree(tmp_path / "alarms-0")
    with chosen_logs(options(tmp_path), Selection(names=(LOG, "alarms")), [KEY, ALARMS]) as chosen:
        assert list(chosen.views) == [KEY]
        assert chosen.missing == (ALARMS,)
    with (
        pytest.raises(InvalidOption, match="no log alarms"),
        chosen_logs(options(tmp_path), Selection(names=("alarms",))),
    ):
        pass


def test_known_logs_that_are_not_chosen_are_neither(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    with chosen_logs(options(tmp_path), Selection(names=(LOG,)), [ALARMS]) as chosen:
        assert list(chosen.views) == [KEY]
        assert chosen.missing == ()


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStore), chosen_logs(options(tmp_path / "nowhere"), Selection()):
        pass

"""A batch as stored by Spark, compared with the tables."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_timestone.offsets import LogPartition, Origin, SourceOffset
from tests.support.damaged_json import DAMAGED_JSON
from timestone_pipeline.errors import TablesBehind
from timestone_pipeline.jobs.checkpoint import BatchSpan, batch_span, has_batches

KEY, OTHER = LogPartition("mqtt", 0), LogPartition("other", 0)


def offset(*, mqtt: int, other: int | None = None, log_id: int = 7, since: Any = None) -> SourceOffset:
    positions = {KEY: mqtt} | ({} if other is None else {OTHER: other})
    return SourceOffset(positions, {key: Origin(log_id, 0) for key in positions}, since or {})


def written(folder: Path, *offsets: SourceOffset) -> Path:
    (folder / "offsets").mkdir()
    for number, one in enumerate(offsets):
        (folder / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(one.to_json())}\n")
    return folder


def test_batch_begins_where_the_one_before_ended(tmp_path: Path) -> None:
    assert not has_batches(tmp_path)
    written(tmp_path, offset(mqtt=10, since={KEY: 4}), offset(mqtt=30, other=5, since={OTHER: 0}))
    assert has_batches(tmp_path)
    assert batch_span(tmp_path, 0).starts == {KEY: 4}
    assert batch_span(tmp_path, 1).starts == {KEY: 10, OTHER: 0}


def test_empty_checkpoint_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(TablesBehind, match="offsets/3 does not state the records of the batch"):
        batch_span(tmp_path, 3)
    written(tmp_path, offset(mqtt=1))
    (tmp_path / "offsets" / "0").write_text("v9\n{}\n[1]")
    with pytest.raises(TablesBehind, match="offsets/0 does not state the records of the batch"):
        batch_span(tmp_path, 0)


@pytest.mark.parametrize("document", DAMAGED_JSON.values(), ids=DAMAGED_JSON)
def test_unreadable_checkpoint_is_reported_by_name(tmp_path: Path, document: bytes) -> None:
    written(tmp_path, offset(mqtt=1))
    (tmp_path / "offsets" / "0").write_bytes(b"v1\n{}\n" + document)
    with pytest.raises(TablesBehind, match="offsets/0 does not state the records of the batch"):
        batch_span(tmp_path, 0)


def test_offsets_already_in_the_tables_are_skipped() -> None:
    span = BatchSpan(offset(mqtt=30, other=5), {KEY: 10, OTHER: 0})
    assert span.done(offset(mqtt=30, other=9))
    assert not span.done(offset(mqtt=30))
    assert span.overlaps(offset(mqtt=20)) == [KEY]
    assert span.overlaps(offset(mqtt=10)) == []
    assert span.united(offset(mqtt=20, other=9)).positions == {KEY: 30, OTHER: 9}


def test_records_that_the_tables_have_are_not_counted() -> None:
    span = BatchSpan(offset(mqtt=10, other=5), {KEY: 4, OTHER: 0})
    assert span.count_after(SourceOffset({})) == 11
    assert span.count_after(offset(mqtt=7, other=9)) == 3


def test_gap_between_tables_and_batch_is_an_error_with_numbers() -> None:
    span = BatchSpan(offset(mqtt=30), {KEY: 10})
    span.check_follows(offset(mqtt=10), fail_on_data_loss=True)
    span.check_follows(SourceOffset({}), fail_on_data_loss=True)
    with pytest.raises(TablesBehind, match="records before offset 8, and the checkpoint continues at 10"):
        span.check_follows(offset(mqtt=8), fail_on_data_loss=True)
    span.check_follows(offset(mqtt=8), fail_on_data_loss=False)


def test_another_log_of_the_same_name_is_an_error() -> None:
    span = BatchSpan(offset(mqtt=30, log_id=8), {KEY: 0})
    with pytest.raises(TablesBehind, match=r"mqtt-0 was deleted and created again .* set tables.path"):
        span.check_follows(offset(mqtt=30), fail_on_data_loss=False)

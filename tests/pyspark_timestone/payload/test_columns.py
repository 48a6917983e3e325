"""What becomes of a batch with bad payloads, for each of the ways the user may choose."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import timestone
from pyspark_timestone.errors import BadPayload
from pyspark_timestone.offsets import LogPartition, OffsetRange
from pyspark_timestone.payload.columns import PayloadColumns
from tests.support.payloads import options_of
from timestone import WriteBatch
from timestone.reading.batch import Batch
from timestone.record import FLAG_TOMBSTONE

TASK = OffsetRange(LogPartition("log", 0), 0, 3)
SCHEMA = pa.schema([("payload", pa.struct([("seq", pa.int64())])), ("payload_error", pa.string())])


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    with timestone.open(tmp_path / "data") as store:
        store.log("log").append_many([b'{"seq": 0}', b"garbage", b'{"seq": 2}'])
    with timestone.view(tmp_path / "data") as view:
        return view.log("log").read(0)


def columns_of(
    batch: Batch, schema: pa.Schema = SCHEMA, **options: str
) -> tuple[Batch, dict[str, list[object]]]:
    chosen = options_of(payload="json", payloadSchema="seq bigint", **options)
    payloads = PayloadColumns(chosen, schema, TASK)
    left, added = payloads.of(batch)
    payloads.finish()
    return left, {name: array.to_pylist() for name, array in added.items()}


def test_fail_names_the_offset_and_what_is_wrong(batch: Batch) -> None:
    with pytest.raises(BadPayload, match=r"log-0: the payload at offset 1 is not what .* no JSON object"):
        columns_of(batch)


@pytest.mark.parametrize("policy", ["null", "column"])
def test_null_and_column_keep_the_row(batch: Batch, policy: str) -> None:
    left, added = columns_of(batch, badRecords=policy)
    assert len(left) == 3
    assert added["payload"] == [{"seq": 0}, None, {"seq": 2}]
    assert added["payload_error"] == [None, "no JSON object", None]


def test_dlq_takes_the_row_out(batch: Batch, tmp_path: Path) -> None:
    left, added = columns_of(batch, badRecords="dlq", dlqPath=str(tmp_path / "dead"))
    assert left.offsets.tolist() == [0, 2]
    assert added["payload"] == [{"seq": 0}, {"seq": 2}]
    assert len(list((tmp_path / "dead").rglob("*.parquet"))) == 1


def test_without_the_column_nothing_is_decoded(batch: Batch) -> None:
    left, added = columns_of(batch, pa.schema([("offset", pa.int64())]))
    assert (len(left), added) == (3, {"payload_error": [None] * 3})


@pytest.mark.parametrize("policy", ["fail", "column"])
def test_tombstone_is_null_and_not_bad(tmp_path: Path, policy: str) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log("log")
        stored = [b'{"seq": 0}', b"", b'{"seq": 2}' if policy == "fail" else b"garbage"]
        flags = np.array([0, FLAG_TOMBSTONE, 0], dtype=np.uint16)
        log.append_batch(WriteBatch(stored, [timestone.NO_TOPIC] * 3, flags=flags))
        left, added = columns_of(log.read(0), badRecords=policy)
    assert len(left) == 3
    last = {"seq": 2} if policy == "fail" else None
    assert added["payload"] == [{"seq": 0}, None, last]
    assert added["payload_error"] == [None, None, None if policy == "fail" else "no JSON object"]


def test_batch_of_tombstones_is_null(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log("log")
        log.append(b"", flags=FLAG_TOMBSTONE)
        assert columns_of(log.read(0))[1]["payload"] == [None]

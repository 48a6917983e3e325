"""The columns of Spark's Kafka source, made of records: for a job that shall go on as it is (`layout=kafka`).

`topic` is the log there; `key` is the header of that kind, which records from MQTT do not have; `timestampType` is that
of a time given by the log. Knows Arrow and batches, no options."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from timestone.reading.batch import Batch
from timestone.record import HeaderKind

LOG_APPEND_TIME = 1
"""Kafka's number for a timestamp that the broker has given."""


def kafka_columns(batch: Batch, names: Sequence[str]) -> dict[str, pa.Array]:
    """Those of the columns `names` that are not what the source calls so."""
    makers: dict[str, Callable[[Batch], pa.Array]] = {
        "key": _keys,
        "topic": lambda one: pa.repeat(one.log, len(one)),
        "timestampType": lambda one: pa.array(np.full(len(one), LOG_APPEND_TIME, dtype=np.int32)),
    }
    return {name: makers[name](batch) for name in names if name in makers}


def _keys(batch: Batch) -> pa.Array:
    headed = np.flatnonzero(batch.header_lengths)
    if len(headed) == 0:
        return pa.nulls(len(batch), type=pa.binary())
    keys: list[bytes | None] = [None] * len(batch)
    for number in headed.tolist():
        keys[number] = next(
            (one.value for one in batch.headers_of(number) if one.kind == HeaderKind.KEY), None
        )
    return pa.array(keys, type=pa.binary())

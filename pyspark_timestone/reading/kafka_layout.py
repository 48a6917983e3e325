"""Columns of Spark's Kafka source, made of records, so that a job written for it runs unchanged (`layout=kafka`).

`topic` is the log; `key` is the header of that kind, which records from MQTT lack; `timestampType` is that of a time
assigned by the log. Knows Arrow and batches, no options."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from timestone.reading.batch import Batch
from timestone.record import HeaderKind

LOG_APPEND_TIME = 1
"""Kafka's number for a timestamp assigned by the broker."""


def kafka_columns(batch: Batch, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return those of the columns `names` whose content differs from the source's column of that name."""
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

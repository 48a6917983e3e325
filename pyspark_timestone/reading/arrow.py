"""Batches of the engine as Arrow record batches that Spark accepts. Makes the columns that are asked for, and no
others."""

from collections.abc import Mapping

import pyarrow as pa

from timestone.reading.arrow import columns
from timestone.reading.batch import Batch

_NOTHING: Mapping[str, pa.Array] = {}


def record_batch(batch: Batch, schema: pa.Schema, added: Mapping[str, pa.Array] = _NOTHING) -> pa.RecordBatch:
    """The columns of `schema`, of which some are `added` by whoever decodes payloads. Bytes are shared with `batch`
    where the records lie back to back."""
    make = columns(batch)
    arrays = [added[name] if name in added else make[name]() for name in schema.names]
    # Only the names inside nested types can differ, which costs nothing to change.
    arrays = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

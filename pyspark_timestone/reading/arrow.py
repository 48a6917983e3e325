"""Conversion of batches of the engine to Arrow record batches that Spark accepts. Builds only the requested columns."""

from collections.abc import Mapping

import pyarrow as pa

from timestone.reading.arrow import columns
from timestone.reading.batch import Batch

_NOTHING: Mapping[str, pa.Array] = {}


def record_batch(batch: Batch, schema: pa.Schema, added: Mapping[str, pa.Array] = _NOTHING) -> pa.RecordBatch:
    """Return the columns of `schema`, some of which are `added` by the decoding of payloads. Bytes are shared with
    `batch` if the records are adjacent."""
    make = columns(batch)
    arrays = [added[name] if name in added else make[name]() for name in schema.names]
    # Only names inside nested types can differ, which cost nothing to change.
    arrays = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

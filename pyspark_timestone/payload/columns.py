"""The columns that decoding adds to a batch, and what becomes of its bad records. One for each task."""

import numpy as np
import pyarrow as pa

from pyspark_timestone.errors import BadPayload
from pyspark_timestone.offsets import OffsetRange
from pyspark_timestone.payload.dead_letters import DeadLetters
from pyspark_timestone.payload.formats import (
    COLUMN,
    ERROR_COLUMN,
    Decoded,
    PayloadFormat,
    PayloadOptions,
    payload_module,
    spread,
)
from timestone.reading.arrow import columns
from timestone.reading.batch import Batch


class PayloadColumns:
    """Decodes the batches of a task."""

    def __init__(self, options: PayloadOptions, schema: pa.Schema, task: OffsetRange) -> None:
        """schema: of the rows that are wanted; without the column `payload` nothing is decoded."""
        self._options = options
        self._task = task
        self._format = None
        if COLUMN in schema.names:
            self._format = payload_module(options).payload_format(options, schema.field(COLUMN).type)
        self._dead_letters = DeadLetters(options.dead_letters, task) if options.dead_letters else None

    def of(self, batch: Batch) -> tuple[Batch, dict[str, pa.Array]]:
        """Return the columns for a batch, and the batch: without its bad records, if they go elsewhere.

        Raises BadPayload for the first bad record, when that is what was asked for."""
        if self._format is None:
            return batch, {ERROR_COLUMN: pa.nulls(len(batch), pa.string())}
        decoded = _decoded(self._format, columns(batch)["value"]())
        bad = decoded.bad
        if bad and self._options.bad_records == "fail":
            number, reason = next(iter(bad.items()))
            raise BadPayload(
                f"{self._task.log}: the payload at offset {batch.offsets[number]} is not what payload="
                f"{self._options.format} and payloadSchema say: {reason}. To read the others, set badRecords to"
                " null, column or dlq"
            )
        if bad and self._dead_letters is not None:
            self._dead_letters.add(batch, bad)
            good = np.ones(len(batch), dtype=bool)
            good[list(bad)] = False
            return batch.select(good), {COLUMN: decoded.values.filter(pa.array(good))}
        reasons = pa.array([bad.get(number) for number in range(len(batch))], pa.string()) if bad else None
        if reasons is None:
            reasons = pa.nulls(len(batch), pa.string())
        return batch, {COLUMN: decoded.values, ERROR_COLUMN: reasons}

    def finish(self) -> None:
        """Keep the dead letters of the task. Raises OSError."""
        if self._dead_letters is not None:
            self._dead_letters.write()

    def close(self) -> None:
        """Forget the dead letters of a task that did not come to its end."""
        if self._dead_letters is not None:
            self._dead_letters.discard()


def _decoded(format: PayloadFormat, values: pa.BinaryArray) -> Decoded:
    """Decode the payloads that are there. A tombstone has none, which is not bad: it is null."""
    if not values.null_count:
        return format.decode(values)
    numbers = np.flatnonzero(values.is_valid())
    decoded = format.decode(values.drop_null())
    missing = dict.fromkeys(np.flatnonzero(values.is_null()).tolist(), "")
    bad = {int(numbers[number]): reason for number, reason in decoded.bad.items()}
    return Decoded(spread(decoded.values, missing, len(values)).values, bad)

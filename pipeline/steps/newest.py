"""Last known state of each device: its newest message, by the time in the message, then by its sequence."""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ..config import MessageConfig
from ..delta.data_file import Batches, Read
from ..delta.query import duckdb_module

_GATHERED_ROWS = 500_000
_NEWEST = """
SELECT number
FROM messages SEMI JOIN (SELECT device, max(time) AS time FROM messages GROUP BY device) USING (device, time)
QUALIFY row_number() OVER (
    PARTITION BY device
    ORDER BY sequence DESC NULLS LAST, received_at DESC, log DESC, "partition" DESC, "offset" DESC
) = 1
"""


def newest(messages: DataFrame, message: MessageConfig | None = None) -> DataFrame:
    """Return one row a device. Of messages with the same time and sequence, the last to arrive. Merging applies it
    again: newest(newest(a) + newest(b)) = newest(a + b)."""
    message = message or MessageConfig()
    age = f.struct(message.time, message.sequence, "received_at", "log", "partition", "offset")
    row = f.struct(*messages.columns)
    return (
        messages.groupBy(message.device)
        .agg(f.max_by(row, age).alias("newest"))
        .select(*[f.col("newest")[name].alias(name) for name in messages.columns])
    )


def newest_of_files(message: MessageConfig) -> Callable[[Read, pa.Schema], Read]:
    """Return a function of what reads files in a task. It returns one from paths and partition values to the newest row
    of each device there, as `newest` does for a frame, in a fifth of the time: Spark sorts whole rows for that."""

    def of(read: Read, schema: pa.Schema) -> Read:
        def newest_rows(paths: Batches) -> Batches:
            rows = schema.empty_table()
            for batch in read(paths):
                rows = pa.concat_tables([rows, pa.Table.from_batches([batch])])
                if rows.num_rows >= _GATHERED_ROWS:
                    rows = _newest_rows(rows, message)
            yield from _newest_rows(rows, message).to_batches()

        return newest_rows

    return of


def _newest_rows(rows: pa.Table, message: MessageConfig) -> pa.Table:
    chosen = {"device": message.device, "time": message.time, "sequence": message.sequence}
    named = chosen | {name: name for name in ("received_at", "log", "partition", "offset")}
    table = pa.table({name: rows[column] for name, column in named.items()})
    table = table.append_column("number", pa.array(range(rows.num_rows), pa.int64()))
    with duckdb_module().connect(config={"threads": 1}) as database:  # a task has one core
        database.register("messages", table)
        return rows.take(database.sql(_NEWEST).to_arrow_table()["number"])

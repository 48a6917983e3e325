"""Files of tables without Spark: as its tasks write them, from rows of a test."""

from collections.abc import Mapping

import pyarrow as pa
from deltalake import Schema

from timestone_pipeline import Warehouse
from timestone_pipeline.delta.data_file import DataFile, described, writer
from timestone_pipeline.delta.tables import Table
from timestone_pipeline.delta.warehouse import Work


def create(warehouse: Warehouse, schemas: Mapping[str, pa.Schema]) -> None:
    """Create all tables; those that are not in `schemas` with one column besides that of their partitions."""
    found = {}
    for table in warehouse.tables.all():
        if table is warehouse.tables.progress:
            schema = pa.schema(
                [
                    ("batch", pa.int64()),
                    ("committed_at", pa.timestamp("us", "UTC")),
                    ("progress", pa.string()),
                ]
            )
        else:
            schema = schemas.get(table.name, pa.schema([("value", pa.binary())]))
            if table.partition_column and table.partition_column not in schema.names:
                schema = schema.append(pa.field(table.partition_column, pa.string()))
        found[table.name] = Schema.from_arrow(schema)
    warehouse.create(found)


def write(work: Work, table: Table, rows: pa.Table, partition: str | None = None) -> list[DataFile]:
    """Write `rows` as a file of `table`; `partition` is the value of its partition column."""
    if table.partition_column:
        rows = rows.append_column(table.partition_column, pa.array([partition] * rows.num_rows, pa.string()))
    written = [
        one for batch in writer(work.target(table))(iter(rows.to_batches())) for one in batch.to_pylist()
    ]
    return work.collect([described(one) for one in written])

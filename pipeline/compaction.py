"""Compaction of many small files into few large ones. Every batch leaves some, and each costs readers time.

Without Spark: rows are copied unchanged, in their order. Safe while the stream runs, which only adds files, and while
readers read, for which old files are kept as long as configured."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from timestone.disk import access

from .config import PipelineConfig
from .data_file import DataFile, naming
from .errors import PipelineError
from .ledger import COMPACTION, Commit
from .tables import Table, tables_of
from .warehouse import MAINTENANCE, Warehouse

_ROWS = 65_536
_GROUP_BYTES = 64 << 20
"""Maximum size of a row group of a new file, which is held in memory."""


def compact(
    config: PipelineConfig, warehouse: Warehouse, compacted: Callable[[Commit], None] = lambda commit: None
) -> None:
    """Merge the files of each partition of each table up to `tables.file_bytes`, one commit a table; then delete files
    replaced long enough ago and shorten the ledger. Calls `compacted` after each commit. Hold
    `warehouse.role(MAINTENANCE)`. Raises PipelineError, OSError."""
    tables = tables_of(config)
    for table in tables.all():
        if table is tables.last:
            continue  # one file, which every batch replaces
        groups = list(_groups(warehouse.ledger.state().of(table.name), config.tables.file_bytes))
        if not groups:
            continue
        with warehouse.work(MAINTENANCE) as work:
            for place, group in enumerate(groups):
                name = f"{place:06}.parquet"
                path = work.folder_of(table) / group[0].partition / name
                access.make_folders(path.parent)
                _merge(warehouse, table, group, path)
            work.collect(table)
            if work.rows(table) != sum(one.rows for group in groups for one in group):
                raise PipelineError(
                    f"{table.name}: the merged files lack rows of their sources; nothing was committed"
                )
            removed = [(one.table, one.path) for group in groups for one in group]
            compacted(warehouse.commit(COMPACTION, [work], removed=removed))
    warehouse.sweep()


def _groups(files: Sequence[DataFile], limit_bytes: int) -> Iterator[list[DataFile]]:
    """Yield groups of neighbours in one partition that together make a file of about `limit_bytes`; at least two
    each."""
    partitions: dict[str, list[DataFile]] = defaultdict(list)
    for one in files:
        partitions[one.partition].append(one)
    for neighbours in partitions.values():
        group: list[DataFile] = []
        group_bytes = 0
        for one in neighbours:
            if group and group_bytes + one.bytes > limit_bytes:
                if len(group) > 1:
                    yield group
                group, group_bytes = [], 0
            group.append(one)
            group_bytes += one.bytes
        if len(group) > 1:
            yield group


def _merge(warehouse: Warehouse, table: Table, group: Sequence[DataFile], target: Path) -> None:
    sources = warehouse.paths(group)
    # Files older than a column of the schema lack it.
    try:
        schema = pa.unify_schemas([_schema(path) for path in sources], promote_options="permissive")
    except pa.ArrowException as error:
        raise PipelineError(
            f"{table.name}, {group[0].partition}: files from before and after a change of message.fields do not fit"
            f" together: {error}"
        ) from None
    with naming(target), pq.ParquetWriter(target, schema, compression="snappy") as writer:
        for rows in _row_groups(sources, schema):
            writer.write_table(rows)


def _schema(path: str) -> pa.Schema:
    with naming(path):
        return pq.read_schema(path).remove_metadata()


def _row_groups(sources: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of the files in order, in row groups of their own: one for each file would be as slow to read as
    the files."""
    gathered: list[pa.Table] = []
    row_count = size_bytes = 0
    for path in sources:
        for batch in _batches(path):
            if gathered and (row_count + batch.num_rows > _ROWS or size_bytes + batch.nbytes > _GROUP_BYTES):
                yield pa.concat_tables(gathered)
                gathered, row_count, size_bytes = [], 0, 0
            gathered.append(_with_columns(pa.Table.from_batches([batch]), schema))
            row_count += batch.num_rows
            size_bytes += batch.nbytes
    if gathered:
        yield pa.concat_tables(gathered)


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    with naming(path), pq.ParquetFile(path) as source:
        yield from source.iter_batches(batch_size=_ROWS)


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)

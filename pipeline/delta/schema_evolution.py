"""Columns of an existing table, changed to those of the settings: added by Delta, widened by writing the files again,
because delta-rs cannot change the type of a column. Needs no Spark."""

from typing import Protocol

import pyarrow as pa
from deltalake import Field, Schema

from ..errors import TableFailed
from .data_file import DataFile, Target, described, reader, writer
from .snapshot import Snapshot, make_durable

_WIDER = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long",),
    "float": ("double",),
}
"""Types whose every value the others have, too."""


class Work(Protocol):
    """Files that are written and not committed yet."""

    def collect(self, files: list[DataFile]) -> list[DataFile]:
        """Note files that were written."""
        ...

    def replace_all(self, snapshot: Snapshot, schema: Schema) -> None:
        """Commit them in place of all files of a table."""
        ...


def evolve(snapshot: Snapshot, schema: Schema, work: Work) -> None:
    """Add the columns that the table lacks, and widen those whose type in `schema` is wider, in one commit each. Raises
    TableFailed for another type, Conflict, DeltaError, OSError."""
    known = {field.name: field for field in snapshot.delta.schema().fields}
    wider = {}
    for field in schema.fields:
        before = known.get(field.name, field)
        if before.type == field.type:
            continue
        if _type(field) not in _WIDER.get(_type(before), ()):
            raise TableFailed(
                f"table {snapshot.table.name}: column {field.name!r} is {_type(before)} in its files and"
                f" {_type(field)} in the settings; set tables.path to another folder to build the tables again from the"
                " log"
            )
        wider[field.name] = field
    if missing := [field for field in schema.fields if field.name not in known]:
        snapshot.delta.alter.add_columns(missing)
        make_durable(snapshot.location)
    if wider:
        current = Snapshot(snapshot.table, snapshot.location)
        fields = [wider.get(field.name, field) for field in current.delta.schema().fields]
        _rewrite(current, Schema(fields), work)


def _rewrite(snapshot: Snapshot, schema: Schema, work: Work) -> None:
    table, location = snapshot.table, snapshot.location
    options, arrow = location.options(), pa.schema(schema)
    read = reader(location, options, arrow, table.partition_column)
    for one in snapshot.files():
        # The number in the name is that of the batch, which may be an interrupted one.
        prefix = f"{one.number:012}-" if one.number else ""
        write = writer(Target(table.name, location, options, prefix, table.partition_column, table.bounds))
        rows = read(iter([pa.RecordBatch.from_pylist([{"path": one.path, "value": one.value}])]))
        for batch in write(rows):
            work.collect([described(row) for row in batch.to_pylist()])
    work.replace_all(snapshot, schema)


def _type(field: Field) -> str:
    return str(getattr(field.type, "type", field.type))

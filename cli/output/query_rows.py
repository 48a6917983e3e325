"""Rows of a query, as a table for a person or as JSON for a program."""

import json
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from .tables import print_tables, simple_table


def print_rows(rows: pa.RecordBatchReader, *, as_json: bool) -> None:
    """Print rows. As a table they are all in memory first, because their widths decide those of the columns."""
    if as_json:
        for batch in rows:
            for row in batch.to_pylist():
                print(json.dumps(row, default=_text, ensure_ascii=False))
        return
    table = simple_table()
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(field.name, justify="right" if number else "left")
    for batch in rows:
        for row in batch.to_pylist():
            table.add_row(*("" if value is None else _shown(value) for value in row.values()))
    if rows.schema.names:
        print_tables(lambda console: console.print(table))


def _shown(value: Any) -> str:
    # A device decides about its messages, and a terminal obeys control characters.
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in _text(value))


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)

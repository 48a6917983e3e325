"""Rows of a reply as CSV (RFC 4180) that is safe to open in a spreadsheet."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from .route import Reply

MEDIA_TYPE = "text/csv; charset=utf-8"
NEXT_HEADER = "x-timestone-next"
"""Has the cursor of the next page, which a table has no place for."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_reply(answer: msgspec.Struct, rows: str) -> Reply:
    """Return the rows of a reply as CSV with a line of names. rows: name of the field that has them."""
    tables = [dict(_cells(row, "")) for row in msgspec.to_builtins(getattr(answer, rows))]
    names = list(dict.fromkeys(name for table in tables for name in table))
    text = io.StringIO()
    # Texts are always quoted: some spreadsheets separate cells by semicolons, too.
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC)
    if names:
        writer.writerow(map(_cell, names))
        writer.writerows([_cell(table.get(name)) for name in names] for table in tables)
    following = getattr(answer, "next", None)
    headers = {} if following is None else {NEXT_HEADER: str(following)}
    return Reply(text.getvalue().encode("utf-8", "backslashreplace"), MEDIA_TYPE, f"{rows}.csv", headers)


def _cells(row: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the cells of a row, those of an object in it under names with a dot."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _cells(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _cell(value: Any) -> str | int | float:
    """Return a cell. A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text

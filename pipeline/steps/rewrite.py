"""Removal of rows from a table. Files never change, so those that have such rows are written again without them."""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as f

from ..delta.data_file import DataFile
from ..delta.tables import Table
from ..delta.warehouse import Work
from .frames import Frames


def without(
    frames: Frames, table: Table, files: Sequence[DataFile], unwanted: Column, work: Work
) -> list[DataFile]:
    """Write the rows of `files` for which `unwanted` is not true. Return the files to remove in the same commit; a row
    for which `unwanted` is null stays."""
    if not files:
        return []
    kept = frames.read(table, files).where(~f.coalesce(unwanted, f.lit(False)))
    frames.write(table, kept.coalesce(1), work, step=f"other rows of {table.name}")
    return list(files)

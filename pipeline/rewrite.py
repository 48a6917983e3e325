"""Rows taken out of a table. Files never change, so those that have such rows are written again without them."""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as f

from .data_file import DataFile
from .frames import Frames
from .ledger import FileKey
from .tables import Table
from .warehouse import Work


def without(
    frames: Frames, table: Table, files: Sequence[DataFile], unwanted: Column, work: Work
) -> list[FileKey]:
    """Write what is left of `files` without the rows that `unwanted` holds for into `work`.

    Returns the files to remove in the same commit; a row for which `unwanted` is null stays.
    """
    if not files:
        return []
    kept = frames.read(table, files).where(~f.coalesce(unwanted, f.lit(False)))
    frames.write(table, kept.coalesce(1), work)
    return [(one.table, one.path) for one in files]

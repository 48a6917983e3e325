"""A log as one DataFrame: its history from side files, its tail from the log itself, without gap or overlap.

Spark reads the side files with its own reader of Parquet, in Java: a column at a time, and of the rows only what a
filter needs. A source in Python cannot hand that over to Spark from inside, so this is a function and no option of
the source."""

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import OffsetRange
from pyspark_timestone.options.columns import source_schema
from pyspark_timestone.options.offset_ranges import OffsetRanges
from pyspark_timestone.options.read_options import ReadOptions, read_options
from pyspark_timestone.reading.batch_reader import batch_ranges
from pyspark_timestone.reading.continuity import origin_of
from pyspark_timestone.reading.store_view import chosen_logs
from pyspark_timestone.side_files.listing import side_files_within
from timestone import LogView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = (
    "subscribe", "subscribePattern", "assign",
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets",
    "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", "offsetRanges",
    "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "columns", "includeHeaders",
)  # fmt: skip
"""Options of the source that mean the same here. Topics are a filter on the column `topic`, payloads are decoded by the
query: what lies in side files does not pass through the source."""


def read_history(spark: "SparkSession", path: str | Path, **options: object) -> "DataFrame":
    """What `spark.read.format("timestone").options(…).load(path)` reads, from side files where there are any.

    As of this call: which records those are, and where each comes from, is settled here. Raises InvalidOption,
    DataLoss, NotAStore."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }
    known = {name.lower() for name in OPTIONS}
    for name in given:
        if name.lower() not in known:
            raise InvalidOption(f"{name} is no option of read_history; there are {', '.join(OPTIONS)}")
    chosen = read_options({**given, "path": str(path)}, streaming=False)
    side_files, rest = _sources(chosen)
    frames = []
    if side_files:
        # With a schema Spark need not look for one in the files, and reads no footer before a task does.
        reader = spark.read.schema(source_schema()).option("parquet.page.verify-checksum.enabled", "true")
        # Whatever the session says: a file that is missing or damaged ends the query.
        reader = reader.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
        frames.append(reader.parquet(*side_files).select(*chosen.columns))
    if rest.ranges or not frames:
        passed = {name: given[name] for name in given if name.lower() in _PASSED}
        tail = spark.read.format("timestone").options(**passed, offsetRanges=rest.to_text())
        frames.append(tail.load(str(path)))
    return frames[0] if len(frames) == 1 else frames[0].union(frames[1])


_PASSED = {"minpartitions", "maxrecordsperpartition", "failondataloss", "columns", "includeheaders"}


def _sources(options: ReadOptions) -> tuple[list[str], OffsetRanges]:
    """The side files to read, and what else."""
    side_files: list[str] = []
    rest: list[OffsetRange] = []
    with chosen_logs(options.path, options.selection) as chosen:
        for one in batch_ranges(options, chosen.views):
            found, left = _split(options.path, one, chosen.views[one.log])
            side_files += found
            rest += left
        return side_files, OffsetRanges(
            tuple(rest), {key: origin_of(log) for key, log in chosen.views.items()}
        )


def _split(store: Path, wanted: OffsetRange, log: LogView) -> tuple[list[str], list[OffsetRange]]:
    """The side files of segments that lie in the range as a whole, and what is between and behind them."""
    side_files: list[str] = []
    left: list[OffsetRange] = []
    at = wanted.start
    for segment, path in side_files_within(store, log, wanted.start, wanted.end):
        if at < segment.base_offset:
            left.append(OffsetRange(wanted.log, at, segment.base_offset))
        side_files.append(str(path))
        at = segment.end_offset
    if at < wanted.end:
        left.append(OffsetRange(wanted.log, at, wanted.end))
    return side_files, left

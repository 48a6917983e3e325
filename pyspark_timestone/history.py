"""A log as one DataFrame: history from side files, tail from the log, without gap or overlap.

Spark reads the side files with its own Parquet reader in Java: single columns, and only rows that a filter needs. A
Python source cannot delegate to that reader, so this is a function and not an option of the source."""

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.offsets import OffsetRange
from pyspark_timestone.options.columns import source_schema
from pyspark_timestone.options.offset_ranges import OffsetRanges
from pyspark_timestone.options.read_options import ReadOptions, read_options
from pyspark_timestone.reading.batch_reader import batch_ranges
from pyspark_timestone.reading.continuity import origin_of
from pyspark_timestone.reading.store_view import SourceLog, chosen_logs
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
"""Options of the source with the same meaning here. Topics are a filter on the column `topic`, and payloads are
decoded by the query: side files do not pass through the source."""


def read_history(spark: "SparkSession", path: str | Path, **options: object) -> "DataFrame":
    """Return what `spark.read.format("timestone").options(…).load(path)` reads, from side files where they exist.

    The records and their sources are fixed by this call. Raises InvalidOption, DataLoss, NotAStore."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }
    known = {name.lower() for name in OPTIONS}
    for name in given:
        if name.lower() not in known:
            raise InvalidOption(
                f"invalid option of read_history: expected one of {', '.join(OPTIONS)}, got {name}"
            )
    chosen = read_options({**given, "path": str(path)}, streaming=False)
    side_files, rest = _sources(chosen)
    frames = []
    if side_files:
        # With a schema Spark need not infer one from the files, and reads no footer before a task does.
        reader = spark.read.schema(source_schema()).option("parquet.page.verify-checksum.enabled", "true")
        # Overrides settings of the session: a missing or damaged file ends the query.
        reader = reader.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
        frames.append(reader.parquet(*side_files).select(*chosen.columns))
    if rest.ranges or not frames:
        passed = {name: given[name] for name in given if name.lower() in _PASSED}
        tail = spark.read.format("timestone").options(**passed, offsetRanges=rest.to_text())
        frames.append(tail.load(str(path)))
    return frames[0] if len(frames) == 1 else frames[0].union(frames[1])


_PASSED = {"minpartitions", "maxrecordsperpartition", "failondataloss", "columns", "includeheaders"}


def _sources(options: ReadOptions) -> tuple[list[str], OffsetRanges]:
    """Return the side files to read, and the remaining offset ranges."""
    if not isinstance(options.source, Path):
        raise InvalidOption(
            f"invalid path: expected a folder, got {options.source}: a bucket has no Parquet files of segments; read it"
            " with format('timestone')"
        )
    with chosen_logs(options, options.selection) as chosen:
        while True:
            ranges = batch_ranges(options, chosen.views)
            parts = [_split(options.source, one, chosen.views[one.log]) for one in ranges]
            # Retention may have deleted a segment since the start was determined: then it is neither a side file nor
            # in the log.
            if all(chosen.views[one.log].start_offset <= one.start for one in ranges if one.end > one.start):
                break
        origins = {key: origin_of(log) for key, log in chosen.views.items()}
        side_files = [path for paths, _ in parts for path in paths]
        return side_files, OffsetRanges(tuple(one for _, left in parts for one in left), origins)


def _split(store: Path, wanted: OffsetRange, log: SourceLog) -> tuple[list[str], list[OffsetRange]]:
    """Return the side files of segments within the range, and the ranges between and after them."""
    side_files: list[str] = []
    left: list[OffsetRange] = []
    assert isinstance(log, LogView)
    at = wanted.start
    for segment, path in side_files_within(store, log, wanted.start, wanted.end):
        if at < segment.base_offset:
            left.append(OffsetRange(wanted.log, at, segment.base_offset))
        side_files.append(str(path))
        at = segment.end_offset
    if at < wanted.end:
        left.append(OffsetRange(wanted.log, at, wanted.end))
    return side_files, left

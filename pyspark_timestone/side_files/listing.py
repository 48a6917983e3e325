"""Side files of a store: their location, and which of them stand for segments.

    data/parquet/telemetry-0/00000000000000000000-1f2e3d4c.parquet

The log alone decides what is read: a side file is valid only while its segment exists unchanged."""

import logging
from collections.abc import Iterator
from pathlib import Path

from pyspark_timestone.side_files.side_file import SegmentIdentity, sealed_segments, what_is_wrong
from timestone import LogView
from timestone.format import names

FOLDER = "parquet"
"""Folder in the store. No log can have this name: folders of logs end in a number."""

_log = logging.getLogger(__name__)


def log_folder(store: Path, log: str, partition: int) -> Path:
    """Return the folder of the side files of a log."""
    return store / FOLDER / names.log_folder(log, partition)


def side_file_path(store: Path, segment: SegmentIdentity) -> Path:
    """Return the path of the side file of a segment."""
    return log_folder(store, segment.log, segment.partition) / segment.file_name


def side_files_within(
    store: Path, log: LogView, start: int, end: int
) -> Iterator[tuple[SegmentIdentity, Path]]:
    """Yield the segments within the offsets [start, end) that have a side file, in order. A damaged side file is
    reported in a warning and skipped."""
    for segment in sealed_segments(log):
        if start <= segment.base_offset and segment.end_offset <= end:
            path = side_file_path(store, segment)
            try:
                wrong = what_is_wrong(path, segment)
            except FileNotFoundError:
                continue
            if wrong:
                _log.warning("%s is left out, its records are read from the log: %s", path, wrong)
            else:
                yield segment, path

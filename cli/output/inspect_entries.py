"""Index entries, one a record, as `inspect --entries` lists them. Read through a view, many at a time."""

import sys
from collections.abc import Iterator
from typing import Any

import timestone
from timestone.errors import TimestoneError
from timestone.kernel.entries import NO_TOPIC
from timestone.repair.inspection_report import StoreReport
from timestone.view import LogView

from ..units import format_timestamp

_CHUNK = 1 << 14
_HEADINGS = (
    "offset", "position", "length", "timestamp", "topic_id", "header_length", "flags", "data_crc", "entry", "topic",
)  # fmt: skip


def print_entries(report: StoreReport) -> None:
    """Print the entries of all logs of a report to standard output, in columns separated by tabs."""
    for name, partition, entries in _each_log(report):
        print(f"\n{name}-{partition}", "\t".join(_HEADINGS), sep="\n")
        for entry in entries:
            shown = [
                entry["offset"],
                entry["position"],
                entry["length"],
                format_timestamp(entry["timestamp_us"]),
                "-" if entry["topic_id"] is None else entry["topic_id"],
                entry["header_length"],
                entry["flags"],
                entry["data_crc"],
                "holds" if entry["valid"] else "DAMAGED",
                "-" if entry["topic"] is None else repr(entry["topic"]),
            ]
            sys.stdout.write("\t".join(map(str, shown)) + "\n")


def entries_json(report: StoreReport) -> dict[str, list[dict[str, Any]]]:
    """Return the entries by log folder, for the JSON object."""
    return {f"{name}-{partition}": list(entries) for name, partition, entries in _each_log(report)}


def _each_log(report: StoreReport) -> Iterator[tuple[str, int, Iterator[dict[str, Any]]]]:
    with timestone.view(report.path) as view:
        for log in report.logs:
            if log.error:
                continue
            try:
                found = view.log(log.log, log.partition)
            except (TimestoneError, OSError):
                continue  # the report states the reason
            yield log.log, log.partition, _entries(found)


def _entries(log: LogView) -> Iterator[dict[str, Any]]:
    for segment in log.segment_list.segments:
        for first in range(0, segment.count, _CHUNK):
            # As in the file: a reader stops at a damaged entry, but here that entry is the interesting one.
            entries = segment.mapped_entries(segment.pair(), first, min(first + _CHUNK, segment.count))
            columns = {name: entries[name].tolist() for name in entries.dtype.names or ()}
            columns["valid"] = segment.seal.valid(entries, first).tolist()
            columns["offset"] = range(segment.base_offset + first, segment.base_offset + first + len(entries))
            for values in zip(*columns.values(), strict=True):
                entry = dict(zip(columns, values, strict=True))
                yield {
                    "offset": entry["offset"],
                    "position": entry["position"],
                    "length": entry["length"],
                    "timestamp_us": entry["timestamp_us"],
                    "topic_id": None if entry["topic"] == NO_TOPIC else entry["topic"],
                    "topic": log.topics.name(entry["topic"]),
                    "header_length": entry["header_length"],
                    "flags": entry["flags"],
                    "data_crc": f"{entry['data_crc']:08x}",
                    "valid": entry["valid"],
                }

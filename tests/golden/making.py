"""Functions that the makers of golden stores share."""

import json
from pathlib import Path

import timestone


def wait_until_sealed(log: timestone.Log, count: int) -> None:
    """Wait until this number of segments has been sealed in the background."""
    while sum(segment.trailer is not None for segment in log.segment_list.segments) < count:
        log.sync()


def write_expected(folder: Path) -> None:
    """Write the expected records beside a golden store."""
    expected: list[dict[str, object]] = [
        {
            "offset": record.offset,
            "timestamp_us": record.timestamp_us,
            "topic": record.topic,
            "payload": record.payload.hex(),
            "block": [[item.kind, item.name, item.value.hex()] for item in record.block],
            "flags": record.flags,
        }
        for record in timestone.view(folder).log("telemetry").reader()
    ]
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")

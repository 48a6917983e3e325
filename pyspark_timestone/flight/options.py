"""Options of a read over Arrow Flight. Turns text into one frozen value; opens nothing but the files that it names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.options.columns import NAMES
from pyspark_timestone.options.option_text import OptionText
from pyspark_timestone.options.pushed_filters import OPTION as PUSHED
from timestone.address import parse_address
from timestone.errors import InvalidName
from timestone.filters import validate_filter
from timestone.format.names import validate_target

OPTION = "flight"
OPTIONS = (
    OPTION, "flightUser", "flightPasswordFile", "flightCaFile", "subscribe", "topics", "startingOffsets",
    "endingOffsets", "columns",
)  # fmt: skip
_DECODE = "decode the column value in the query, as with from_json(value, schema)"
_PROGRESS = "the checkpoint of a query has its progress"
_ALL_THERE_IS = "each batch reads all there is"
_OFFSETS = "give offsets; the action offset-at of the server returns the one of a time"
INSTEAD = {
    "path": "flight names the server in its place",
    "tail": "flight names the server in its place",
    "payload": _DECODE, "payloadSchema": _DECODE, "payloadMessage": _DECODE, "badRecords": _DECODE, "dlqPath": _DECODE,
    "group": _PROGRESS, "pinMaxAge": _PROGRESS, "pinMaxBytes": _PROGRESS,
    "maxOffsetsPerTrigger": _ALL_THERE_IS, "maxBytesPerTrigger": _ALL_THERE_IS,
    "minOffsetsPerTrigger": _ALL_THERE_IS, "maxTriggerDelay": _ALL_THERE_IS,
    "subscribePattern": "name the logs with subscribe",
    "assign": "name the logs with subscribe; their partition 0 is read",
    "startingTimestamp": _OFFSETS, "startingOffsetsByTimestamp": _OFFSETS,
    "startingOffsetsByTimestampStrategy": _OFFSETS, "endingTimestamp": _OFFSETS, "endingOffsetsByTimestamp": _OFFSETS,
    "offsetRanges": "give startingOffsets and endingOffsets",
    "minPartitions": "the tasks are the endpoints of the server",
    "maxRecordsPerPartition": "the tasks are the endpoints of the server",
    "failOnDataLoss": "records that are gone end the query",
    "includeHeaders": "name the columns with columns",
    "layout": "select the columns in the query",
}  # fmt: skip
"""Options of a read of files that one over Arrow Flight has not, and what to do instead."""
_WORDS = {"startingOffsets": ("earliest", "latest"), "endingOffsets": ("latest",)}


@dataclass(frozen=True, slots=True)
class FlightOptions:
    """Checked options."""

    address: str
    logs: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    authority: bytes | None = None
    """Certificates in PEM that the server's is checked with; None: a connection without TLS."""
    topics: tuple[str, ...] = ()
    starting: str | Mapping[str, int] = "earliest"
    ending: str | Mapping[str, int] = "latest"
    columns: tuple[str, ...] = NAMES

    def command(self, log: str, **values: Any) -> bytes:
        """Return the command for a part of a log."""
        topics = {"topics": list(self.topics)} if self.topics else {}
        return json.dumps(
            {"version": 1, "log": log, "columns": list(self.columns), **topics, **values}
        ).encode()


def is_remote(given: Mapping[str, str]) -> bool:
    """Return whether the options are for a server on another machine."""
    return any(name.lower() == OPTION for name in given)


def refuse_write(given: Mapping[str, str]) -> None:
    """Raise InvalidOption for a write to a server on another machine."""
    if is_remote(given):
        raise InvalidOption(
            "unsupported option 'flight' for a write: append with a client of Arrow Flight in foreachBatch or "
            "foreachPartition, as in docs/flight.md"
        )


def flight_options(given: Mapping[str, str], *, streaming: bool) -> FlightOptions:
    """Check `given`, ignoring the case of names. Raises InvalidOption, which names the option to change."""
    for name in given:
        instead = next((INSTEAD[one] for one in INSTEAD if one.lower() == name.lower()), None)
        if instead is not None:
            raise InvalidOption(f"unsupported option {name!r} beside flight: {instead}")
    # Filters that the JVM hands over may prune; Spark applies them again, so leaving them out is correct.
    texts = OptionText(
        {name: text for name, text in given.items() if name.lower() != PUSHED.lower()}, OPTIONS
    )
    logs = tuple(name.strip() for name in texts.get("subscribe", "").split(",") if name.strip())
    topics = tuple(each.strip() for each in texts.get("topics", "").split(",") if each.strip())
    if not logs:
        raise InvalidOption("invalid subscribe: expected the names of logs, got none")
    try:
        parse_address(texts[OPTION], setting=OPTION)
        for log in logs:
            validate_target(log)
        for each in topics:
            validate_filter(each)
    except (ValueError, InvalidName) as error:
        raise InvalidOption(str(error)) from None
    if streaming and "endingOffsets" in texts:
        raise InvalidOption("endingOffsets is for batches: a stream has no end")
    columns = tuple(each.strip() for each in texts.get("columns", ",".join(NAMES)).split(","))
    if not set(columns) <= set(NAMES):
        raise InvalidOption(f"invalid columns: expected some of {', '.join(NAMES)}, got {texts['columns']!r}")
    password = _file(texts, "flightPasswordFile")
    return FlightOptions(
        texts[OPTION],
        logs,
        texts.get("flightUser"),
        None if password is None else password.decode().rstrip("\r\n"),
        _file(texts, "flightCaFile"),
        topics,
        _offsets(texts, "startingOffsets", "earliest", logs),
        _offsets(texts, "endingOffsets", "latest", logs),
        columns,
    )


def _file(texts: Mapping[str, str], name: str) -> bytes | None:
    try:
        return Path(texts[name]).read_bytes() if name in texts else None
    except OSError as error:
        raise InvalidOption(f"invalid {name}: {texts[name]}: {error.strerror}") from None


def _offsets(
    texts: Mapping[str, str], name: str, default: str, logs: tuple[str, ...]
) -> str | Mapping[str, int]:
    text = texts.get(name, default)
    if text in _WORDS[name]:
        return text
    expected = f'{" or ".join(_WORDS[name])}, or an offset for each log as in {{"telemetry": 7}}'
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or set(found) != set(logs):
            raise ValueError
        return {log: int(found[log]) for log in logs}
    except (ValueError, TypeError):
        raise InvalidOption(f"invalid {name}: expected {expected}, got {text!r:.80}") from None

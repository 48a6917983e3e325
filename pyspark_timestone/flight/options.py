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


def flight_options(given: Mapping[str, str], *, streaming: bool) -> FlightOptions:
    """Check `given`, ignoring the case of names. Raises InvalidOption, which names the option to change."""
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

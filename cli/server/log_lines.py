"""Lines of the log on standard error: for people, or one JSON object each (`log_format = "json"`).

Control characters are escaped in both, so that text of a client cannot begin a line of its own."""

import json
import logging
import re
import sys
from datetime import datetime
from typing import Any

from ..output.text import fitted

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class TextLine(logging.Formatter):
    """A line with local time and its offset from UTC, level, source and message; on a terminal several lines if it is
    long. A traceback has lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return fitted(_CONTROL.sub(_escaped, super().formatMessage(record)), sys.stderr)


class JsonLine(logging.Formatter):
    """An object with time, level, source and message, the fields of the client that it is about, and a traceback as
    `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "source": record.name,
            "message": record.getMessage(),
        }
        for argument in record.args if isinstance(record.args, tuple) else ():
            document |= getattr(argument, "log_fields", {})
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document)


def log_to_standard_error(level: str, log_format: str) -> None:
    """Send the log of the process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine() if log_format == "json" else TextLine())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def _escaped(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]

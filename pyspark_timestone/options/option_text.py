"""Options as text by their proper names, and how each kind of value is read. Knows no option by name but `path`."""

import difflib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pyspark_timestone.errors import InvalidOption
from timestone.declared import COUNTED_MOST

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 24 * 3600.0}
_TIME = re.compile(r"\s*(?P<number>[0-9]{1,11})\s*(?P<unit>ms|s|m|min|h|d)\s*", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,40}")
"""Of a number. Python takes ever longer for more of them, and none over 4300."""

_OF_KAFKA_CLIENTS = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")
"""How the options begin that configure a client of a broker. There is none here, and so they change nothing."""

_OF_TABLES = "provider"
"""Among the properties that `CREATE TABLE` hands over in the place of options."""


class OptionText(dict[str, str]):
    """What the user gave, in whatever case, under the names of `known`."""

    def __init__(self, given: Mapping[str, str], known: Sequence[str]) -> None:
        """Raises InvalidOption for a name that is not known."""
        super().__init__()
        self.ignored: tuple[str, ...] = ()
        """Names that configure a client of Kafka: left over in a job that was written for its source."""
        names = {name.lower(): name for name in known}
        if _OF_TABLES in given:
            raise InvalidOption(
                "Spark forgets the options of a table; CREATE TEMP VIEW … USING timestone OPTIONS (path 'data') keeps"
                " them"
            )
        for key, text in given.items():
            if key.lower() in names:
                self[names[key.lower()]] = text
            elif key.lower().startswith(_OF_KAFKA_CLIENTS):
                self.ignored += (key,)
            else:
                raise InvalidOption(_unknown(key, names))

    def warn_of_ignored(self, *, but: str = "") -> None:
        """Name them, without their values: some are passwords. They change nothing, `but` what the caller says."""
        if self.ignored:
            names = ", ".join(self.ignored)
            _log.warning("there is no broker to configure, so these options change nothing%s: %s", but, names)

    def path(self) -> Path:
        """The folder of the store. Raises InvalidOption."""
        if not self.get("path", "").strip():
            instead = f" (instead of {self.ignored[0]})" if self.ignored else ""
            raise InvalidOption(
                f"the folder of the store is missing: .load('data') or .option('path', 'data'){instead}"
            )
        return self.folder("path")

    def folder(self, name: str) -> Path:
        """A folder that driver and workers can open. Raises InvalidOption."""
        path = self[name]
        if "://" in path and not path.startswith("file://"):
            raise InvalidOption(
                f"{name} {path!r}: the source reads a folder that driver and workers can open"
            )
        # Tasks may run in another working directory.
        return Path(path.removeprefix("file://").removeprefix("file:")).absolute()

    def boolean(self, name: str, *, default: bool) -> bool:
        """`true` or `false`. Raises InvalidOption."""
        return self.one_of(name, {"true": True, "false": False}, default=default)

    def one_of(self, name: str, words: Mapping[str, Value], *, default: Value) -> Value:
        """What one of `words` stands for. Raises InvalidOption."""
        if name not in self:
            return default
        try:
            return words[self[name].strip().lower()]
        except KeyError:
            raise InvalidOption(f"{name} is {' or '.join(words)}, not {self[name]!r}") from None

    def count(self, name: str, *, least: int = 1) -> int | None:
        """A whole number; None when it is not given. Raises InvalidOption."""
        if name not in self:
            return None
        text = self[name].strip()
        if not _DIGITS.fullmatch(text) or int(text) < least:
            raise InvalidOption(f"{name} is a whole number from {least} on, not {text!r:.60}")
        if int(text) > COUNTED_MOST:
            raise InvalidOption(f"{name} is {text}, over {COUNTED_MOST}")
        return int(text)

    def seconds(self, name: str) -> float | None:
        """A time above 0, as Spark writes it: `15m`, `500ms`; None when it is not given. Raises InvalidOption."""
        if name not in self:
            return None
        found = _TIME.fullmatch(self[name])
        if found is None or not int(found["number"]):
            raise InvalidOption(f"{name} is a time like 500ms, 30s, 15m, 2h or 7d, not {self[name]!r:.60}")
        return float(found["number"]) * _SECONDS[found["unit"].lower()]

    def words(self, name: str) -> tuple[str, ...]:
        """Words between commas; none when it is not given."""
        return tuple(word for part in self.get(name, "").split(",") if (word := part.strip()))

    def parsed(self, name: str) -> Any:
        """A JSON value, in which no object has a name twice. Raises InvalidOption."""
        try:
            return json.loads(self[name], object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise InvalidOption(f"{name} is no JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return made


def _unknown(key: str, names: Mapping[str, str]) -> str:
    if key.lower() == "paths":
        return "load() takes one path, the folder of one store"
    near = difflib.get_close_matches(key.lower(), names, n=1, cutoff=0)
    return f"unknown option {key!r}; did you mean {names[near[0]]!r}?"

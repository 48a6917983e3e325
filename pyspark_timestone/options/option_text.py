"""Options as text by their proper names, and how each kind of value is read. Of single options it knows `path` and
`layout`, which source and sink have in common."""

import difflib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pyspark_timestone.errors import InvalidOption
from timestone.record import parse_time, time_us
from timestone.settings_schema import COUNTED_MOST
from timestone_tiering.buckets.bucket_url import check_url
from timestone_tiering.errors import TieringError
from timestone_tiering.objects.layout import OWNERS

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 24 * 3600.0}
_TIME = re.compile(r"\s*(?P<number>[0-9]{1,11})\s*(?P<unit>ms|s|m|min|h|d)\s*", re.IGNORECASE)
_MILLISECONDS = re.compile("[0-9]{1,16}")
_DIGITS = re.compile(r"[0-9]{1,40}")
"""Of a number. Python takes ever longer for more of them, and none over 4300."""

_OF_KAFKA_CLIENTS = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")
"""How the options begin that configure a client of a broker. There is none here, and so they change nothing."""

_SIMILAR = 0.7
"""Least similarity of a name that is suggested for an unknown one: a slip of the keyboard or another ending."""

_OF_TABLES = "provider"
"""Among the properties that `CREATE TABLE` hands over in the place of options."""


class OptionText(dict[str, str]):
    """Options as the user gave them, under the names of `known`; the case of names is ignored."""

    def __init__(
        self,
        given: Mapping[str, str],
        known: Sequence[str],
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Raises InvalidOption for a name that is not known, and for one of `refused`: lower-case names, and what to
        do instead."""
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
            elif (instead := refused.get(key.lower())) is not None:
                raise InvalidOption(f"unsupported option {key!r}, as in Spark's Kafka connector: {instead}")
            elif key.lower().startswith(_OF_KAFKA_CLIENTS):
                self.ignored += (key,)
            else:
                raise InvalidOption(_unknown(key, names))

    def warn_of_ignored(self) -> None:
        """Name them, without their values: some are passwords."""
        if self.ignored:
            names = ", ".join(self.ignored)
            but = " but the layout, which is kafka" if self.kafka_layout() and "layout" not in self else ""
            _log.warning("there is no broker to configure, so these options change nothing%s: %s", but, names)

    def kafka_layout(self) -> bool:
        """Return whether the columns are those of Spark's Kafka source and sink. Raises InvalidOption."""
        # A job that still configures a client of Kafka was written for Kafka's columns: no place for a payload there.
        default = bool(self.ignored) and "payload" not in self
        return self.one_of("layout", {"timestone": False, "kafka": True}, default=default)

    def path(self) -> Path:
        """Return the folder of the store. Raises InvalidOption."""
        if not self.get("path", "").strip():
            instead = f" (instead of {self.ignored[0]})" if self.ignored else ""
            raise InvalidOption(
                f"invalid path: expected the folder of a store, as in .load('data'), got none{instead}"
            )
        return self.folder("path")

    def source(self) -> Path | str:
        """Return the folder of the store, or the URL of the bucket that a store uploads to. Raises InvalidOption."""
        url = self.get("path", "").strip()
        if "://" not in url or (url.startswith("file:") and not (self.folder("path") / OWNERS).is_dir()):
            return self.path()
        try:
            check_url(url)
        except TieringError as error:
            raise InvalidOption(f"invalid path: {error}") from None
        return url

    def folder(self, name: str) -> Path:
        """Return a folder that driver and workers can open. Raises InvalidOption."""
        path = self[name]
        if "://" in path and not path.startswith("file://"):
            raise InvalidOption(
                f"invalid {name}: expected a folder that driver and workers can open, got {path!r}"
            )
        # Tasks may run in another working directory.
        return Path(path.removeprefix("file://").removeprefix("file:")).absolute()

    def boolean(self, name: str, *, default: bool) -> bool:
        """`true` or `false`. Raises InvalidOption."""
        return self.one_of(name, {"true": True, "false": False}, default=default)

    def one_of(self, name: str, words: Mapping[str, Value], *, default: Value) -> Value:
        """Return the value of one of `words`. Raises InvalidOption."""
        if name not in self:
            return default
        try:
            return words[self[name].strip().lower()]
        except KeyError:
            raise InvalidOption(
                f"invalid {name}: expected {' or '.join(words)}, got {self[name]!r:.60}"
            ) from None

    def count(self, name: str, *, least: int = 1) -> int | None:
        """Return a whole number; None if it is not given. Raises InvalidOption."""
        if name not in self:
            return None
        text = self[name].strip()
        if not _DIGITS.fullmatch(text) or int(text) < least:
            raise InvalidOption(f"invalid {name}: expected a whole number from {least} on, got {text!r:.60}")
        if int(text) > COUNTED_MOST:
            raise InvalidOption(f"invalid {name}: expected at most {COUNTED_MOST}, got {text}")
        return int(text)

    def seconds(self, name: str) -> float | None:
        """Return a time above 0, as Spark writes it: `15m`, `500ms`; None if it is not given. Raises InvalidOption."""
        if name not in self:
            return None
        found = _TIME.fullmatch(self[name])
        if found is None or not int(found["number"]):
            raise InvalidOption(
                f"invalid {name}: expected a time like 500ms, 30s, 15m, 2h or 7d, got {self[name]!r:.60}"
            )
        return float(found["number"]) * _SECONDS[found["unit"].lower()]

    def time_us(self, name: str) -> int:
        """Milliseconds since 1970 or a time with its zone, in microseconds. Raises InvalidOption."""
        text = self[name].strip()
        if _MILLISECONDS.fullmatch(text):
            return 1000 * int(text)
        try:
            return time_us(parse_time(text))
        except ValueError:
            raise InvalidOption(
                f"invalid {name}: expected milliseconds since 1970 or a time with its zone, like 2026-01-31T12:00:00Z,"
                f" got {self[name]!r:.60}"
            ) from None

    def words(self, name: str) -> tuple[str, ...]:
        """Words between commas; none when it is not given."""
        return tuple(word for part in self.get(name, "").split(",") if (word := part.strip()))

    def parsed(self, name: str) -> Any:
        """Return a JSON value, in which no object has a name twice. Raises InvalidOption."""
        try:
            return json.loads(self[name], object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise InvalidOption(f"invalid {name}: expected JSON, got {self[name]!r:.60}: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return made


def _unknown(key: str, names: Mapping[str, str]) -> str:
    if key.lower() == "paths":
        return "load() takes one path, the folder of one store"
    near = difflib.get_close_matches(key.lower(), names, n=1, cutoff=_SIMILAR)
    return f"unknown option {key!r}" + (f"; did you mean {names[near[0]]!r}?" if near else "")

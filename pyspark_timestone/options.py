"""The options of the reader: their names, their defaults and what they may be. Names are Spark's Kafka source's
where it has them. Turns text into one frozen value; opens nothing.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pyspark_timestone.bounds import EARLIEST, LATEST, Bound, Unmatched
from pyspark_timestone.columns import NAMES
from pyspark_timestone.errors import InvalidOffsets, InvalidOption
from pyspark_timestone.offsets import LogPartition, SourceOffset
from pyspark_timestone.selection import Selection
from timestone.errors import InvalidName
from timestone.filters import validate_filter

Value = TypeVar("Value")

OPTIONS = (
    "path", "subscribe", "subscribePattern", "assign", "topics",
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "startingOffsets",
    "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets",
    "maxOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "columns", "includeHeaders",
)  # fmt: skip

RECORDS_PER_TASK = 1 << 20
"""Default of `maxRecordsPerPartition`: about a second of work, so that a retry is cheap and all cores have
something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What the user asked for, checked."""

    path: Path
    selection: Selection
    topics: tuple[str, ...]
    starting: Bound
    ending: Bound
    unmatched_start: Unmatched
    offsets_per_trigger: int | None
    partition_count: int
    records_per_task: int
    fail_on_data_loss: bool
    columns: tuple[str, ...]


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check `given`, in whatever case its names are. Raises InvalidOption with the one thing to change."""
    texts = _by_name(given)
    default_start = LATEST if streaming else EARLIEST
    return ReadOptions(
        path=_path(texts),
        selection=_selection(texts),
        topics=_topics(texts),
        starting=_bound(
            texts, "starting", default_start, allowed=(EARLIEST, LATEST) if streaming else (EARLIEST,)
        ),
        ending=_bound(texts, "ending", LATEST, allowed=(LATEST,)),
        unmatched_start=_strategy(texts),
        offsets_per_trigger=_count(texts, "maxOffsetsPerTrigger"),
        partition_count=_count(texts, "minPartitions") or 1,
        records_per_task=_count(texts, "maxRecordsPerPartition") or RECORDS_PER_TASK,
        fail_on_data_loss=_boolean(texts, "failOnDataLoss", default=True),
        columns=columns_option(given),
    )


def columns_option(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns to read, in order."""
    texts = _by_name(given)
    headers = _boolean(texts, "includeHeaders", default=True)
    chosen = _list(texts, "columns") or tuple(name for name in NAMES if headers or name != "headers")
    for name in chosen:
        if name not in NAMES:
            raise InvalidOption(f"columns: the source has no column {name!r}; it has {', '.join(NAMES)}")
    if len(set(chosen)) != len(chosen):
        raise InvalidOption(f"columns names a column twice: {', '.join(chosen)}")
    return chosen


def _by_name(given: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): name for name in OPTIONS}
    texts = {}
    for key, text in given.items():
        if key.lower() not in names:
            raise InvalidOption(_unknown(key, names))
        texts[names[key.lower()]] = text
    return texts


def _unknown(key: str, names: Mapping[str, str]) -> str:
    if key.lower().startswith("kafka."):
        return (
            f"unknown option {key!r}: there is no broker to configure, the source reads the files in `path`"
        )
    if key.lower() == "paths":
        return "load() takes one path, the folder of one store"
    near = difflib.get_close_matches(key.lower(), names, n=1, cutoff=0)
    return f"unknown option {key!r}; did you mean {names[near[0]]!r}?"


def _path(texts: Mapping[str, str]) -> Path:
    if not texts.get("path"):
        raise InvalidOption("the folder of the store is missing: .load('data') or .option('path', 'data')")
    path = texts["path"]
    if "://" in path and not path.startswith("file://"):
        raise InvalidOption(f"path {path!r}: the source reads a folder that driver and workers can open")
    # Tasks may run in another working directory.
    return Path(path.removeprefix("file://").removeprefix("file:")).absolute()


def _selection(texts: Mapping[str, str]) -> Selection:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name in texts]
    if len(chosen) > 1:
        raise InvalidOption(f"{' and '.join(chosen)} are given; at most one of them")
    if "assign" in texts:
        return Selection(partitions=_assigned(texts["assign"]))
    if "subscribe" in texts and not _list(texts, "subscribe"):
        raise InvalidOption("subscribe names no log")
    return Selection(names=_list(texts, "subscribe"), pattern=texts.get("subscribePattern"))


def _topics(texts: Mapping[str, str]) -> tuple[str, ...]:
    filters = _list(texts, "topics")
    for one in filters:
        try:
            validate_filter(one)
        except InvalidName as error:
            raise InvalidOption(f"topics: {error}") from None
    return filters


def _assigned(text: str) -> tuple[LogPartition, ...]:
    wanted = _json(text, "assign")
    try:
        pairs = [LogPartition(log, int(number)) for log, numbers in wanted.items() for number in numbers]
    except (AttributeError, TypeError, ValueError):
        raise InvalidOption(f'assign is JSON like {{"telemetry":[0,1]}}, not {text}') from None
    if not pairs:
        raise InvalidOption("assign names no partition")
    return tuple(sorted(pairs))


def _bound(texts: Mapping[str, str], end: str, default: int, *, allowed: tuple[int, ...]) -> Bound:
    """The strongest of the three options for one end, in Kafka's order."""
    if (name := f"{end}Timestamp") in texts:
        return Bound(default, name, time_us=_time_us(texts[name], name))
    if (name := f"{end}OffsetsByTimestamp") in texts:
        times_ms = _positions(texts[name], name)
        return Bound(default, name, times_us={key: 1000 * time_ms for key, time_ms in times_ms.items()})
    name = f"{end}Offsets"
    text = texts.get(name, "").strip()
    words = {"earliest": EARLIEST, "latest": LATEST, "": default}
    if text.lower() in words:
        word = words[text.lower()]
        if word not in allowed:
            raise InvalidOption(f"{name}={text} would read nothing")
        return Bound(word, name)
    offsets = _positions(text, name)
    for key, offset in offsets.items():
        if offset < 0 and offset not in allowed:
            raise InvalidOption(f"{name}: {offset} is no offset of {key} that something could be read from")
    return Bound(default, name, offsets=offsets)


def _positions(text: str, name: str) -> Mapping[LogPartition, int]:
    try:
        return SourceOffset.from_json(_json(text, name)).positions
    except InvalidOffsets as error:
        raise InvalidOption(f"{name}: {error}") from None


def _time_us(text: str, name: str) -> int:
    if text.strip().isdecimal():
        return 1000 * int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidOption(
            f"{name} is milliseconds since 1970 or like 2026-01-31T12:00:00Z (with its zone), not {text!r}"
        )
    # In integers: a float has too few digits for the microseconds of our time.
    whole = moment.replace(microsecond=0)
    return int(whole.timestamp()) * 1_000_000 + moment.microsecond


def _strategy(texts: Mapping[str, str]) -> Unmatched:
    name = "startingOffsetsByTimestampStrategy"
    return _one_of(texts.get(name, Unmatched.ERROR.value), name, {one.value: one for one in Unmatched})


def _boolean(texts: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _one_of(texts.get(name, str(default)), name, {"true": True, "false": False})


def _one_of(text: str, name: str, words: Mapping[str, Value]) -> Value:
    try:
        return words[text.strip().lower()]
    except KeyError:
        raise InvalidOption(f"{name} is {' or '.join(words)}, not {text!r}") from None


def _count(texts: Mapping[str, str], name: str) -> int | None:
    if name not in texts:
        return None
    text = texts[name].strip()
    if not text.isdecimal() or int(text) == 0:
        raise InvalidOption(f"{name} is a whole number from 1 on, not {text!r}")
    return int(text)


def _list(texts: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word for part in texts.get(name, "").split(",") if (word := part.strip()))


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidOption(f"{name} is no JSON: {error}") from None

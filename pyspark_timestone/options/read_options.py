"""The options of the reader: their names, their defaults and what they may be. Names are Spark's Kafka source's
where it has them. Turns text into one frozen value; opens nothing.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql.types import StructType

from pyspark_timestone.errors import InvalidOffsets, InvalidOption
from pyspark_timestone.offsets import LogPartition, SourceOffset
from pyspark_timestone.options.bounds import EARLIEST, LATEST, Bound, Unmatched
from pyspark_timestone.options.columns import (
    KAFKA_NAMES,
    NAMES,
    check_schema,
    schema_with_payload,
    source_schema,
)
from pyspark_timestone.options.flight_server import OPTIONS as FLIGHT_OPTIONS
from pyspark_timestone.options.flight_server import FlightServer, flight_server
from pyspark_timestone.options.java_pattern import python_pattern
from pyspark_timestone.options.offset_ranges import OffsetRanges
from pyspark_timestone.options.option_text import OptionText
from pyspark_timestone.options.payload_options import OPTIONS as PAYLOAD_OPTIONS
from pyspark_timestone.options.payload_options import payload_options
from pyspark_timestone.options.pushed_filters import OPTION as PUSHED
from pyspark_timestone.options.pushed_filters import PushedFilters
from pyspark_timestone.options.selection import Selection
from pyspark_timestone.payload.formats import PayloadOptions, check_type, payload_module
from timestone import Pin
from timestone.errors import InvalidName
from timestone.filters import validate_filter
from timestone.format.names import validate_reader_name

OPTIONS = (
    "path", "tail", "subscribe", "subscribePattern", "assign", "topics",
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "startingOffsets",
    "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", "offsetRanges",
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "group", "pinMaxAge", "pinMaxBytes", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss",
    "columns", "includeHeaders", "layout",
    *PAYLOAD_OPTIONS, *FLIGHT_OPTIONS,
)  # fmt: skip

_CHOOSING = (
    "subscribe", "subscribePattern", "assign",
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets",
    "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets",
)  # fmt: skip
"""What says which records are read, but for their topics."""

_LIMITING = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger")

REFUSED = {
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest",
    "kafka.key.deserializer": "keys are bytes; convert them with functions of a DataFrame",
    "kafka.value.deserializer": "values are bytes; convert them with functions of a DataFrame",
    "kafka.enable.auto.commit": "Spark's checkpoint holds the progress of a query",
    "kafka.interceptor.classes": "no client of Kafka reads the records",
}
"""Options that Spark's Kafka source refuses too, and what to do instead."""

_SERVER = "flight or cluster names the server in its place; the URL of its bucket is possible"
_PIN = "how long records are kept is set at the server"
_DECODE = "decode the column value in the query, as with from_json(value, schema)"
INSTEAD = {
    "path": _SERVER, "tail": _SERVER, "pinMaxAge": _PIN, "pinMaxBytes": _PIN, **dict.fromkeys(PAYLOAD_OPTIONS, _DECODE),
    "layout": "select the columns in the query",
}  # fmt: skip
"""Options that a read over Arrow Flight has not, and what to do in their place."""

RECORDS_PER_TASK = 1 << 22
"""Default of `maxRecordsPerPartition`: no fewer than a segment has by default. A task costs Spark a tenth of a second
before its first row, so that smaller ones cost a fifth of the rows/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """Limits of one batch of a stream; None for unlimited."""

    most_records: int | None = None
    most_bytes: int | None = None
    least_records: int | None = None
    delay_s: float = 15 * 60.0
    """After so long a batch is read although fewer than `least_records` are waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Checked options of a read."""

    source: Path | str | FlightServer
    """The folder of a store, the URL of a bucket, or a server."""
    tail: Path | FlightServer | None
    """With a bucket: the store that uploads to it, its folder or the server, for the records that are not there yet."""
    selection: Selection
    topics: tuple[str, ...]
    starting: Bound
    ending: Bound
    ranges: OffsetRanges | None
    """Instead of everything above that chooses records, but `topics`."""
    unmatched_start: Unmatched
    limits: TriggerLimits
    group: str | None
    pin: Pin | None
    partition_count: int
    records_per_task: int
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    kafka_layout: bool
    """The columns are those of Spark's Kafka source."""
    payload: PayloadOptions | None
    pushed: PushedFilters = field(default_factory=PushedFilters)
    """Filters of the query: what need not be read."""
    nothing: bool = False
    """No record can match them."""

    def check_schema(self, schema: StructType) -> None:
        """Raise SchemaMismatch for one that a read with these options cannot give."""
        names = KAFKA_NAMES if self.kafka_layout else NAMES
        check_schema(schema, self.payload.columns if self.payload else (), names)

    def refuse_limits(self) -> None:
        """Raise InvalidOption for an option that needs Spark 4.2: older ones do not say where a batch begins, nor that
        a run ends with what is there, so a limit would end such a run after one batch."""
        limits = self.limits
        values = (limits.most_records, limits.most_bytes, limits.least_records)
        for name, value in zip(_LIMITING, values, strict=True):
            if value is not None:
                raise InvalidOption(f"{name} needs Spark 4.2 or newer; before, each batch reads all there is")


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check `given`, ignoring the case of names. Raises InvalidOption, which names the option to change."""
    pushed = [text for name, text in given.items() if name.lower() == PUSHED.lower()]
    given = {name: text for name, text in given.items() if name.lower() != PUSHED.lower()}
    texts = OptionText(given, OPTIONS, REFUSED)
    options = _checked(texts, streaming=streaming)
    texts.warn_of_ignored()
    return (
        _pruned(options, PushedFilters.from_text(pushed[0], kafka_layout=options.kafka_layout))
        if pushed
        else options
    )


def _pruned(options: ReadOptions, pushed: PushedFilters) -> ReadOptions:
    topics = pushed.topics(options.topics)
    return replace(options, pushed=pushed, topics=topics or options.topics, nothing=topics is None)


def refuse_invalid(given: Mapping[str, str]) -> None:
    """Raise InvalidOption for options that neither a batch nor a stream can use.

    For the call of Spark that does not say which of both it is. Spark reports an error of a stream's reader only when
    the query runs, with a dozen lines about the query around it."""
    texts = OptionText(given, OPTIONS, REFUSED)
    try:
        _checked(texts, streaming=False)
    except InvalidOption as error:
        with suppress(InvalidOption):
            _checked(texts, streaming=True)
            return
        raise error from None


def _checked(texts: OptionText, *, streaming: bool) -> ReadOptions:
    has_bucket = "://" in texts.get("path", "") and isinstance(texts.source(), str)
    server = flight_server(
        texts, {name: why for name, why in INSTEAD.items() if name != "path" or not has_bucket}
    )
    kafka = texts.kafka_layout()
    default_start = LATEST if streaming else EARLIEST
    ranges = _ranges(texts, streaming=streaming)
    payload = payload_options(texts)
    if server is not None and kafka:
        raise InvalidOption(f"unsupported layout kafka beside flight: {INSTEAD['layout']}")
    source = texts.source() if server is None or has_bucket else server
    tail = server if has_bucket and server is not None else _tail(texts, source)
    return ReadOptions(
        source=source,
        tail=tail,
        selection=_selection(texts, streaming=streaming)
        if ranges is None
        else Selection(partitions=ranges.keys),
        topics=_topics(texts),
        starting=_bound(
            texts, "starting", default_start, allowed=(EARLIEST, LATEST) if streaming else (EARLIEST,)
        ),
        ending=_bound(texts, "ending", LATEST, allowed=(LATEST,)),
        ranges=ranges,
        unmatched_start=_strategy(texts),
        limits=_limits(texts),
        group=_group(texts, source, tail),
        pin=_pin(texts),
        partition_count=texts.count("minPartitions") or 1,
        records_per_task=texts.count("maxRecordsPerPartition") or RECORDS_PER_TASK,
        fail_on_data_loss=texts.boolean("failOnDataLoss", default=True),
        columns=_columns(texts, payload),
        kafka_layout=kafka,
        payload=payload,
    )


def _tail(texts: OptionText, source: Path | str | FlightServer) -> Path | None:
    if "tail" not in texts:
        return None
    if not isinstance(source, str):
        raise InvalidOption("invalid tail: expected the URL of a bucket as path beside it, got a folder")
    return texts.folder("tail")


def _limits(texts: OptionText) -> TriggerLimits:
    most, least = texts.count("maxOffsetsPerTrigger"), texts.count("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise InvalidOption(
            f"invalid minOffsetsPerTrigger: expected at most maxOffsetsPerTrigger ({most}), got {least}"
        )
    delay_s = texts.seconds("maxTriggerDelay")
    if delay_s is not None and least is None:
        raise InvalidOption("invalid maxTriggerDelay: expected minOffsetsPerTrigger beside it, got none")
    return TriggerLimits(
        most_records=most,
        most_bytes=texts.count("maxBytesPerTrigger"),
        least_records=least,
        delay_s=TriggerLimits().delay_s if delay_s is None else delay_s,
    )


def _group(
    texts: OptionText, source: Path | str | FlightServer, tail: Path | FlightServer | None
) -> str | None:
    name = texts.get("group")
    if name is not None and isinstance(source, str) and tail is None:
        raise InvalidOption(
            "invalid group: expected the folder of a store as path or tail, got a bucket, which has no named readers;"
            " the checkpoint of a query has its offsets"
        )
    if name is not None:
        try:
            validate_reader_name(name)
        except InvalidName as error:
            raise InvalidOption(f"invalid group: {error}") from None
    return name


def _pin(texts: OptionText) -> Pin | None:
    age_s, most_bytes = texts.seconds("pinMaxAge"), texts.count("pinMaxBytes")
    if age_s is None and most_bytes is None:
        return None
    if "group" not in texts:
        raise InvalidOption(
            f"invalid {'pinMaxBytes' if age_s is None else 'pinMaxAge'}: expected group beside it, whose progress holds"
            " the records, got none"
        )
    return Pin(max_age_ms=int(1000 * (age_s or 0)), max_bytes=most_bytes or 0)


def schema_option(given: Mapping[str, str]) -> StructType | str:
    """Return the schema of the columns to read. Raises InvalidOption, MissingRequirement."""
    texts = OptionText(given, OPTIONS, REFUSED)
    payload = payload_options(texts)
    columns = _columns(texts, payload)
    if payload is None:
        return source_schema(columns)
    fields = payload_module(payload).spark_type(payload)
    if not isinstance(fields, str):
        check_type(fields)
    return schema_with_payload(columns, fields)


def _columns(texts: OptionText, payload: PayloadOptions | None) -> tuple[str, ...]:
    """Return the columns to read, in order. A decoded payload takes the place of the bytes."""
    kafka = texts.kafka_layout()
    if kafka and payload is not None:
        raise InvalidOption(
            "invalid layout: expected timestone beside payload, got kafka, which has no column for it"
        )
    headers = texts.boolean("includeHeaders", default=not kafka)
    names = KAFKA_NAMES if kafka else NAMES
    known = names if payload is None else (*names, *payload.columns)
    left_out = {"headers"} if not headers else set()
    if payload is not None and payload.bad_records != "column":
        left_out.add("value")
    chosen = texts.words("columns") or tuple(name for name in known if name not in left_out)
    for name in chosen:
        if name not in known:
            raise InvalidOption(f"invalid columns: expected some of {', '.join(known)}, got {name!r}")
    if len(set(chosen)) != len(chosen):
        raise InvalidOption(f"invalid columns: expected each once, got {', '.join(chosen)}")
    return chosen


def _selection(texts: OptionText, *, streaming: bool) -> Selection:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name in texts]
    if len(chosen) > 1:
        raise InvalidOption(
            "invalid options: expected at most one of subscribe, subscribePattern and assign, got"
            f" {' and '.join(chosen)}"
        )
    advice = "; to wait for a log that does not exist yet, use subscribePattern" if streaming else ""
    if "assign" in texts:
        return Selection(partitions=_assigned(texts), advice=advice)
    if "subscribe" in texts and not texts.words("subscribe"):
        raise InvalidOption(f"invalid subscribe: expected names of logs, got {texts['subscribe']!r:.60}")
    return Selection(names=texts.words("subscribe"), pattern=_pattern(texts), advice=advice)


def _ranges(texts: OptionText, *, streaming: bool) -> OffsetRanges | None:
    name = "offsetRanges"
    if name not in texts:
        return None
    if streaming:
        raise InvalidOption(
            f"invalid {name}: expected a batch read, got a stream, whose offsets are in its checkpoint"
        )
    others = [one for one in texts if one in _CHOOSING]
    if others:
        raise InvalidOption(f"invalid {name}: expected no other choice of records, got {others[0]} too")
    try:
        return OffsetRanges.from_json(texts.parsed(name))
    except InvalidOffsets as error:
        raise InvalidOption(f"invalid {name}: {error}") from None


def _pattern(texts: OptionText) -> str | None:
    name = "subscribePattern"
    if name not in texts:
        return None
    java = texts[name].strip()
    try:
        pattern = python_pattern(java)
        re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise InvalidOption(
            f"invalid {name}: expected a regular expression of Java, got {java!r:.60}: {error}"
        ) from None
    if not java:
        raise InvalidOption(f"invalid {name}: expected a regular expression, got nothing")
    return pattern


def _topics(texts: OptionText) -> tuple[str, ...]:
    filters = texts.words("topics")
    for one in filters:
        try:
            validate_filter(one)
        except InvalidName as error:
            raise InvalidOption(f"invalid topics: {error}") from None
    return filters


def _assigned(texts: OptionText) -> tuple[LogPartition, ...]:
    wanted = texts.parsed("assign")
    try:
        pairs = [LogPartition(log, number) for log, numbers in wanted.items() for number in numbers]
        if any(type(one.partition) is not int or one.partition < 0 for one in pairs):
            raise TypeError
    except (AttributeError, TypeError):
        raise InvalidOption(
            f'invalid assign: expected JSON like {{"telemetry":[0,1]}}, got {texts["assign"]:.60}'
        ) from None
    if not pairs:
        raise InvalidOption(f"invalid assign: expected a partition, got {texts['assign']:.60}")
    return tuple(sorted(pairs))


def _bound(texts: OptionText, end: str, default: int, *, allowed: tuple[int, ...]) -> Bound:
    """Return the strongest of the three options for one end, in Kafka's order."""
    if (name := f"{end}Timestamp") in texts:
        return Bound(default, name, time_us=texts.time_us(name))
    if (name := f"{end}OffsetsByTimestamp") in texts:
        times_ms = _positions(texts, name)
        return Bound(default, name, times_us={key: 1000 * time_ms for key, time_ms in times_ms.items()})
    name = f"{end}Offsets"
    text = texts.get(name, "").strip()
    words = {"earliest": EARLIEST, "latest": LATEST, "": default}
    if text.lower() in words:
        word = words[text.lower()]
        if word not in allowed:
            raise InvalidOption(
                f"invalid {name}: expected {'earliest' if end == 'starting' else 'latest'} or JSON, got {text!r},"
                " which would read nothing"
            )
        return Bound(word, name)
    offsets = _positions(texts, name)
    for key, offset in offsets.items():
        if offset < 0 and offset not in allowed:
            raise InvalidOption(
                f"invalid {name}: expected an offset of {key} that a read can use, got {offset}"
            )
    return Bound(default, name, offsets=offsets)


def _positions(texts: OptionText, name: str) -> Mapping[LogPartition, int]:
    try:
        return SourceOffset.from_json(texts.parsed(name)).positions
    except InvalidOffsets as error:
        raise InvalidOption(f"invalid {name}: {error}") from None


def _strategy(texts: OptionText) -> Unmatched:
    name = "startingOffsetsByTimestampStrategy"
    return texts.one_of(name, {one.value: one for one in Unmatched}, default=Unmatched.ERROR)

"""Options and columns of the sink: converts text into one frozen value. Opens nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from pyspark_timestone.errors import InvalidOption, SchemaMismatch
from pyspark_timestone.options.columns import HEADERS
from pyspark_timestone.options.flight_server import OPTIONS as FLIGHT_OPTIONS
from pyspark_timestone.options.flight_server import FlightServer, flight_server
from pyspark_timestone.options.option_text import OptionText
from timestone.errors import InvalidName
from timestone.filters import validate_topic
from timestone.format.names import validate_target
from timestone.record import FLAG_QOS_SHIFT, FLAG_RETAIN
from timestone.spool.format import Posting
from timestone.spool.producer import TIMEOUT_S

OPTIONS = (
    "path", "log", "partition", "topic", "qos", "retain", "layout", "txnAppId", "txnVersion", "commitTimeoutS",
    *FLIGHT_OPTIONS,
)  # fmt: skip
SPARKS_OWN = ("checkpointLocation", "queryName")
"""Options that Spark passes to every sink."""

REFUSED = {
    "kafka.key.serializer": "keys are bytes or text; convert them with functions of a DataFrame",
    "kafka.value.serializer": "values are bytes or text; convert them with functions of a DataFrame",
}
"""Options that Spark's Kafka sink refuses too, and what to do instead."""

_QOS = {"0": 0, "1": 1, "2": 2}
_BYTES = (BinaryType().simpleString(), StringType().simpleString())
_COLUMNS = {
    "value": _BYTES,
    "topic": (StringType().simpleString(),),
    "headers": (HEADERS.simpleString(),),
}
_KAFKA_COLUMNS = {"key": _BYTES, **_COLUMNS, "partition": (IntegerType().simpleString(),)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Validated options."""

    target: Path | FlightServer
    """The folder of a store, or a server in its place."""
    log: str | None
    """None if the column `topic` of Kafka's layout names it."""
    partition: int
    topic: str | None
    """MQTT topic of all rows."""
    flags: int
    kafka_layout: bool
    """Whether the columns are those of Spark's Kafka sink, which calls a log a topic."""
    transaction: tuple[str, int] | None
    """Application and version that make a batch write idempotent."""
    timeout_s: float


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Validate `given`, with option names in any case. Raises InvalidOption with the one thing to change."""
    texts = OptionText(given, (*OPTIONS, *SPARKS_OWN), REFUSED)
    texts.warn_of_ignored()
    kafka = texts.kafka_layout()
    log, topic = texts.get("topic" if kafka else "log"), None if kafka else texts.get("topic")
    if kafka and "log" in texts:
        raise InvalidOption(
            f"invalid log: expected topic, which names the log with layout=kafka, got {texts['log']!r:.60}"
        )
    if not kafka and log is None:
        instead = ", which is what Kafka's sink calls topic" if "topic" in texts else ""
        raise InvalidOption(
            f"invalid log: expected the log to append to, as in .option('log', 'commands'), got none{instead}"
        )
    partition = texts.count("partition", least=0) or 0
    if log is not None:
        with _of_option("topic" if kafka else "log"):
            validate_target(log, partition)
    if topic is not None:
        with _of_option("topic"):
            validate_topic(topic)
    qos = texts.one_of("qos", _QOS, default=1)
    retain = texts.boolean("retain", default=False)
    return SinkOptions(
        target=flight_server(texts, {"path": "flight names the server in its place"}) or texts.path(),
        log=log,
        partition=partition,
        topic=topic,
        flags=qos << FLAG_QOS_SHIFT | (FLAG_RETAIN if retain else 0),
        kafka_layout=kafka,
        transaction=_transaction(texts, streaming=streaming),
        timeout_s=float(texts.count("commitTimeoutS") or TIMEOUT_S),
    )


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise SchemaMismatch unless the frame has `value` and otherwise only columns of the layout, with the right
    types. As in Kafka's sink, other columns are ignored in Kafka's layout."""
    columns = _KAFKA_COLUMNS if options.kafka_layout else _COLUMNS
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    takes = "value (binary or string), topic (string) and headers (array<struct<key,value>>)"
    if options.kafka_layout:
        takes = f"with layout=kafka {takes}, key (binary or string) and partition (int)"
    if "value" not in found:
        raise SchemaMismatch(
            f"invalid schema: expected {takes}, got {', '.join(found) or 'no columns'} without value"
        )
    if options.log is None and "topic" not in found:
        raise SchemaMismatch(
            f"invalid schema: expected {takes}, got no topic, which names the log: add the column, or set the option"
            " topic"
        )
    for name, kind in found.items():
        if name not in columns:
            if options.kafka_layout:
                continue
            raise SchemaMismatch(f"invalid schema: expected {takes}, got {name!r} too: drop it")
        if kind not in columns[name]:
            raise SchemaMismatch(
                f"invalid schema: expected {' or '.join(columns[name])} for {name!r}, got {kind}"
            )


def _transaction(texts: OptionText, *, streaming: bool) -> tuple[str, int] | None:
    given = [name for name in ("txnAppId", "txnVersion") if name in texts]
    if not given:
        return None
    if streaming:
        raise InvalidOption(
            f"invalid {given[0]}: expected a batch, got a stream, whose batches are appended once without it"
        )
    if len(given) == 1:
        raise InvalidOption(
            f"invalid {given[0]}: expected {'txnVersion' if given[0] == 'txnAppId' else 'txnAppId'} beside it, got none"
        )
    version = texts.count("txnVersion", least=0)
    assert version is not None
    with _of_option("txnAppId"):
        # Checked now, before rows are staged.
        Posting("any", 0, texts["txnAppId"], version, (), remembered=True)
    return texts["txnAppId"], version


@contextmanager
def _of_option(name: str) -> Iterator[None]:
    """Raise InvalidOption for an invalid name in the value of an option."""
    try:
        yield
    except InvalidName as error:
        raise InvalidOption(f"invalid {name}: {error}") from None

"""The options of the sink, and the columns it takes. Turns text into one frozen value; opens nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import BinaryType, StringType, StructType

from pyspark_timestone.errors import InvalidOption, SchemaMismatch
from pyspark_timestone.options.columns import HEADERS
from pyspark_timestone.options.option_text import OptionText
from timestone.errors import InvalidName
from timestone.filters import validate_topic
from timestone.format.names import validate_log
from timestone.record import FLAG_QOS_SHIFT, FLAG_RETAIN
from timestone.spool.format import Posting
from timestone.spool.producer import TIMEOUT_S

OPTIONS = ("path", "log", "partition", "topic", "qos", "retain", "txnAppId", "txnVersion", "commitTimeoutS")
SPARKS_OWN = ("checkpointLocation", "queryName")
"""What Spark passes on to every sink."""

_QOS = {"0": 0, "1": 1, "2": 2}
_COLUMNS = {
    "value": (BinaryType().simpleString(), StringType().simpleString()),
    "topic": (StringType().simpleString(),),
    "headers": (HEADERS.simpleString(),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where the rows go, checked."""

    path: Path
    log: str
    partition: int
    topic: str | None
    flags: int
    transaction: tuple[str, int] | None
    """Application and version that make a batch write happen once."""
    timeout_s: float


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check `given`, in whatever case its names are. Raises InvalidOption with the one thing to change."""
    texts = OptionText(given, (*OPTIONS, *SPARKS_OWN))
    texts.warn_of_ignored()
    if "log" not in texts:
        instead = ", which is what Kafka's sink calls topic" if "topic" in texts else ""
        raise InvalidOption(f"the log to append to is missing: .option('log', 'commands'){instead}")
    partition = texts.count("partition", least=0) or 0
    with _of_option("log"):
        validate_log(texts["log"], partition)
    with _of_option("topic"):
        if "topic" in texts:
            validate_topic(texts["topic"])
    qos = texts.one_of("qos", _QOS, default=1)
    retain = texts.boolean("retain", default=False)
    return SinkOptions(
        path=texts.path(),
        log=texts["log"],
        partition=partition,
        topic=texts.get("topic"),
        flags=qos << FLAG_QOS_SHIFT | (FLAG_RETAIN if retain else 0),
        transaction=_transaction(texts, streaming=streaming),
        timeout_s=float(texts.count("commitTimeoutS") or TIMEOUT_S),
    )


def check_columns(schema: StructType) -> None:
    """Raise SchemaMismatch unless the frame has `value`, and else only `topic` and `headers`, of the right types."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    takes = "the sink takes value (binary or string), topic (string) and headers (array<struct<key,value>>)"
    if "value" not in found:
        raise SchemaMismatch(f"{takes}; the frame has {', '.join(found) or 'no columns'} and no value")
    for name, kind in found.items():
        if name not in _COLUMNS:
            raise SchemaMismatch(f"{takes}; column {name!r} is none of these: select what is to be appended")
        if kind not in _COLUMNS[name]:
            raise SchemaMismatch(f"column {name!r} is {kind}, not {' or '.join(_COLUMNS[name])}")


def _transaction(texts: OptionText, *, streaming: bool) -> tuple[str, int] | None:
    given = [name for name in ("txnAppId", "txnVersion") if name in texts]
    if not given:
        return None
    if streaming:
        raise InvalidOption(f"{given[0]}: a stream's batches are appended once as they are")
    if len(given) == 1:
        raise InvalidOption(f"{given[0]} is given alone; txnAppId and txnVersion belong together")
    version = texts.count("txnVersion", least=0)
    assert version is not None
    with _of_option("txnAppId"):
        # Now, not when all rows have been staged.
        Posting(texts["log"], 0, texts["txnAppId"], version, (), remembered=True)
    return texts["txnAppId"], version


@contextmanager
def _of_option(name: str) -> Iterator[None]:
    """A name that is none, as the value of an option. Raises InvalidOption."""
    try:
        yield
    except InvalidName as error:
        raise InvalidOption(f"{name}: {error}") from None

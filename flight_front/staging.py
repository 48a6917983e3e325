"""Staged parts: records of several clients, kept beside the log until one of them posts all of them at once, once for
each number of a producer. A task of Spark stages, its driver posts (docs/formats/posting.md).

A client calls a part `GROUP/TOKEN`. Its file is in a folder that is named after the user, too, so that no user reaches
the parts of another one."""

import re
from typing import Any

import pyarrow as pa

from flight_front.calls import Call
from flight_front.errors import CallRefused, Code, InvalidRequest
from flight_front.producers import Producers
from timestone.disk.json_document import integer
from timestone.errors import PostingNotTaken, PostingRefused
from timestone.log import Log
from timestone.spool.consumer import STAGING_NAME
from timestone.spool.format import Posting, PostingId
from timestone.spool.producer import SpoolProducer
from timestone.store import Store

COLUMN = "part"
"""Column of a batch that stages parts: the bytes of each."""
_GROUP = re.compile(r"[0-9A-Za-z-]{1,100}")
_PART = re.compile(rf"(?P<group>{_GROUP.pattern})/(?P<token>[0-9a-f]{{32}})")
_WAIT_S, _WAIT_MOST_S = 30, 600


def check_staged(schema: pa.Schema) -> None:
    """Raise InvalidRequest unless batches of this schema are parts."""
    if schema.names != [COLUMN] or not pa.types.is_binary(schema.field(0).type):
        raise InvalidRequest(f"invalid schema: expected one column, {COLUMN} of binary, got {schema!s:.120}")


def stage(store: Store, call: Call, group: str, batch: pa.RecordBatch) -> str:
    """Keep a part durably and return its name. Blocks. Raises InvalidRequest, OSError."""
    if batch.num_rows != 1 or batch.column(0).null_count:
        raise InvalidRequest(f"invalid batch: expected one part, got {batch.num_rows} rows")
    with _spool(store).new_part(_folder(call, group)) as part:
        part.add_encoded(batch.column(0)[0].as_buffer().to_pybytes())
    return f"{group}/{part.name.rpartition('/')[2]}"


def post(store: Store, producers: Producers, call: Call, log: Log, values: dict[str, Any]) -> None:
    """Append staged parts as one posting, all or none of them, once for each number of the producer; durable on return.
    Blocks. Raises CallRefused, InvalidName."""
    parts = values["parts"]
    if not isinstance(parts, list):
        raise InvalidRequest(f"invalid parts: expected a list of names, got {parts!r:.60}")
    names = tuple(_path(call, each) for each in parts)
    wait_s = integer(values.get("wait_s", _WAIT_S), 0, _WAIT_MOST_S)
    posting = Posting(
        log.name,
        log.partition,
        call.producer(values["producer"]),
        integer(values["number"]),
        names,
        remembered=True,
    )
    begins = values.get("begin", False)
    if type(begins) is not bool:
        raise InvalidRequest(f"invalid begin: expected true or false, got {begins!r:.60}")
    producers.use(call, posting.id, begins=begins)
    try:
        _spool(store).post(posting, timeout_s=wait_s)
    except PostingRefused as error:
        raise InvalidRequest(f"the posting is refused: {_shown(store, error)}") from None
    except PostingNotTaken as error:
        raise CallRefused(Code.UNAVAILABLE, _shown(store, error)) from None


def discard(store: Store, producers: Producers, call: Call, log: Log, values: dict[str, Any]) -> None:
    """Remove parts that will not be posted, all of a group, or the progress of a producer that will not post again.
    Blocks. Raises InvalidRequest, OSError."""
    spool = _spool(store)
    spool.discard(_path(call, each) for each in values.get("parts", ()))
    if "group" in values:
        spool.discard_group(_folder(call, values["group"]))
    if "producer" in values:
        producers.discard(call, PostingId(log.name, log.partition, call.producer(values["producer"]), 0))


class _Owner:
    """This process, as the one that appends what waits where no doorbell was installed."""

    def __init__(self, store: Store) -> None:
        store.log_names()  # raises StoreClosed: a posting does not wait for a server that has ended
        store.inbox.take_all()

    def close(self) -> None:
        """Do nothing: the store stays open."""


def _spool(store: Store) -> SpoolProducer:
    return SpoolProducer(store.path, lambda _: _Owner(store))


def _folder(call: Call, group: object) -> str:
    """Return the folder of a user's group. Raises InvalidRequest."""
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise InvalidRequest(f"invalid group: expected {_GROUP.pattern}, got {group!r:.60}")
    return f"{call.owner}-{group}"


def _path(call: Call, part: object) -> str:
    """Return the path of a user's part in the inbox. Raises InvalidRequest."""
    found = _PART.fullmatch(part) if isinstance(part, str) else None
    if found is None:
        raise InvalidRequest(f"invalid part: expected a name from an answer, got {part!r:.60}")
    return f"{STAGING_NAME}/{_folder(call, found['group'])}/{found['token']}"


def _shown(store: Store, error: Exception) -> str:
    """Return the reason without the paths of the server."""
    return str(error).removeprefix(f"{store.path}: ").replace(f"{store.path}/", "")

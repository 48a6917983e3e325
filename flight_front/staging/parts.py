"""Staged parts: records of several clients, kept beside the log until one of them posts all of them at once, once for
each number of a producer. A task of Spark stages, its driver posts (docs/formats/posting.md).

What clients say of parts and postings, and what a place for them has to do."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from flight_front.calls import Call
from flight_front.errors import InvalidRequest
from timestone.disk.json_document import integer
from timestone.log import Log
from timestone.spool.format import Frame, PostingId

COLUMN = "part"
"""Column of a batch that stages parts: the bytes of each."""
_GROUP = re.compile(r"[0-9A-Za-z-]{1,100}")
_PART = re.compile(rf"(?P<group>{_GROUP.pattern})/(?P<token>[0-9a-f]{{32}})")
_WAIT_S, _WAIT_MOST_S = 30, 600


def check_staged(schema: pa.Schema) -> None:
    """Raise InvalidRequest unless batches of this schema are parts."""
    if schema.names != [COLUMN] or not pa.types.is_binary(schema.field(0).type):
        raise InvalidRequest(f"invalid schema: expected one column, {COLUMN} of binary, got {schema!s:.120}")


def staged_part(batch: pa.RecordBatch) -> bytes:
    """Return the frames of a part. Raises InvalidRequest."""
    if batch.num_rows != 1 or batch.column(0).null_count:
        raise InvalidRequest(f"invalid batch: expected one part, got {batch.num_rows} rows")
    part: bytes = batch.column(0)[0].as_buffer().to_pybytes()
    return part


class PostOrder(NamedTuple):
    """Body of the action `post`."""

    posting: PostingId
    parts: Sequence[str]
    """As the client calls them."""
    begins: bool
    wait_s: int


def post_order(call: Call, log: Log, values: dict[str, Any]) -> PostOrder:
    """Return what a client asks for. Raises InvalidRequest, KeyError."""
    parts = values["parts"]
    if not isinstance(parts, list):
        raise InvalidRequest(f"invalid parts: expected a list of names, got {parts!r:.60}")
    begins = values.get("begin", False)
    if type(begins) is not bool:
        raise InvalidRequest(f"invalid begin: expected true or false, got {begins!r:.60}")
    posting = PostingId(log.name, log.partition, call.producer(values["producer"]), integer(values["number"]))
    return PostOrder(posting, parts, begins, integer(values.get("wait_s", _WAIT_S), 0, _WAIT_MOST_S))


class Staging(Protocol):
    """Parts, and what is appended once for each number of a producer. Every method blocks; any thread."""

    @property
    def producer_count(self) -> int:
        """Return how many producers are known, as far as they were used."""

    def append_once(self, call: Call, log: Log, posting: PostingId, frame: Frame) -> range | None:
        """Append a batch of a producer, durable on return; None if it was appended before. Raises CallRefused, and the
        errors of the engine."""

    def stage(self, call: Call, log: Log, group: str, part: bytes) -> str:
        """Keep a part durably and return its name. Raises InvalidRequest, and the errors of the engine."""

    def post(self, call: Call, log: Log, order: PostOrder) -> None:
        """Append staged parts as one posting, all or none of them, once for each number of the producer; durable on
        return. Raises CallRefused, InvalidName, and the errors of the engine."""

    def begin(self, call: Call, posting: PostingId) -> None:
        """Let a producer that is not known begin with any number. Raises CallRefused, and the errors of the engine."""

    def discard(self, call: Call, log: Log, values: dict[str, Any]) -> None:
        """Remove parts that will not be posted, all of a group, or the progress of a producer that will not post again.
        Raises InvalidRequest, and the errors of the engine."""


def refused_posting(reason: str) -> InvalidRequest:
    """Return the refusal of a posting."""
    return InvalidRequest(f"the posting is refused: {reason}")


def part_folder(call: Call, group: object) -> str:
    """Return the folder of a user's group. Raises InvalidRequest."""
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise InvalidRequest(f"invalid group: expected {_GROUP.pattern}, got {group!r:.60}")
    return f"{call.owner}-{group}"


def part_place(call: Call, part: object) -> tuple[str, str]:
    """Return the folder of a user's part, and its name there. Raises InvalidRequest."""
    found = _PART.fullmatch(part) if isinstance(part, str) else None
    if found is None:
        raise InvalidRequest(f"invalid part: expected a name from an answer, got {part!r:.60}")
    return part_folder(call, found["group"]), found["token"]

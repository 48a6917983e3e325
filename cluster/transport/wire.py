"""Frames as bytes. A message is length (u32), kind (u8), shard (u32), length of the head (u32), head, data; little
endian. The head is msgpack of the fields; data is entries and bytes of records, for `Records` only.

Nothing that arrives is trusted: types, sizes and kinds are checked, and what is not valid ends the connection."""

import asyncio
import struct
from typing import Any, NamedTuple

import msgspec

from timestone_cluster.errors import UndecodableFrame
from timestone_cluster.frames import (
    Committed,
    Diverged,
    Fenced,
    Fetch,
    Fetched,
    Follow,
    Frame,
    Held,
    Records,
    Reset,
    Started,
)
from timestone_cluster.transport.refusals import Refusal

MESSAGE_BYTES = 256 << 20
"""Most that one message may have: a record of the largest size, and its entry."""
_HEAD = struct.Struct("<IBII")
_LENGTH = struct.Struct("<I")


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """First message of a connection. node: the member that the sender is; empty for a client."""

    cluster: str
    node: str
    version: int = 1


class Append(msgspec.Struct, frozen=True, array_like=True):
    """A client wants records to be appended to a log of a shard."""

    number: int
    log: str
    topics: list[str]
    """One for each record; empty for none."""
    payloads: list[bytes]


class Appended(msgspec.Struct, frozen=True, array_like=True):
    """Answer to `Append` of this number: the offset of the first record, or why there is none."""

    number: int
    first: int
    error: str = ""
    is_unknown: bool = False
    """The records may be in the log or not."""
    is_refused: bool = False
    """Another leader would not take them either."""
    refusal: Refusal = ()
    """See `error_of`. Nodes of earlier versions do not send it."""


class Describe(msgspec.Struct, frozen=True, array_like=True):
    """A command wants to know what a node has."""

    number: int


class LogState(msgspec.Struct, frozen=True, array_like=True):
    """What a node has of a log."""

    shard: int
    name: str
    start: int
    end: int
    committed: int
    """As far as the node knows."""
    last_generation: int
    """Of the last record; 0 without one."""
    generation: int
    """The highest that the node knows of."""
    is_damaged: bool
    is_in_sync: bool
    """As far as the node knows."""
    ceiling: int = 0
    """No reader of the node had seen an offset at or above it before its machine was booted again."""


class Described(msgspec.Struct, frozen=True, array_like=True):
    """Answer to `Describe`."""

    number: int
    logs: tuple[LogState, ...]


class Relay(msgspec.Struct, frozen=True, array_like=True):
    """A client of a front has arrived at another node: after `Relayed` the connection is its own."""

    door: int
    """Number of the door at which it has arrived."""
    host: str
    port: int
    """Its address."""
    user: str | None
    """The user in its certificate, if the front takes it from there."""


class Relayed(msgspec.Struct, frozen=True, array_like=True):
    """Answer to `Relay`. error: why the client cannot be served now; empty if it is."""

    error: str = ""


class ForwardOpen(msgspec.Struct, frozen=True, array_like=True):
    """The leader of another shard wants to append what its clients publish here. From now on nothing counts that it, or
    an earlier leader of that shard, has sent on other connections."""

    home: int
    """That shard."""
    generation: int
    """In which the sender leads it."""
    turn: int
    """Rises with each connection of one generation."""
    logs: tuple[str, ...]


class ForwardOpened(msgspec.Struct, frozen=True, array_like=True):
    """Answer to `ForwardOpen`, once all that came before is committed. ends: offset behind it, by the logs asked for.
    error: why it cannot be now; empty if it is."""

    ends: tuple[int, ...]
    error: str = ""


class Forward(msgspec.Struct, frozen=True, array_like=True):
    """Records of clients of another shard, in columns: one value for all, or bytes of one a record."""

    number: int
    log: str
    names: tuple[str, ...]
    topics: int | bytes
    """u32: places in `names`."""
    flags: int | bytes
    """u16."""
    header_lengths: int | bytes
    """u16."""
    lengths: bytes
    """u32 of each."""
    stored: bytes


class Forwarded(msgspec.Struct, frozen=True, array_like=True):
    """Answer to `Forward` of this number: the offset of the first record, or why there is none. Where that is not
    known, the connection ends instead."""

    number: int
    first: int
    error: str = ""
    is_full: bool = False
    """Whether a limit is the reason: all that earlier versions read."""
    refusal: Refusal = ()
    """See `error_of`. Nodes of earlier versions do not send it."""


class Beats(msgspec.Struct, frozen=True, array_like=True):
    """`Beat` of several shards of one node."""

    shards: tuple[int, ...]
    generations: tuple[int, ...]
    """In which each holds."""


class Letter(msgspec.Struct, frozen=True, array_like=True):
    """Message between the fronts of two homes, on a connection that is open for `Forward`; answers go back on it."""

    data: bytes


class StoredData(NamedTuple):
    """Data of `Records`."""

    entries: bytes
    data: bytes


class RecordsHead(msgspec.Struct, frozen=True, array_like=True):
    """`Records` without its data."""

    generation: int
    log: str
    first: int
    end: int
    last_generation: int
    names_first: int
    names: tuple[str, ...]
    entries_bytes: int
    begins_segment: bool = False


class FetchedHead(RecordsHead, frozen=True, array_like=True):
    """`Fetched` without its data."""


_KINDS: tuple[type[Any], ...] = (
    Hello, Fenced, Follow, Held, Started, Diverged, Reset, Committed, RecordsHead, Append, Appended,
    Describe, Described, Relay, Relayed, ForwardOpen, ForwardOpened, Forward, Forwarded,
    Fetch, FetchedHead, Beats, Letter,
)  # fmt: skip
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = [msgspec.msgpack.Decoder(kind) for kind in _KINDS]

Message = (
    Frame
    | Hello
    | Append
    | Appended
    | Describe
    | Described
    | Relay
    | Relayed
    | ForwardOpen
    | ForwardOpened
    | Forward
    | Forwarded
    | Beats
    | Letter
)


def encoded(message: Message, shard: int = 0) -> list[bytes]:
    """Return the pieces of a message."""
    data: tuple[bytes, ...] = ()
    head_value: Any = message
    if isinstance(message, Records):
        stored = message.data
        assert isinstance(stored, StoredData)
        data = stored
        head_value = (FetchedHead if isinstance(message, Fetched) else RecordsHead)(
            message.generation,
            message.log,
            message.first,
            message.end,
            message.last_generation,
            message.names_first,
            message.names,
            len(stored.entries),
            message.begins_segment,
        )
    head = _ENCODER.encode(head_value)
    size_bytes = _HEAD.size - _LENGTH.size + len(head) + sum(map(len, data))
    return [_HEAD.pack(size_bytes, _NUMBERS[type(head_value)], shard, len(head)), head, *data]


async def read_message(
    reader: asyncio.StreamReader, *, most_bytes: int = MESSAGE_BYTES
) -> tuple[int, Message]:
    """Return shard and message. Raises UndecodableFrame; OSError or IncompleteReadError at the end."""
    (size_bytes,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return decoded(await reader.readexactly(checked_size(size_bytes, most_bytes)))


def checked_size(size_bytes: int, most_bytes: int) -> int:
    """Return a length that a message may have. Raises UndecodableFrame."""
    if not _HEAD.size - _LENGTH.size <= size_bytes <= most_bytes:
        raise UndecodableFrame(f"invalid message: expected up to {most_bytes} bytes, got {size_bytes}")
    return size_bytes


def decoded(body: bytes | memoryview) -> tuple[int, Message]:
    """Return shard and message of what stands behind the length, which is not needed any more then. Raises
    UndecodableFrame."""
    body = memoryview(body)
    at = _HEAD.size - _LENGTH.size
    if len(body) < at:
        raise UndecodableFrame(f"invalid message: expected {at} bytes or more, got {len(body)}")
    kind, shard, head_bytes = struct.unpack_from("<BII", body)
    if kind >= len(_KINDS) or at + head_bytes > len(body):
        raise UndecodableFrame(f"invalid message: kind {kind}, head of {head_bytes} of {len(body)} bytes")
    try:
        head = _DECODERS[kind].decode(body[at : at + head_bytes])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UndecodableFrame(f"invalid message of kind {_KINDS[kind].__name__}: {error}") from None
    rest = body[at + head_bytes :]
    if isinstance(head, RecordsHead):
        if not 0 <= head.entries_bytes <= len(rest):
            raise UndecodableFrame(f"invalid records: {head.entries_bytes} bytes of entries in {len(rest)}")
        stored = StoredData(bytes(rest[: head.entries_bytes]), bytes(rest[head.entries_bytes :]))
        return shard, (Fetched if isinstance(head, FetchedHead) else Records)(
            head.generation,
            head.log,
            head.first,
            head.end,
            head.last_generation,
            head.names_first,
            head.names,
            stored,
            head.begins_segment,
        )
    if rest:
        raise UndecodableFrame(f"invalid message of kind {_KINDS[kind].__name__}: {len(rest)} bytes too many")
    return shard, head

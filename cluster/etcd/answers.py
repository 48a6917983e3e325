"""What etcd may answer through its JSON gateway: whole numbers as texts, bytes in base64, zeros and empty lists left
out. Nothing else is believed."""

from typing import Annotated, TypeVar

import msgspec

from timestone_cluster.errors import EtcdUnavailable

T = TypeVar("T")


class Anything(msgspec.Struct):
    """An answer of which nothing is used."""


class Header(msgspec.Struct):
    """What all answers begin with."""

    revision: int


class Pair(msgspec.Struct):
    """A key with its value."""

    key: bytes
    mod_revision: int
    create_revision: int = 0
    value: bytes = b""


class Found(msgspec.Struct):
    """Answer to a read inside a transaction."""

    kvs: list[Pair] = []


class Range(msgspec.Struct):
    """Answer to a read."""

    header: Header
    kvs: list[Pair] = []


class Part(msgspec.Struct):
    """Answer to one operation of a transaction."""

    response_range: Found = msgspec.field(default_factory=Found)


class Transaction(msgspec.Struct):
    """Answer to a transaction."""

    responses: Annotated[list[Part], msgspec.Meta(min_length=1)]
    succeeded: bool = False


class Lease(msgspec.Struct):
    """Answer to the grant of a lease."""

    ID: int


class TimeToLive(msgspec.Struct):
    """Rest of a lease, seconds."""

    TTL: int = 0


class KeptAlive(msgspec.Struct):
    """Answer to a keep-alive."""

    result: TimeToLive


class Token(msgspec.Struct):
    """Answer to a login."""

    token: str


class Refusal(msgspec.Struct):
    """Why etcd refuses a call."""

    message: str = ""


class Event(msgspec.Struct):
    """A change that a watch reports."""

    kv: Pair
    type: str = "PUT"


class WatchResult(msgspec.Struct):
    """News of a watch."""

    events: list[Event] = []
    canceled: bool = False
    compact_revision: int = 0


class Watched(msgspec.Struct):
    """A line of a watch."""

    result: WatchResult


def decoded(answer: bytes, kind: type[T]) -> T:
    """Return an answer. Raises EtcdUnavailable for any other one: also for an error, which has none of the fields."""
    try:
        return msgspec.json.decode(answer, type=kind, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        shown = answer[:200].decode(errors="replace") if kind is not Token else "a login"
        raise EtcdUnavailable(f"invalid answer: {error}, got {shown!r}") from None

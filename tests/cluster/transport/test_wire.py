"""Messages between nodes as bytes."""

import asyncio
import random
import struct

import pytest

from timestone_cluster.errors import UndecodableFrame
from timestone_cluster.frames import (
    Committed,
    Diverged,
    Fenced,
    Fetch,
    Fetched,
    Follow,
    Held,
    Records,
    Reset,
    Started,
)
from timestone_cluster.transport.wire import (
    MESSAGE_BYTES,
    Append,
    Appended,
    Beats,
    Describe,
    Described,
    Forwarded,
    Hello,
    Letter,
    LogState,
    Message,
    StoredData,
    decoded,
    encoded,
    read_message,
)

QUESTION = Follow(3, "telemetry-0", 10, 2, 4)
MESSAGES: list[Message] = [
    Hello("cluster", "node"),
    Fenced(7),
    QUESTION,
    Held(3, "telemetry-0", 2**40),
    Started(3, QUESTION),
    Diverged(3, QUESTION, 2, 9, 4),
    Reset(3, QUESTION, 5),
    Committed(3, "telemetry-0", 9, 8, 4),
    Records(3, "telemetry-0", 10, 12, 2, 4, ("a/ü", "b"), StoredData(b"e" * 64, b"data")),
    Fetch(3, "telemetry-0", 10, 12, 0),
    Fetched(3, "telemetry-0", 10, 12, 2, 4, ("a/ü", "b"), StoredData(b"e" * 64, b"data")),
    Append(1, "telemetry", ["t"], [b"payload"]),
    Appended(1, -1, "why", is_unknown=True),
    Appended(2, -1, "why", is_refused=True, refusal=("StorageFull", "/data/a-0", 2**40, 9)),
    Forwarded(1, -1, "why", is_full=True, refusal=("QueueFull", "a-0", 2**40, 9)),
    Describe(1),
    Beats((0, 7), (3, 2**40)),
    Described(1, (LogState(0, "telemetry", 4, 12, 9, 2, 3, is_damaged=False, is_in_sync=True),)),
    Letter(b"{}"),
]


def body(message: Message, shard: int = 0) -> bytes:
    return b"".join(encoded(message, shard))[4:]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_is_the_same_when_it_was_encoded_and_decoded(message: Message) -> None:
    assert decoded(body(message, 9)) == (9, message)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_cut_or_changed_message_is_refused_or_is_another_valid_one(message: Message) -> None:
    rng, whole = random.Random("wire"), body(message)
    for size in range(len(whole)):
        if isinstance(message, Records) and size >= len(whole) - 4:
            continue  # fewer bytes of records, which the checksums of the entries tell
        with pytest.raises(UndecodableFrame):
            decoded(whole[:size])
    for _ in range(300):
        changed = bytearray(whole)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        try:
            decoded(bytes(changed))
        except UndecodableFrame:
            pass


@pytest.mark.parametrize("size", [0, 8, MESSAGE_BYTES + 1, 2**32 - 1])
def test_message_of_an_absurd_size_is_refused_before_it_is_read(size: int) -> None:
    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(struct.pack("<I", size))
        await read_message(reader)

    with pytest.raises(UndecodableFrame, match="invalid message"):
        asyncio.run(read())

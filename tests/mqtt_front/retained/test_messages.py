"""One message a topic, found by filter, in the order of offsets."""

from mqtt_front.retained.messages import RetainedMessage, RetainedMessages
from timestone.record import FLAG_RETAIN
from timestone.store import Store


def message(offset: int, topic: str, payload: bytes = b"x", block: bytes = b"") -> RetainedMessage:
    return RetainedMessage(offset, 1000 + offset, topic, FLAG_RETAIN | 2, block, payload)


def test_later_message_of_a_topic_replaces_the_earlier_one(store: Store) -> None:
    messages = RetainedMessages(store.log("mqtt"))
    for one in (message(1, "a"), message(2, "b"), message(3, "a", b"new")):
        messages.put(one)
    assert len(messages) == 2 and messages.sizes.total == 2 + len(b"xnew")
    assert messages.get("a") == message(3, "a", b"new") and 1 not in messages._by_offset
    assert messages.offsets(["#", "a"], 0, 10) == [2, 3]
    assert messages.offsets(["#"], 3, 10) == [3] and messages.offsets(["#"], 0, 3) == [2]
    assert messages.remove("a") and not messages.remove("a")
    assert messages.sizes.total == 2 and not messages.may_match(["a"])


def test_batch_equals_a_read_of_the_log_without_removed_messages(store: Store) -> None:
    messages = RetainedMessages(store.log("mqtt"))
    block = bytes.fromhex("00 0400 01000000 756e6974 43")
    for one in (message(4, "a", b"1"), message(7, "b", b"22", block), message(9, "c", b"333")):
        messages.put(one)
    messages.remove("a")
    batch = messages.batch([4, 7, 9], 100)
    assert batch.next_offset == 100
    assert [(one.offset, one.topic, one.payload, one.timestamp_us, one.flags) for one in batch] == [
        (7, "b", b"22", 1007, 3), (9, "c", b"333", 1009, 3),
    ]  # fmt: skip
    assert batch[0].headers == (("unit", b"C"),) and batch[1].headers == ()


def test_batch_is_bounded_for_one_step(store: Store) -> None:
    messages = RetainedMessages(store.log("mqtt"))
    for number in range(4):
        messages.put(message(number, str(number), bytes(100_000)))
    assert [messages.batch(range(first, 4), 9).next_offset for first in (0, 2, 3)] == [1, 3, 9]

"""Errors of a leader are the same at another node, and one without a name there is none."""

import errno
from pathlib import Path

import msgspec
import pytest

from timestone.errors import LogFailed, QueueFull, RecordTooLarge, StorageFull, TopicLimit
from timestone_cluster.transport.refusals import Refusal, error_of, refusal_of


@pytest.mark.parametrize(
    "error",
    [
        StorageFull(Path("/data/a-0"), 2**40, 9),
        QueueFull("a-0", 2**40, 9),
        TopicLimit("a-0", 7, "bytes of topic names (topic_bytes)"),
        OSError(errno.ENOSPC, "No space left on device", "/data/a-0"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_is_the_same_when_it_was_sent(error: Exception) -> None:
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(refusal_of(error)), type=Refusal)
    found = error_of(sent, str(error))
    assert (type(found), str(found)) == (type(error), str(error))
    assert vars(found) == vars(error)
    assert getattr(found, "errno", None) == getattr(error, "errno", None)


@pytest.mark.parametrize("error", [RecordTooLarge(2, 1), LogFailed(Path("a"), OSError(5)), ValueError("x")])
def test_error_without_a_name_is_sent_by_its_words_alone(error: Exception) -> None:
    assert refusal_of(error) == ()


@pytest.mark.parametrize(
    "refusal", [(), ("Later", 1), ("StorageFull", "a"), ("QueueFull", 1, 2, 3), ("OSError", "x")]
)
def test_refusal_of_another_form_is_no_error(refusal: Refusal) -> None:
    assert error_of(refusal, "why") is None

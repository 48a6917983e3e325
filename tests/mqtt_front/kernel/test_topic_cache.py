"""A topic cache finds exactly the topics that were added."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.kernel.topic_cache import TopicCache
from tests.support.mqtt_kernels import NATIVE, each_kernel

New = Callable[[], Any]


@pytest.fixture(params=each_kernel("TopicCache"), scope="session")
def new(request: pytest.FixtureRequest) -> New:
    made: New = request.param
    return made


def test_topic_keeps_its_code_among_any_number_of_topics(new: New) -> None:
    topics, names = new(), [b"building/%d/temperature" % number for number in range(5000)]
    for number, name in enumerate(names):
        topics.add(name, number << 20)
    assert len(topics) == len(names)
    assert [topics.get(name, -1) for name in names] == [number << 20 for number in range(5000)]
    assert topics.get(b"building/5000/temperature", -7) == -7


def test_topic_added_again_gets_its_new_code(new: New) -> None:
    topics = new()
    topics.add(b"a", 1)
    topics.add(b"a", (1 << 63) - 1)
    assert (len(topics), topics.get(b"a", -1)) == (1, (1 << 63) - 1)


def test_topics_are_distinguished_by_end_length_and_zeros(new: New) -> None:
    topics = new()
    names = [
        b"",
        b"\0",
        b"\0\0",
        b"a" * 15,
        b"a" * 16,
        b"a" * 17,
        b"a" * 16 + b"\0",
        b"a" * 33,
        b"a" * 32 + b"b",
    ]
    for number, name in enumerate(names):
        topics.add(name, number)
    assert [topics.get(name, -1) for name in names] == list(range(len(names)))


def test_invalid_code_is_refused(new: New) -> None:
    topics = new()
    with pytest.raises(ValueError, match="expected that of an accepted topic, got -1"):
        topics.add(b"a", -1)
    with pytest.raises(TypeError):
        topics.add(b"a", "1")
    assert len(topics) == 0


@pytest.mark.skipif(NATIVE is None, reason="the compiled kernel was not built: make install")
@given(
    st.lists(st.tuples(st.binary(max_size=40), st.integers(0, (1 << 63) - 1)), max_size=60),
    st.lists(st.binary()),
)
def test_twins_have_the_same_content(added: list[tuple[bytes, int]], asked: list[bytes]) -> None:
    pure, native = TopicCache(), NATIVE.TopicCache()
    for topic, code in added:
        pure.add(topic, code)
        native.add(topic, code)
    assert len(pure) == len(native)
    for topic in [*asked, *dict(added)]:
        assert pure.get(topic, -1) == native.get(topic, -1)

"""Topic aliases: outgoing ones (trap 28) for the first topics and for frequent ones, within the client's maximum, and
never before the client knows them; inbound ones."""

import pytest

from mqtt_front.codec import packets
from mqtt_front.codec.packets import Publish
from mqtt_front.codec.properties import Properties
from mqtt_front.errors import ProtocolViolation
from mqtt_front.protocol.topic_aliases import NO_TOPIC, InboundAliases, OutgoingAliases
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server


def test_first_topics_get_half_of_the_aliases_at_once() -> None:
    aliases = OutgoingAliases(3)
    for head, number in ((b"\0\4aaaa", b"\x23\0\1"), (b"\0\4bbbb", b"\x23\0\2")):
        assert aliases.tells(head) and aliases.of(head) == (head, number) and aliases.tells(head)
        assert aliases.sent(head) and aliases.of(head) == (NO_TOPIC, number) and not aliases.tells(head)
    assert not aliases.tells(b"\0\4cccc") and aliases.of(b"\0\4cccc") == (b"\0\4cccc", b"")
    assert not OutgoingAliases(3).tells(b"\0\3abc"), "shorter than its number"


def half_given(maximum: int) -> OutgoingAliases:
    """Where only topics that come often still get a number."""
    aliases = OutgoingAliases(maximum)
    for number in range(maximum // 2):
        aliases.of(b"\0\4%04d" % number)
        aliases.sent(b"\0\4%04d" % number)
    return aliases


def test_frequent_topic_gets_an_alias_and_is_then_sent_without_its_name() -> None:
    aliases, head = half_given(4), b"\0\4aaaa"
    assert [aliases.sent(head) for _ in range(5)] == [False, False, False, True, True]
    assert aliases.of(head) == (NO_TOPIC, b"\x23\0\3")
    assert aliases.sent(b"\0\4bbbb", 100) and aliases.of(b"\0\4bbbb") == (b"\0\4bbbb", b"\x23\0\4")
    assert not aliases.sent(b"\0\4cccc", 100) and aliases.of(b"\0\4cccc") == (b"\0\4cccc", b"")
    assert not any(aliases.sent(b"\0\3abc") for _ in range(100)), "shorter than its number"
    assert not aliases.settled and aliases.sent(b"\0\4bbbb") and aliases.settled


def test_candidates_for_aliases_are_bounded() -> None:
    aliases = half_given(10)
    for number in range(20_000):
        assert not aliases.sent(b"%08d" % number)
    assert len(aliases._counts) <= 4096


@pytest.mark.parametrize("burst", [True, False], ids=["in one batch", "one by one"])
def test_topic_name_is_sent_once(server: MqttServer, burst: bool) -> None:
    """As the suite of the Paho project asks for: the first delivery has both, the others have no name."""
    topic = f"alias/once/{burst}"
    with RawClient(server.address, 5) as reader, RawClient(server.address, 5) as publisher:
        reader.connect("reader", properties=Properties(topic_alias_maximum=1))
        reader.subscribe(topic)
        publisher.connect("publisher")
        if burst:
            publisher.send(*[Publish(topic, b"x", 1, packet_id=number) for number in range(1, 4)])
        else:
            for _ in range(3):
                publisher.publish(topic)
        received = reader.receive(3)
        assert [(one.topic, one.properties.topic_alias) for one in received] == [(topic, 1), ("", 1), ("", 1)]


def named(received: list[Publish], maximum: int) -> tuple[list[str], int]:
    """The topics that the aliases stand for, and how many came as a number alone."""
    known: dict[int, str] = {}
    topics, short = [], 0
    for one in received:
        alias = one.properties.topic_alias
        if alias is not None:
            assert 1 <= alias <= maximum
            if one.topic:
                known[alias] = one.topic
            else:
                short += 1
        assert one.topic or alias in known, "a number that was never told"
        topics.append(one.topic or known[alias or 0])
    return topics, short


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "with properties"])
@pytest.mark.parametrize("replayed", [False, True], ids=["live", "replayed"])
def test_topic_names_are_sent_once_within_the_alias_maximum(
    server: MqttServer, plain: bool, replayed: bool
) -> None:
    base = f"aliased/{plain}/{replayed}"
    topics = [f"{base}/{number % 5}" for number in range(100)]
    asked = f"$stream/mqtt/@earliest/{base}/+" if replayed else f"{base}/+"
    own = Properties() if plain else Properties(user_properties=(("a", "b"),))
    with RawClient(server.address, 5) as reader, RawClient(server.address, 5) as publisher:
        reader.connect("reader", properties=Properties(topic_alias_maximum=3))
        publisher.connect("publisher")
        if not replayed:
            reader.subscribe(asked)
        for number, topic in enumerate(topics):
            publisher.send(Publish(topic, b"%d" % number, 1, packet_id=1, properties=own))
            publisher.expect(packets.Puback)
        if replayed:
            reader.subscribe(asked)
        received = reader.receive(100)
        assert [int(one.payload) for one in received] == list(range(100))
        found, short = named(received, 3)
        assert found == topics and short >= 40
        assert all((one.properties.user_properties[:1] == (("a", "b"),)) is not plain for one in received)


def test_client_without_aliases_gets_none_and_a_new_connection_starts_empty(server: MqttServer) -> None:
    with RawClient(server.address, 5) as publisher:
        publisher.connect("publisher")
        for maximum in (None, 5, 5):
            with RawClient(server.address, 5) as reader:
                wanted = Properties(topic_alias_maximum=maximum, session_expiry_interval=100)
                reader.connect("again", clean=False, properties=wanted)
                reader.subscribe("alias/again")
                for number in range(20):
                    publisher.publish("alias/again", b"%d" % number)
                received = reader.receive(20)
                _, short = named(received, maximum or 0)
                assert (short > 0) is (maximum is not None)
                assert received[0].topic == "alias/again"


def test_delivery_that_fits_only_without_an_alias_is_sent_without(server: MqttServer) -> None:
    """The number makes the first packet larger: it must not cost the message, and a number that was not told is not
    used."""
    with RawClient(server.address, 5) as reader, RawClient(server.address, 5) as publisher:
        topic = "alias/fits"
        room = 2 + 2 + len(topic) + 2 + 1 + 50
        reader.connect("tight", properties=Properties(topic_alias_maximum=5, maximum_packet_size=room))
        reader.subscribe(topic)
        publisher.connect("publisher")
        for size in (
            50,
            50,
            50,
            50,
            50,
            51,
            50,
            47,
            50,
            57,
            58,
            50,
        ):  # 51 is too large with the name, 58 without
            publisher.publish(topic, bytes(size))
        received = reader.receive(10)
        reader.expect_silence()
        assert [len(one.payload) for one in received] == [50, 50, 50, 50, 50, 50, 47, 50, 57, 50]
        assert named(received, 5) == ([topic] * 10, 3)


def test_session_is_complete_when_the_first_packet_of_a_reconnect_tells_a_number(server: MqttServer) -> None:
    """New messages behind resent deliveries were lost, and acknowledged ones were delivered again."""
    asked = Properties(topic_alias_maximum=10, session_expiry_interval=100)
    with RawClient(server.address) as publisher:
        publisher.connect("publisher")
        with RawClient(server.address, 5) as reader:
            reader.connect("resumed", clean=False, properties=asked)
            reader.subscribe("resumed")
            for number in range(3):
                publisher.publish("resumed", b"%d" % number)
            received = reader.receive(3, acknowledge=False)
            reader.send(packets.Puback(received[1].packet_id))
            reader.expect_silence()
        for number in range(3, 6):
            publisher.publish("resumed", b"%d" % number)
        with RawClient(server.address, 5) as reader:
            reader.connect("resumed", clean=False, properties=asked)
            assert [one.payload for one in reader.receive(5)] == [b"0", b"2", b"3", b"4", b"5"]
            reader.expect_silence()


def test_server_may_use_fewer_aliases(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        mqtt_server(tmp_path_factory.mktemp("few"), delivery_alias_maximum=0) as server,
        RawClient(server.address, 5) as reader,
    ):
        reader.connect("reader", properties=Properties(topic_alias_maximum=10))
        reader.subscribe("topic")
        with RawClient(server.address) as publisher:
            publisher.connect("publisher")
            for _ in range(10):
                publisher.publish("topic", b"x")
        assert named(reader.receive(10), 0)[1] == 0


def test_alias_of_one_subscription_is_used_by_the_others(server: MqttServer) -> None:
    """A topic that got its number by coming often kept its name on the deliveries of the other subscription, for as
    long as the connection lasted; and on plain publishes when it was one with properties that told the number."""
    often = (Properties(), Properties(content_type="x"))
    with RawClient(server.address, 5) as reader, RawClient(server.address, 5) as publisher:
        reader.connect("reader", properties=Properties(topic_alias_maximum=4))
        reader.subscribe("alias/twice/+", "$share/group/alias/twice/+")
        publisher.connect("publisher")
        topics = ["alias/twice/1", "alias/twice/2"]  # which take the numbers for the first topics
        sent = [(topic, Properties()) for topic in topics]
        for number, told_by in enumerate(often, 3):
            topics.append(f"alias/twice/{number}")
            sent += [
                (topics[-1], Properties()),
                *[(topics[-1], told_by)] * 5,
                *[(topics[-1], Properties())] * 5,
            ]
        received = []
        for topic, properties in sent:
            publisher.send(Publish(topic, b"", 1, packet_id=1, properties=properties))
            publisher.expect(packets.Puback)
            received += reader.receive(2)
        found, _ = named(received, 4)
        assert found == [topic for topic, _ in sent for _ in range(2)]
        last = received[-10:] + received[-32:-22]
        assert not any(one.topic for one in last), "whichever subscription they are for"


def test_inbound_alias_stands_for_the_topic_that_set_it_last() -> None:
    aliases = InboundAliases(2)
    assert [aliases.resolve(b"a", 1), aliases.resolve(b"", 1)] == [b"a", b"a"]
    assert [aliases.resolve(b"b", 1), aliases.resolve(b"", 1)] == [b"b", b"b"]


@pytest.mark.parametrize(("topic", "alias"), [(b"", 2), (b"a", 3)])
def test_inbound_alias_that_was_never_set_or_is_too_large_violates_the_protocol(
    topic: bytes, alias: int
) -> None:
    with pytest.raises(ProtocolViolation, match=f"topic alias {alias}"):
        InboundAliases(2).resolve(topic, alias)

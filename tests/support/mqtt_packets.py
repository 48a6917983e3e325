"""MQTT packets for tests: hypothesis strategies for all of them, and ways to split bytes."""

from collections.abc import Iterator

from hypothesis import strategies as st

from mqtt_front.codec import packets
from mqtt_front.codec.packets import Packet
from mqtt_front.codec.properties import TABLE, Carrier, Properties
from mqtt_front.reasons import AUTH_REASONS, DISCONNECT_REASONS, PUBLISH_REASONS, RELEASE_REASONS

texts = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn", "Co")), max_size=12)
topics = texts.filter(lambda text: bool(text) and "+" not in text and "#" not in text)
packet_ids = st.integers(1, 65_535)
payloads = st.binary(max_size=200)

_VALUES = {
    "user_properties": st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    "correlation_data": st.binary(max_size=10),
    "authentication_data": st.binary(max_size=10),
    "response_topic": topics,
    "message_expiry_interval": st.integers(0, 2**32 - 1),
    "session_expiry_interval": st.integers(0, 2**32 - 1),
    "will_delay_interval": st.integers(0, 2**32 - 1),
    "maximum_packet_size": st.integers(1, 2**32 - 1),
    "receive_maximum": st.integers(1, 65_535),
    "server_keep_alive": st.integers(0, 65_535),
    "topic_alias_maximum": st.integers(0, 65_535),
    "topic_alias": st.integers(1, 65_535),
}
_TEXTS = {
    "content_type", "assigned_client_identifier", "authentication_method", "response_information",
    "server_reference", "reason_string",
}  # fmt: skip


def _value(name: str, carrier: Carrier) -> st.SearchStrategy[object]:
    if name == "subscription_identifiers":
        return st.lists(st.integers(1, 268_435_455), max_size=3 if carrier is Carrier.PUBLISH else 1).map(
            tuple
        )
    return texts if name in _TEXTS else _VALUES.get(name, st.integers(0, 1))


@st.composite
def properties(draw: st.DrawFn, carrier: Carrier) -> Properties:
    """Return any properties that `carrier` may have."""
    names = draw(st.lists(st.sampled_from([row.name for row in TABLE if row.carriers & carrier]), max_size=4))
    return Properties(**{name: draw(_value(name, carrier)) for name in set(names)})  # type: ignore[arg-type]


def _properties(level: int, carrier: Carrier) -> st.SearchStrategy[Properties]:
    return properties(carrier) if level == packets.MQTT_5 else st.just(Properties())


@st.composite
def _connects(draw: st.DrawFn, level: int) -> packets.Connect:
    clean = draw(st.booleans())
    client_id = draw(texts.filter(bool)) if level < 5 else draw(texts)
    will = draw(st.none() | _wills(level))
    user = draw(st.none() | texts)
    password = draw(st.none() | st.binary(max_size=8)) if user is not None or level == 5 else None
    wanted = draw(_properties(level, Carrier.CONNECT).filter(_authentication_is_whole))
    bridge = draw(st.booleans()) if level < 5 else False
    return packets.Connect(
        client_id, level, clean, draw(st.integers(0, 65_535)), will, user, password, wanted, bridge
    )


def _authentication_is_whole(wanted: Properties) -> bool:
    return wanted.authentication_data is None or wanted.authentication_method is not None


def _wills(level: int) -> st.SearchStrategy[packets.Will]:
    return st.builds(
        packets.Will, topics, payloads, st.integers(0, 2), st.booleans(), _properties(level, Carrier.WILL)
    )


@st.composite
def publishes(draw: st.DrawFn, level: int) -> packets.Publish:
    """Return a PUBLISH as a client may send it, without aliases."""
    qos = draw(st.integers(0, 2))
    wanted = draw(_properties(level, Carrier.PUBLISH))
    duplicate = draw(st.booleans()) and qos > 0
    packet_id = draw(packet_ids) if qos else 0
    return packets.Publish(
        draw(topics), draw(payloads), qos, draw(st.booleans()), duplicate, packet_id, wanted
    )


def _acknowledgements(
    kind: type[packets.Acknowledgement], level: int, carrier: Carrier, reasons: frozenset[int]
) -> st.SearchStrategy[packets.Acknowledgement]:
    if level < 5:
        return st.builds(kind, packet_ids)
    return st.builds(kind, packet_ids, st.sampled_from(sorted(reasons)), properties(carrier))


def _requests(level: int) -> st.SearchStrategy[packets.Request]:
    if level < 5:
        return st.builds(packets.Request, texts, st.integers(0, 2))
    return st.builds(
        packets.Request, texts, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2)
    )


def any_packet(level: int) -> st.SearchStrategy[Packet]:
    """Return any packet of either direction that is valid at a protocol level."""
    reasons = st.lists(st.integers(0, 255), max_size=4).map(tuple)
    endings: list[st.SearchStrategy[Packet]] = [st.just(packets.Disconnect())]
    if level == packets.MQTT_5:
        endings = [
            st.builds(
                packets.Disconnect,
                st.sampled_from(sorted(DISCONNECT_REASONS)),
                properties(Carrier.DISCONNECT),
            ),
            st.builds(packets.Auth, st.sampled_from(sorted(AUTH_REASONS)), properties(Carrier.AUTH)),
        ]
    return st.one_of(
        _connects(level),
        st.builds(packets.Connack, st.booleans(), st.integers(0, 255), _properties(level, Carrier.CONNACK)),
        publishes(level),
        _acknowledgements(packets.Puback, level, Carrier.PUBACK, PUBLISH_REASONS),
        _acknowledgements(packets.Pubrec, level, Carrier.PUBREC, PUBLISH_REASONS),
        _acknowledgements(packets.Pubrel, level, Carrier.PUBREL, RELEASE_REASONS),
        _acknowledgements(packets.Pubcomp, level, Carrier.PUBCOMP, RELEASE_REASONS),
        st.builds(
            packets.Subscribe, packet_ids, st.lists(_requests(level), min_size=1, max_size=3).map(tuple),
            _properties(level, Carrier.SUBSCRIBE),
        ),
        st.builds(packets.Suback, packet_ids, reasons, _properties(level, Carrier.SUBACK)),
        st.builds(
            packets.Unsubscribe, packet_ids, st.lists(texts, min_size=1, max_size=3).map(tuple),
            _properties(level, Carrier.UNSUBSCRIBE),
        ),
        st.builds(
            packets.Unsuback, packet_ids, reasons if level == 5 else st.just(()),
            _properties(level, Carrier.UNSUBACK),
        ),
        st.just(packets.Pingreq()),
        st.just(packets.Pingresp()),
        *endings,
    )  # fmt: skip


def whole(data: bytes) -> Iterator[bytes]:
    """Return all bytes at once."""
    yield data


def byte_by_byte(data: bytes) -> Iterator[bytes]:
    """Return each byte separately."""
    for at in range(len(data)):
        yield data[at : at + 1]


def in_halves(data: bytes) -> Iterator[bytes]:
    """Return two pieces, cut in the middle."""
    yield data[: len(data) // 2]
    yield data[len(data) // 2 :]


CUTS = {"whole": whole, "byte by byte": byte_by_byte, "in halves": in_halves}

"""Bytes for fuzzing MQTT: valid conversations of a client, randomly changed, and random bytes."""

import random
from collections.abc import Iterator

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import Connect, Packet, Publish, Request, Will
from mqtt_front.codec.properties import Properties

_ACKNOWLEDGEMENTS = (packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp)
_INTERESTING = (
    0x00,
    0x01,
    0x02,
    0x04,
    0x10,
    0x30,
    0x34,
    0x62,
    0x7F,
    0x80,
    0x81,
    0xC0,
    0xD0,
    0xE0,
    0xF0,
    0xFF,
)
_EVERYTHING = Properties(
    payload_format_indicator=1, message_expiry_interval=9, content_type="text", response_topic="r/t",
    correlation_data=b"\0\1", user_properties=(("a", "1"), ("a", "2")), topic_alias=3,
)  # fmt: skip


def valid_packets(level: int) -> list[bytes]:
    """Return packets of a client, each type in its plain and in its richest form."""
    five = level == 5
    rich = _EVERYTHING if five else Properties()
    will_properties = Properties(will_delay_interval=1, content_type="x", user_properties=(("k", "v"),))
    sent: list[Packet] = [
        Connect("client", level, True, 60),
        Connect("client", level, False, 0, Will("will/t", b"bye", 1, True, will_properties if five else Properties()),
                "user", b"secret", Properties(session_expiry_interval=60, receive_maximum=9, maximum_packet_size=999,
                topic_alias_maximum=4, user_properties=(("u", "v"),)) if five else Properties()),
        Publish("a/b", b"payload"),
        Publish("a/b", b"x" * 300, 1, packet_id=1),
        Publish("a/b", b"", 2, True, True, 2, rich),
        Publish("", b"aliased", 0, properties=Properties(topic_alias=3)) if five else Publish("/", b""),
        *(kind(number) for kind in _ACKNOWLEDGEMENTS for number in (1, 7)),
        packets.Subscribe(3, (Request("a/#", 2), Request("+/b", 1, True, True, 2) if five else Request("+/b", 1)),
                          Properties(subscription_identifiers=(5,)) if five else Properties()),
        packets.Unsubscribe(4, ("a/#", "nothing")),
        packets.Pingreq(),
        packets.Disconnect(),
    ]  # fmt: skip
    if five:
        told = Properties(reason_string="why", user_properties=(("k", "v"),))
        sent += [packets.Puback(1, 0x97, told), packets.Pubrel(2, 0x92), packets.Disconnect(4, told)]
        sent.append(
            packets.Auth(0x18, Properties(authentication_method="SCRAM-SHA-256", authentication_data=b"n,,"))
        )
    return [encode_packet(packet, level) for packet in sent]


def publishes(chance: random.Random, level: int) -> Iterator[bytes]:
    """Yield endless conversations of a client that mostly sends plain publishes; half of them are changed somewhere."""
    corpus = valid_packets(level)
    while True:
        data = bytearray()
        for _ in range(chance.randrange(1, 30)):
            qos = chance.choice((0, 0, 0, 1, 1, 1, 1, 2))
            topic = chance.choice(("a/b", "c", "a longer/topic/name", f"x/{chance.randrange(3)}"))
            payload = chance.randbytes(chance.choice((0, 1, 5, 50, 300, 1000)))
            packet_id, retain = chance.randrange(1, 40) if qos else 0, chance.random() < 0.03
            data += encode_packet(Publish(topic, payload, qos, retain, False, packet_id), level)
            if chance.random() < 0.05:
                data += encode_packet(packets.Pingreq(), level)
        for _ in range(chance.choice((0, 0, 1, 2))):
            _change(chance, data, corpus)
        yield corpus[0] + bytes(data)


def inputs(chance: random.Random, level: int) -> Iterator[bytes]:
    """Yield endless conversations: mostly a valid CONNECT, then packets some of which are changed."""
    corpus = valid_packets(level)
    hello = corpus[0]
    while True:
        roll = chance.random()
        if roll < 0.05:
            yield chance.randbytes(chance.randrange(40))
            continue
        parts = chance.choices(corpus, k=chance.randrange(1, 5))
        data = bytearray(b"".join(parts) if roll < 0.2 else hello + b"".join(parts))
        for _ in range(chance.randrange(4)):
            _change(chance, data, corpus)
        yield bytes(data)


def changed(chance: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """Return the bytes with a change at one or two places."""
    bytes_ = bytearray(data)
    for _ in range(chance.choice((1, 2))):
        _change(chance, bytes_, corpus)
    return bytes(bytes_)


def _change(chance: random.Random, data: bytearray, corpus: list[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(7)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = chance.choice(_INTERESTING)
    elif kind == 2:
        del data[at : at + chance.randrange(1, 5)]
    elif kind == 3:
        data[at:at] = chance.randbytes(chance.randrange(1, 5))
    elif kind == 4:
        data[at:at] = chance.choice(corpus)
    elif kind == 5:
        data[at:at] = data[at : at + chance.randrange(1, 20)]
    else:
        del data[at:]


def cuts(chance: random.Random, data: bytes) -> list[bytes]:
    """Return the same bytes in up to five pieces."""
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(5)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]

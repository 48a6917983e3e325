"""The user properties with the position of a record, byte for byte."""

import numpy as np

from mqtt_front.codec.fields import Fields, text
from mqtt_front.codec.frame import Form, Framed, Records
from mqtt_front.codec.packets import Publish
from mqtt_front.codec.properties import Carrier, Properties, read_block, write_block
from mqtt_front.delivery.position_properties import PositionProperties, frame_placed
from tests.support.mqtt_clients import parse


def test_position_properties_are_encoded_as_user_properties() -> None:
    users = (("log", "mqtt"), ("offset", "12"), ("timestamp", "1700000000000000"))
    assert PositionProperties("mqtt").of(12, 1_700_000_000_000_000) == write_block(
        Properties(user_properties=users)
    )


def test_partition_is_said_where_a_log_has_several() -> None:
    block = read_block(Fields(PositionProperties("a", 3).of(7, 0)), Carrier.PUBLISH)
    assert block.user_properties == (("log", "a"), ("partition", "3"), ("offset", "7"), ("timestamp", "0"))


def test_gap_property_comes_first() -> None:
    block = read_block(Fields(PositionProperties("a").of(7, 0, gap=5)), Carrier.PUBLISH)
    assert block.user_properties == (("stream-gap", "5"), ("log", "a"), ("offset", "7"), ("timestamp", "0"))


def records(*rows: tuple[int, int, int, bytes]) -> Records:
    """Of offset, topic id, flags and payload each."""
    payloads = [payload for *_, payload in rows]
    lengths = [len(payload) for payload in payloads]
    starts = np.cumsum([0, *lengths])[:-1]
    columns = [np.array([row[number] for row in rows]) for number in range(3)]
    return Records(
        b"".join(payloads), columns[0].astype(np.int64), columns[1].astype(np.uint32), columns[2].astype(np.uint16),
        starts.astype(np.int64), np.array(lengths, np.uint32),
    )  # fmt: skip


def framed(rows: Records, forms: dict[int, Form | None], **more: int) -> tuple[list[Publish], Framed]:
    options: dict[str, int] = {"ids": 100, "qos0_from": 0, "size_limit": 1 << 28, **more}
    times = np.full(len(rows.offsets), 1_700_000_000_000_000)
    found = frame_placed(
        rows,
        times,
        forms,
        range(1, 1 + options["ids"]),
        options["qos0_from"],
        options["size_limit"],
        PositionProperties("mqtt"),
    )
    packets, rest = parse(found.data, 5)
    assert rest == b"" and len(packets) == found.packet_count
    return [packet for packet in packets if isinstance(packet, Publish)], found


def test_run_is_framed_with_the_position_of_each_record() -> None:
    forms = {0: Form(text("a"), b"\x0b\x07", 1, False, 0), 1: None, 2: Form(text("b/c"), b"", 2, True, 0)}
    rows = records(
        (9, 0, 2, b"x"), (10, 1, 2, b"-"), (99, 2, 5, b"y" * 200), (100, 0, 0, b""), (101, 2, 2, b"z")
    )
    packets, found = framed(rows, forms)

    def place(offset: int) -> tuple[tuple[str, str], ...]:
        return (("log", "mqtt"), ("offset", str(offset)), ("timestamp", "1700000000000000"))

    seven = (7,)
    assert packets == [
        Publish(
            "a",
            b"x",
            1,
            False,
            False,
            1,
            Properties(user_properties=place(9), subscription_identifiers=seven),
        ),
        Publish("b/c", b"y" * 200, 2, True, False, 2, Properties(user_properties=place(99))),
        Publish(
            "a",
            b"",
            0,
            False,
            False,
            0,
            Properties(user_properties=place(100), subscription_identifiers=seven),
        ),
        Publish("b/c", b"z", 1, False, False, 3, Properties(user_properties=place(101))),
    ]
    assert (found.end, found.offsets, found.qos) == (5, [9, 99, 101], b"\1\2\1")


def test_run_stops_before_a_record_that_needs_the_general_path() -> None:
    forms: dict[int, Form | None] = {
        0: Form(text("a"), b"", 1, False, 0),
        1: Form(text("b"), b"", 1, False, 50),
    }
    rows = records((1, 0, 2, b"x"), (2, 0, 2, bytes(100)), (3, 1, 2, b"x"))
    size = len(framed(records((2, 0, 2, bytes(100))), forms)[1].data)
    assert framed(rows, forms)[1].end == 2, "below the first offset of its form"
    assert framed(rows, forms, size_limit=size)[1].end == 2
    assert framed(rows, forms, size_limit=size - 1)[1].end == 1, "too large"
    assert framed(rows, forms, ids=1)[1].end == 1, "no packet id is left"


def test_missed_messages_of_qos_0_are_skipped() -> None:
    rows = records((1, 0, 0, b"x"), (2, 0, 2, b"y"), (3, 0, 0, b"z"))
    packets, found = framed(rows, {0: Form(text("a"), b"", 1, False, 0)}, qos0_from=3)
    assert [packet.payload for packet in packets] == [b"y", b"z"] and found.end == 3

"""The user properties that say where a record is, byte for byte."""

from mqtt_front.codec.fields import Fields
from mqtt_front.codec.properties import Carrier, Properties, read_block, write_block
from mqtt_front.places import Places


def test_they_are_encoded_as_any_user_properties() -> None:
    users = (("log", "mqtt"), ("offset", "12"), ("timestamp", "1700000000000000"))
    assert Places("mqtt").of(12, 1_700_000_000_000_000) == write_block(Properties(user_properties=users))


def test_a_gap_stands_in_front() -> None:
    block = read_block(Fields(Places("a").of(7, 0, gap=5)), Carrier.PUBLISH)
    assert block.user_properties == (("stream-gap", "5"), ("log", "a"), ("offset", "7"), ("timestamp", "0"))

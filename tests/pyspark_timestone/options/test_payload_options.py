"""The options about payloads."""

import pytest

from pyspark_timestone.errors import InvalidOption
from tests.support.payloads import options_of


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"payload": "json"}, "payload=json needs payloadSchema"),
        ({"payload": "protobuf", "payloadSchema": "x"}, "payload=protobuf needs payloadMessage"),
        ({"payloadSchema": "x int"}, "payloadSchema means nothing without payload"),
        ({"payload": "json", "payloadSchema": "x", "badRecords": "drop"}, "badRecords is fail or null or"),
        ({"payload": "json", "payloadSchema": "x", "badRecords": "dlq"}, "belong together"),
        ({"payload": "json", "payloadSchema": "x", "dlqPath": "/x"}, "belong together"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_payload_options_are_refused_when_they_do_not_fit(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        options_of(**given)

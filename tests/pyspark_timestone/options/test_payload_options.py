"""The options about payloads."""

import pytest

from pyspark_timestone.errors import InvalidOption
from tests.support.payloads import options_of


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"payload": "json"}, "invalid payloadSchema: expected the schema for payload=json, got none"),
        (
            {"payload": "protobuf", "payloadSchema": "x"},
            "invalid payloadMessage: expected the full name of a message, got none",
        ),
        ({"payloadSchema": "x int"}, "invalid payloadSchema: expected payload .* beside it, got none"),
        (
            {"payload": "json", "payloadSchema": "x", "badRecords": "drop"},
            "invalid badRecords: expected fail or null or column or dlq, got",
        ),
        (
            {"payload": "json", "payloadSchema": "x", "badRecords": "dlq"},
            "invalid dlqPath: expected the folder for",
        ),
        (
            {"payload": "json", "payloadSchema": "x", "dlqPath": "/x"},
            "expected badRecords=dlq beside it, got fail",
        ),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_payload_options_are_refused_when_they_do_not_fit(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        options_of(**given)

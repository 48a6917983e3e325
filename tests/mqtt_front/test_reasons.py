"""Reason codes and their equivalents for MQTT 3 clients."""

import pytest

from mqtt_front.reasons import (
    AUTH_REASONS,
    DISCONNECT_REASONS,
    PUBLISH_REASONS,
    RELEASE_REASONS,
    Reason,
    connack_code_3,
)


def test_reason_codes_are_errors_from_0x80_on() -> None:
    assert [reason for reason in Reason if reason.is_error] == [reason for reason in Reason if reason >= 0x80]


def test_every_reason_code_of_a_packet_exists() -> None:
    known = {int(reason) for reason in Reason}
    assert known >= AUTH_REASONS | DISCONNECT_REASONS | PUBLISH_REASONS | RELEASE_REASONS


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.SUCCESS, 0),
        (Reason.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (Reason.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (Reason.QUOTA_EXCEEDED, 3),
        (Reason.BAD_USER_NAME_OR_PASSWORD, 4),
        (Reason.NOT_AUTHORIZED, 5),
        (Reason.MALFORMED_PACKET, None),
        (Reason.PROTOCOL_ERROR, None),
    ],
)
def test_connack_of_mqtt_3_has_separate_codes(reason: Reason, code: int | None) -> None:
    assert connack_code_3(reason) == code

"""Both protocol errors carry the reason to answer with."""

from mqtt_front.errors import MalformedPacket, MqttError, ProtocolViolation
from mqtt_front.reasons import Reason


def test_each_error_has_its_reason_unless_told_another() -> None:
    assert MalformedPacket("x").reason is Reason.MALFORMED_PACKET
    assert ProtocolViolation("x").reason is Reason.PROTOCOL_ERROR
    assert ProtocolViolation("x", Reason.PACKET_TOO_LARGE).reason is Reason.PACKET_TOO_LARGE
    assert issubclass(MalformedPacket, MqttError) and issubclass(ProtocolViolation, MqttError)

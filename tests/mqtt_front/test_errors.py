"""Both protocol errors carry the reason code to answer with."""

from mqtt_front.errors import MalformedPacket, MqttError, ProtocolViolation
from mqtt_front.reasons import Reason


def test_each_error_has_a_default_reason_code() -> None:
    assert MalformedPacket("x").reason is Reason.MALFORMED_PACKET
    assert ProtocolViolation("x").reason is Reason.PROTOCOL_ERROR
    assert ProtocolViolation("x", Reason.PACKET_TOO_LARGE).reason is Reason.PACKET_TOO_LARGE
    assert issubclass(MalformedPacket, MqttError) and issubclass(ProtocolViolation, MqttError)

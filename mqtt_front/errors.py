"""Errors of protocol code. Both carry the reason code of the answer; no other exception leaves protocol code."""

from typing import ClassVar

from mqtt_front.reasons import Reason


class MqttError(Exception):
    """Base class: the client violated the protocol and the connection ends. Never raised itself.

    reason: reason code for MQTT 5 in CONNACK or DISCONNECT; older clients are disconnected without one, except for a
    refused CONNECT. The message is for the log of the server and never contains payloads or secrets. limit: name of
    the setting that was exceeded, if any; it is counted."""

    usual_reason: ClassVar[Reason]

    def __init__(self, message: str, reason: Reason | None = None, limit: str | None = None) -> None:
        super().__init__(message)
        self.reason = self.usual_reason if reason is None else reason
        self.limit = limit


class MalformedPacket(MqttError):
    """Bytes that are not a valid MQTT packet."""

    usual_reason = Reason.MALFORMED_PACKET


class ProtocolViolation(MqttError):
    """A well-formed packet that is not permitted, not permitted now, or not permitted for this client."""

    usual_reason = Reason.PROTOCOL_ERROR

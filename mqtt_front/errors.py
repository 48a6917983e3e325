"""Errors of protocol code. Both carry the reason code of the answer; no other exception leaves protocol code."""

from mqtt_front.reasons import Reason


class MqttError(Exception):
    """Base class: the client violated the protocol and the connection ends. Never raised itself.

    reason: reason code for MQTT 5 in CONNACK or DISCONNECT; older clients are disconnected without one, except for a
    refused CONNECT. The message is for the log of the server and never contains payloads or secrets. limit: name of
    the setting that was exceeded, if any; it is counted."""

    def __init__(self, message: str, reason: Reason, limit: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.limit = limit


class MalformedPacket(MqttError):
    """Bytes that are not a valid MQTT packet."""

    def __init__(
        self, message: str, reason: Reason = Reason.MALFORMED_PACKET, limit: str | None = None
    ) -> None:
        super().__init__(message, reason, limit)


class ProtocolViolation(MqttError):
    """A well-formed packet that is not permitted, not permitted now, or not permitted for this client."""

    def __init__(
        self, message: str, reason: Reason = Reason.PROTOCOL_ERROR, limit: str | None = None
    ) -> None:
        super().__init__(message, reason, limit)

"""The two errors that protocol code raises. Both carry the reason code to answer with; nothing else escapes
from it."""

from mqtt_front.reasons import Reason


class MqttError(Exception):
    """The base of both: the client broke the protocol, the connection ends. Never raised itself.

    `reason` is what a MQTT 5 client is told in CONNACK or DISCONNECT; older clients are closed without a
    word, except for a refused CONNECT. The message is for the server's log and never contains payloads or
    secrets. `limit` is the setting that was exceeded, if that is what happened: it is counted.
    """

    def __init__(self, message: str, reason: Reason, limit: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.limit = limit


class MalformedPacket(MqttError):
    """Bytes that are not an MQTT packet."""

    def __init__(
        self, message: str, reason: Reason = Reason.MALFORMED_PACKET, limit: str | None = None
    ) -> None:
        super().__init__(message, reason, limit)


class ProtocolViolation(MqttError):
    """A well-formed packet that may not be sent, or not now, or not by this client."""

    def __init__(
        self, message: str, reason: Reason = Reason.PROTOCOL_ERROR, limit: str | None = None
    ) -> None:
        super().__init__(message, reason, limit)

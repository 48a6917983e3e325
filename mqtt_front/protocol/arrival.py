"""Client id in the first packet of a connection, which decides where in a cluster the client is served."""

from mqtt_front.codec.decode import decode_packet, packet_end
from mqtt_front.codec.packets import MQTT_5, Connect, PacketType
from mqtt_front.errors import MqttError


def client_id_of(data: bytes, *, connect_bytes: int) -> str | None:
    """Return the client id in the CONNECT at the beginning of `data`; None while it is incomplete. connect_bytes: most
    that it may have. Raises ValueError for anything else."""
    if not data:
        return None
    try:
        if data[0] != PacketType.CONNECT << 4:
            raise ValueError(f"invalid first packet: expected CONNECT, got {data[:1].hex()}")
        found = packet_end(data, 0, len(data))
        if found is None:
            return None
        body, end = found
        if end - body > connect_bytes:
            raise ValueError(f"invalid CONNECT: expected up to {connect_bytes} bytes, got {end - body}")
        if end > len(data):
            return None
        packet = decode_packet(data[0], data[body:end], MQTT_5)
    except MqttError as error:
        raise ValueError(f"invalid CONNECT: {error}") from None
    assert isinstance(packet, Connect)
    return packet.client_id

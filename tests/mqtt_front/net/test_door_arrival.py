"""What passes an adapter at a door, until a front has the client."""

from typing import Any

from mqtt_front.net.door_arrival import DoorArrival
from mqtt_front.net.relay_adapter import RelayAdapter
from mqtt_front.net.stream_adapter import StreamAdapter
from tests.support.layered import FakeLink, FakeTransport
from timestone.fronts import Arrived


class Client:
    """A client at a door, as a node of a cluster has it."""

    def __init__(self) -> None:
        self.received: list[object] = []
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received.append(data)

    def eof_received(self) -> bool | None:
        self.received.append("eof")
        return None

    def connection_lost(self, error: Exception | None) -> None:
        self.received.append("lost")

    def pause_writing(self) -> None:
        self.received.append("pause")

    def resume_writing(self) -> None:
        self.received.append("resume")


class Layer(StreamAdapter):
    """An adapter that says goodbye."""

    def connection_made(self, transport: Any) -> None:
        self._lower = transport
        self._upper.connection_made(self)

    def write(self, data: bytes) -> None:
        assert self._lower is not None
        self._lower.write(data)

    def _say_goodbye(self) -> None:
        self.write(b"bye")


def arrived() -> tuple[Client, DoorArrival, FakeTransport, list[tuple[object, str]]]:
    client, refused = Client(), [(object(), "")][:0]
    arrival = DoorArrival(client, memoryview(bytearray(16)), lambda *one: refused.append(one))
    transport = FakeTransport()
    Layer(arrival, arrival).connection_made(transport)
    return client, arrival, transport, refused


def test_client_gets_what_the_adapter_decodes_and_what_happens_to_the_socket() -> None:
    client, arrival, transport, refused = arrived()
    arrival.receive(b"CONNECT")
    arrival.pause_writing()
    arrival.resume_writing()
    assert not arrival.eof_received()
    client.transport.write(b"CONNACK")
    client.transport.close()
    arrival.buffer_updated(3)
    arrival.connection_lost(None)
    assert client.received == [b"CONNECT", "pause", "resume", "eof", "lost"]
    assert transport.take() == b"CONNACKbye"
    arrival.turn_away("too late")
    assert refused == []


def test_client_is_closed_with_a_line_when_the_adapter_turns_it_away() -> None:
    _, arrival, transport, refused = arrived()
    arrival.turn_away("a text frame")
    assert refused == [(("192.0.2.1", 1234), "a text frame")]
    assert transport.is_closing()


def test_front_has_the_bytes_of_a_client_that_it_admits() -> None:
    client, _, _, _ = arrived()
    link = FakeLink()
    RelayAdapter(link, Arrived(0, ("192.0.2.9", 5), None)).connection_made(client.transport)
    assert link.transport.get_extra_info("peername") == ("192.0.2.9", 5)

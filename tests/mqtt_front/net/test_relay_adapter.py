"""Stream adapter of a client that has arrived at another node: bytes unchanged, facts of the other end."""

import weakref
from typing import Any

from mqtt_front.net.relay_adapter import RelayAdapter
from timestone.fronts import Arrived


class Upper:
    """Protocol above the adapter, with a buffer that it lends."""

    def __init__(self) -> None:
        self.buffer = bytearray(64)
        self.received = b""
        self.transport: Any = None
        self.lost = False
        self.awaited = "CONNECT"
        self.turned_away = ""

    def receive(self, data: bytes) -> None:
        self.received += data

    def turn_away(self, message: str) -> None:
        self.turned_away = message

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, size_hint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, count: int) -> None:
        self.received += bytes(self.buffer[:count])

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Link:
    """Transport of the link between two nodes; with TLS it cannot be half closed."""

    def __init__(self, *, tls: bool = False) -> None:
        self.tls, self.written, self.ends = tls, b"", [""][:0]

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        if self.tls:
            raise NotImplementedError
        self.ends.append("eof")

    def close(self) -> None:
        self.ends.append("close")

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.0.0.2", 7000), "socket": "a socket"}.get(name, default)


def adapted(link: Link, user: str | None = "device") -> tuple[RelayAdapter, Upper]:
    upper = Upper()
    adapter = RelayAdapter(upper, Arrived(0, ("192.0.2.1", 5000), user))
    adapter.connection_made(link)  # type: ignore[arg-type]
    return adapter, upper


def receive(adapter: RelayAdapter, data: bytes) -> None:
    adapter.get_buffer(-1)[: len(data)] = data
    adapter.buffer_updated(len(data))


def test_bytes_pass_unchanged_in_both_directions() -> None:
    link = Link()
    adapter, upper = adapted(link)
    receive(adapter, b"\x10\x00")
    upper.transport.write(b"\x20\x00")
    assert (upper.received, link.written) == (b"\x10\x00", b"\x20\x00")
    adapter.connection_lost(None)
    upper.transport.write(b"late")
    assert (upper.lost, link.written) == (True, b"\x20\x00")


def test_layer_of_a_door_passes_what_it_decodes_and_what_is_wrong() -> None:
    link = Link()
    adapter, upper = adapted(link)
    adapter.receive(b"\x10\x00")
    adapter.turn_away("a text frame")
    assert (upper.received, upper.turned_away) == (b"\x10\x00", "a text frame")
    adapter.close()
    adapter.receive(b"late")
    assert (upper.received, link.ends) == (b"\x10\x00", ["close"])


def test_client_has_the_address_and_the_certificate_of_its_door() -> None:
    _, upper = adapted(Link())
    assert upper.transport.get_extra_info("peername") == ("192.0.2.1", 5000)
    assert upper.transport.get_extra_info("certificate_name") == "device"
    assert upper.transport.get_extra_info("socket") == "a socket"
    assert adapted(Link(), None)[1].transport.get_extra_info("certificate_name") is None


def test_direction_of_the_server_is_closed_or_both_when_the_link_is_tls() -> None:
    for link, ends in ((Link(), ["eof"]), (Link(tls=True), ["close"])):
        adapter, upper = adapted(link)
        upper.transport.write_eof()
        assert link.ends == ends
        receive(adapter, b"late")
        assert upper.received == (b"late" if not link.tls else b""), "counted and discarded above"


def test_link_to_the_other_node_is_let_go_when_it_has_ended() -> None:
    link: Any = Link()
    adapter = RelayAdapter(Upper(), Arrived(0, ("10.0.0.7", 5000), "", 0, keep=link))
    kept = weakref.ref(link)
    adapter.connection_made(link)
    adapter.connection_lost(None)
    del link
    assert kept() is None

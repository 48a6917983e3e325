from mqtt_front.net.client_protocol import Link
from mqtt_front.net.stream_adapter import Arrival, Receiver
from mqtt_front.net.tls import TlsLayer
from mqtt_front.runtime.loop import Transport
from tests.support.layered import FakeLink, FakeTransport


def test_links_and_layers_stack_in_any_order() -> None:
    """Says it to the type checker; the layers' own tests say it to the machine."""

    def receiver(one: Receiver) -> None: ...
    def arrival(one: Arrival) -> None: ...
    def transport(one: Transport) -> None: ...
    def layer(one: TlsLayer) -> None:
        receiver(one)
        transport(one)

    def link(one: Link) -> None:
        receiver(one)
        arrival(one)

    receiver(FakeLink())
    arrival(FakeLink())
    transport(FakeTransport())
    for each in (layer, link):
        assert callable(each)

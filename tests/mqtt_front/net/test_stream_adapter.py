from mqtt_front.net.client_protocol import ClientProtocol
from mqtt_front.net.stream_adapter import Arrival, Receiver
from mqtt_front.net.tls import TlsAdapter
from mqtt_front.runtime.loop import Transport
from tests.support.layered import FakeLink, FakeTransport


def test_protocols_and_adapters_stack_in_any_order() -> None:
    """Checked by the type checker; the adapters' own tests check the behaviour."""

    def receiver(one: Receiver) -> None: ...
    def arrival(one: Arrival) -> None: ...
    def transport(one: Transport) -> None: ...
    def layer(one: TlsAdapter) -> None:
        receiver(one)
        transport(one)

    def link(one: ClientProtocol) -> None:
        receiver(one)
        arrival(one)

    receiver(FakeLink())
    arrival(FakeLink())
    transport(FakeTransport())
    for each in (layer, link):
        assert callable(each)

"""Which clients may connect, and how long a closing connection is read."""

from collections import Counter

from mqtt_front.errors import ProtocolViolation
from mqtt_front.net import connections as module
from mqtt_front.net.client_protocol import ClientProtocol
from mqtt_front.net.client_socket import Counts
from mqtt_front.net.connections import Connections
from mqtt_front.reasons import Reason
from mqtt_front.runtime.timer_wheel import TimerWheel
from mqtt_front.settings import MqttSettings
from tests.support.linked_client import Linked
from tests.support.manual_loop import ManualLoop
from timestone_access.token_bucket import BURST_S


def connections(**settings: int | bool | str) -> Connections:
    loop = ManualLoop()
    return Connections(MqttSettings(**settings), TimerWheel(loop), loop, Counts())  # type: ignore[arg-type]


def added(one: Connections) -> ClientProtocol:
    link = Linked().link
    one.add(link)
    return link


def refusal(link: ClientProtocol) -> tuple[Reason, str | None] | None:
    assert link.refusal is None or isinstance(link.refusal, ProtocolViolation)
    return None if link.refusal is None else (link.refusal.reason, link.refusal.limit)


def test_connect_is_refused_above_the_number_of_connections() -> None:
    full = connections(connection_count=2, connects_per_s=0)
    links = [added(full) for _ in range(3)]
    assert [refusal(link) for link in links] == [None, None, (Reason.QUOTA_EXCEEDED, "connection_count")]
    full.remove(links[0])
    full.remove(links[2])
    assert refusal(added(full)) is None and full.count == 2


def test_connect_is_refused_above_the_rate() -> None:
    busy = connections(connects_per_s=1)
    counted = Counter(refusal(added(busy)) for _ in range(100))
    assert counted == {None: BURST_S, (Reason.CONNECTION_RATE_EXCEEDED, "connects_per_s"): 100 - BURST_S}


def test_lingering_connection_does_not_count_and_the_number_of_them_is_bounded() -> None:
    many = connections(connects_per_s=0)
    links = [added(many) for _ in range(module._LINGERING_MAX + 1)]
    assert [many.closing(link, linger=True) for link in links] == [True] * module._LINGERING_MAX + [False]
    assert many.count == 1
    assert {link.allowed_ticks for link in links} == {11}, "five seconds, rounded up"
    assert not many.closing(links[0], linger=False)

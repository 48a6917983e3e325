"""Kill -9 at random moments while clients that reconnect by themselves receive messages at QoS 1 and 2.

The clients follow the protocol and also end connections themselves. In the end each message at QoS 2 was delivered once
to each plain subscription and once to each shared one; each at QoS 1 was delivered, and with DUP in every repetition.

    TIMESTONE_DELIVERY_KILLS=200 TIMESTONE_SEED=random pytest tests/crash/test_mqtt_qos2.py
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import timestone
from mqtt_front.codec import packets
from mqtt_front.codec.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Request
from mqtt_front.codec.properties import Properties
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.ports import reserved_port
from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0)]
KILLS = rounds(default=6, variable="TIMESTONE_DELIVERY_KILLS")
DRAIN_S = 60.0
WINDOW = 8
LASTING = Properties(session_expiry_interval=0xFFFFFFFF)


class Dropped(Exception):
    """The client ended its connection without DISCONNECT."""


class Participant(threading.Thread):
    """A client with a persistent session, which reconnects whenever its connection is lost."""

    def __init__(self, name: str, address: tuple[str, int], level: int, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.address = address
        self.level = level
        self.chance = random.Random(f"{seed}/{name}")
        self.drops = 0.003
        self.connects = 0
        self.stopping = False
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping:
                try:
                    with RawClient(self.address, self.level) as client:
                        self.serve(client)
                except (OSError, Dropped):
                    time.sleep(self.chance.uniform(0, 0.02))
        except BaseException as error:
            self.fault = error

    def serve(self, client: RawClient) -> None:
        properties = LASTING if self.level == 5 else Properties()
        client.send(packets.Connect(self.name, self.level, False, properties=properties))
        answer = client.next_packet()
        if answer is None:
            raise ConnectionError
        assert isinstance(answer, packets.Connack) and answer.reason == 0, answer
        assert answer.session_present or not self.connects, "the session is lost"
        self.connects += 1
        self.begin(client)
        while not self.stopping:
            try:
                packet = client.next_packet(self.chance.uniform(0.001, 0.02))
            except TimeoutError:
                self.pause(client)
                continue
            if packet is None:
                raise ConnectionError
            self.take(client, packet)
            if self.chance.random() < self.drops:
                raise Dropped

    def begin(self, client: RawClient) -> None:
        """After CONNACK: continue the unfinished exchanges."""

    def take(self, client: RawClient, packet: Packet) -> None:
        """Handle a packet."""

    def pause(self, client: RawClient) -> None:
        """Handle a time without packets."""


class Publisher(Participant):
    """Publishes numbers at QoS 1 and 2; each attempt at QoS 1 has a different payload."""

    def __init__(self, name: str, address: tuple[str, int], level: int, seed: int) -> None:
        super().__init__(name, address, level, seed)
        self.number = 0
        self.last = False
        self.done: list[tuple[int, int]] = []
        """QoS and number of the acknowledged publishes."""
        self._publishing: dict[int, tuple[int, int]] = {}
        self._releasing: dict[int, None] = {}
        self._packet_id = 0

    @property
    def idle(self) -> bool:
        return not self._publishing and not self._releasing

    def begin(self, client: RawClient) -> None:
        client.send(*[self._publish(one, again=True) for one in self._publishing])
        client.send(*map(Pubrel, self._releasing))

    def _publish(self, packet_id: int, *, again: bool = False) -> Publish:
        qos, number = self._publishing[packet_id]
        payload = f"{qos}:{self.name}:{number}" + (f":{self.connects}" if qos == 1 else "")
        return Publish(f"load/{number % 5}", payload.encode(), qos, False, again, packet_id)

    def pause(self, client: RawClient) -> None:
        while not self.last and len(self._publishing) + len(self._releasing) < WINDOW:
            self._packet_id = self._packet_id % 60_000 + 1
            self._publishing[self._packet_id] = (self.chance.choice((1, 2, 2)), self.number)
            self.number += 1
            client.send(self._publish(self._packet_id))

    def take(self, client: RawClient, packet: Packet) -> None:
        if isinstance(packet, Puback):
            self.done.append(self._publishing.pop(packet.packet_id))
        elif isinstance(packet, Pubrec):
            if packet.packet_id in self._publishing:
                self.done.append(self._publishing.pop(packet.packet_id))
                self._releasing[packet.packet_id] = None
            client.send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            self._releasing.pop(packet.packet_id, None)


class Subscriber(Participant):
    """Receives the messages of its subscription; sometimes answers late."""

    def __init__(self, name: str, address: tuple[str, int], level: int, seed: int, request: Request) -> None:
        super().__init__(name, address, level, seed)
        self.request = request
        self.subscribed = False
        self.received: list[bytes] = []
        self.faults: list[str] = []
        self._known: set[bytes] = set()
        self._held: dict[int, bytes] = {}
        self._answers: list[Packet] = []

    def begin(self, client: RawClient) -> None:
        self._answers.clear()
        if not self.subscribed:
            client.send(packets.Subscribe(1, (self.request,)))

    def pause(self, client: RawClient) -> None:
        answers, self._answers = self._answers, []
        client.send(*answers)

    def take(self, client: RawClient, packet: Packet) -> None:
        if isinstance(packet, packets.Suback):
            self.subscribed = True
        elif isinstance(packet, Publish) and packet.qos == 1:
            self._receive(packet)
            self._answers.append(Puback(packet.packet_id))
        elif isinstance(packet, Publish):
            held = self._held.setdefault(packet.packet_id, packet.payload)
            if held is packet.payload:
                self._receive(packet)
            elif held != packet.payload or not packet.duplicate:
                self.faults.append(f"{shown(packet)} under the id of {held!r}")
            self._answers.append(Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._held.pop(packet.packet_id, None)
            self._answers.append(Pubcomp(packet.packet_id))
        if self.chance.random() < 0.5:
            self.pause(client)

    def _receive(self, packet: Publish) -> None:
        if packet.payload in self._known and (packet.qos == 2 or not packet.duplicate):
            self.faults.append(f"again: {shown(packet)}")
        self._known.add(packet.payload)
        self.received.append(packet.payload)


def shown(packet: Publish) -> str:
    return f"{packet.payload!r} as {packet.packet_id}, DUP {packet.duplicate:d}"


def at(qos: int, payloads: Sequence[bytes]) -> list[bytes]:
    return [one for one in payloads if one[:1] == b"%d" % qos]


def test_messages_keep_the_promise_of_their_qos_when_the_server_is_killed(tmp_path: Path) -> None:
    seed = run_seed("qos2")
    chance = random.Random(seed)
    with reserved_port() as port, told_on_failure(TIMESTONE_SEED=seed, TIMESTONE_DELIVERY_KILLS=KILLS):
        address = ("127.0.0.1", port)
        plain = [
            Subscriber(f"plain-{level}-{qos}", address, level, seed, Request("load/#", qos))
            for level, qos in ((4, 2), (5, 2), (5, 1))
        ]
        groups = [
            [
                Subscriber(f"{prefix[1:6]}-{n}", address, 4 + n % 2, seed, Request(f"{prefix}/load/#", 2))
                for n in range(3)
            ]
            for prefix in ("$share/group", "$queue/work")
        ]
        subscribers = [*plain, *groups[0], *groups[1]]
        publishers = [Publisher(f"publisher-{level}", address, level, seed) for level in (4, 5)]
        everybody: list[Participant] = [*subscribers, *publishers]
        server = MqttProcess(tmp_path, listen=f"127.0.0.1:{port}")
        try:
            for subscriber in subscribers:
                subscriber.start()
            wait_for(lambda: all(one.subscribed for one in subscribers))
            for publisher in publishers:
                publisher.start()
            for _ in range(KILLS):
                time.sleep(chance.choice((0.02, 0.3, 1.5)) * chance.random())
                server.kill()
                assert [one.fault for one in everybody if one.fault] == []
                server = MqttProcess(tmp_path, listen=f"127.0.0.1:{port}")
            for publisher in publishers:
                publisher.last = True
            for each in everybody:
                each.drops = 0
            drain(tmp_path, publishers, plain, groups)
        finally:
            for each in everybody:
                each.stopping = True
            for each in everybody:
                each.join(DRAIN_S)
            server.kill()
        assert [one.fault for one in everybody if one.fault] == []
        check(tmp_path, publishers, plain, groups)


def stored(path: Path) -> list[bytes]:
    with timestone.view(path) as view:
        return [record.payload for record in view.log("mqtt").reader()]


def drain(
    path: Path, publishers: list[Publisher], plain: list[Subscriber], groups: list[list[Subscriber]]
) -> None:
    """Wait until every subscriber has its messages, or none arrive any more."""
    wait_for(lambda: all(one.idle for one in publishers), DRAIN_S)
    log = set(stored(path))
    deadline = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline:
        if all(log <= one._known for one in plain) and all(
            log <= set().union(*(one._known for one in group)) for group in groups
        ):
            break
        time.sleep(0.1)
    time.sleep(0.3)  # for unexpected messages


def check(
    path: Path, publishers: list[Publisher], plain: list[Subscriber], groups: list[list[Subscriber]]
) -> None:
    log = stored(path)
    print(f"{KILLS} kills, {len(log)} records")
    assert [one for one, times in Counter(log).items() if times > 1] == [], "twice in the log"
    for publisher in publishers:
        kept = {tuple(one.split(b":")[:3]) for one in log}
        wanted = {(b"%d" % qos, publisher.name.encode(), b"%d" % number) for qos, number in publisher.done}
        assert wanted <= kept, "acknowledged and not in the log"
    found: dict[str, object] = {}
    for one in [*plain, *groups[0], *groups[1]]:
        if one.faults:
            found[one.name] = one.faults[:5]
    for one in plain:
        if missing := set(log) - set(one.received):
            found[f"{one.name} misses"] = sorted(missing)[:5]
        if one.request.qos == 2 and at(2, one.received) != at(2, log):
            found[f"{one.name} has another order"] = len(at(2, one.received)), len(at(2, log))
    for group in groups:
        taken = Counter(payload for one in group for payload in one.received)
        if missing := set(log) - set(taken):
            found[f"{group[0].request.topic_filter} misses"] = len(missing), sorted(missing)[:5]
        if twice := [one for one in at(2, list(taken)) if taken[one] > 1]:
            found[f"{group[0].request.topic_filter} twice"] = len(twice), twice[:5]
    assert not found, "\n".join(f"{name}: {what}" for name, what in found.items())

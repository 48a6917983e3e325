"""Kill -9 at random moments while clients publish, share a queue, replay a log and keep retained values, all at QoS 2.

The clients follow the protocol and lose no state, the server loses everything that a kill takes. In the end each
message is in the log once, went to one member of the queue once, and was replayed once and in order.
"""

import random
import threading
import time
from pathlib import Path

import pytest

import timestone
from mqtt_front.codec import packets
from mqtt_front.codec.packets import Pubcomp, Publish, Pubrec, Pubrel, Request
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.seeds import rounds
from tests.support.waiting import wait_for

pytestmark = pytest.mark.crash
SETTLE_S = 60.0
KILLS = 4


class Participant(threading.Thread):
    """A client of MQTT 3.1.1 with a persistent session, which reconnects to the current server."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.server: tuple[str, int] | None = None
        self.client: RawClient | None = None
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            address = self.server
            if address is None:
                time.sleep(0.005)
                continue
            try:
                with RawClient(address) as self.client:
                    self.client.connect(self.name, clean=False)
                    self.go_on(self.client)
            except (OSError, AssertionError):
                if self.server == address:
                    self.server = None  # until the test gives the address of the next one

    def go_on(self, client: RawClient) -> None:
        """Run its part on each connection, until the connection ends."""

    @staticmethod
    def next(client: RawClient) -> packets.Packet:
        packet = client.next_packet(SETTLE_S)
        if packet is None:
            raise ConnectionError
        return packet


class Publisher(Participant):
    """Publishes numbers, each exactly once; every tenth is retained."""

    number = 0
    released = False
    """The current number is in the log; its packet id is still in use."""
    last = False

    def go_on(self, client: RawClient) -> None:
        again = True
        while not self.last or self.released:
            packet_id = 1 + self.number % 1000
            if not self.released:
                retained = self.number % 10 == 0
                topic = f"state/{self.number // 10 % 7}" if retained else f"load/{self.number % 3}"
                client.send(Publish(topic, b"%d" % self.number, 2, retained, again, packet_id))
                assert self.next(client) == Pubrec(packet_id)
                self.released = True
            again = False
            client.send(Pubrel(packet_id))
            assert self.next(client) == Pubcomp(packet_id)
            self.released = False
            self.number += 1
        self.stopping = True


class Consumer(Participant):
    """Receives the messages of its subscription, exactly once."""

    def __init__(self, name: str, topic_filter: str) -> None:
        super().__init__(name)
        self.topic_filter = topic_filter
        self.received: list[int] = []
        self._ids: set[int] = set()
        self.subscribed = False

    def go_on(self, client: RawClient) -> None:
        if not self.subscribed:
            client.send(packets.Subscribe(1, (Request(self.topic_filter, 2),)))
        while True:
            packet = self.next(client)
            if isinstance(packet, Publish):
                assert packet.qos == 2
                if packet.packet_id not in self._ids:
                    self._ids.add(packet.packet_id)
                    self.received.append(int(packet.payload))
                client.send(Pubrec(packet.packet_id))
            elif isinstance(packet, Pubrel):
                self._ids.discard(packet.packet_id)
                client.send(Pubcomp(packet.packet_id))
            elif isinstance(packet, packets.Suback):
                self.subscribed = True


def wait_for_more(publisher: Publisher, count: int) -> None:
    goal = publisher.number + count
    wait_for(lambda: publisher.number >= goal)


@pytest.mark.parametrize("seed", range(rounds(1, "TIMESTONE_CRASH_ROUNDS")))
def test_interrupted_operations_take_effect_once_after_a_kill(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    publisher = Publisher("publisher")
    members = [Consumer(f"member-{number}", "$queue/work/#") for number in range(3)]
    replay = Consumer("replay", "$stream/mqtt/@earliest/#")
    everybody: list[Participant] = [publisher, *members, replay]
    server = MqttProcess(tmp_path)
    for member in members:  # the queue exists before the first message
        member.server = server.address
        member.start()
    wait_for(lambda: all(member.subscribed for member in members))
    publisher.server = replay.server = server.address
    publisher.start()
    replay.start()
    for _ in range(KILLS):
        wait_for_more(publisher, rng.randint(3, 40))
        time.sleep(rng.uniform(0, 0.05))
        server.kill()
        server = MqttProcess(tmp_path)
        for one in everybody:
            one.server = server.address
    wait_for_more(publisher, 3)
    publisher.last = True
    publisher.join(SETTLE_S)
    assert not publisher.is_alive()
    count = publisher.number
    wait_for(lambda: sum(len(member.received) for member in members) >= count)
    wait_for(lambda: len(replay.received) >= count)
    time.sleep(0.2)  # for unexpected messages
    with RawClient(server.address) as late:
        late.connect("late")
        late.subscribe(Request("state/#", 0))
        states = {}
        for _ in range(min(7, -(-count // 10))):
            one_state = late.expect(Publish)
            states[one_state.topic] = int(one_state.payload)
        late.expect_silence()
    for one in everybody:
        one.stopping = True
        one.server = None
    server.kill()
    for one in everybody:
        one.join()
    with timestone.open(tmp_path) as store:
        stored = [int(record.payload) for record in store.log("mqtt").reader()]
    assert stored == list(range(count)), "in the log"
    shared = sorted(number for member in members for number in member.received)
    assert shared == stored, [sorted(set(stored) ^ set(shared))[:5], len(shared), len(set(shared))]
    assert replay.received == stored
    newest = {f"state/{number // 10 % 7}": number for number in range(0, count, 10)}
    assert states == newest
    assert count > KILLS

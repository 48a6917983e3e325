"""A client that publishes more than is taken takes turns, but only while others publish as well."""

import pytest

from mqtt_front.ingest.fair_share import FIRST_LOOK_S, LOOK_S, LOOKS, TURN_BYTES, TURN_S, FairShare
from tests.support.manual_loop import ManualLoop
from tests.support.publishing import Source as Client

CLIENT_BYTES = 1000
LEAST_PORTION = 100


class Crowd:
    def __init__(self, total_bytes: int = 1 << 30, client_bytes: int = CLIENT_BYTES) -> None:
        self.loop = ManualLoop()
        share_bytes_per_s = int(LEAST_PORTION / TURN_S)
        self.shares = FairShare(
            self.loop, total_bytes=total_bytes, client_bytes=client_bytes, share_bytes_per_s=share_bytes_per_s
        )

    def publish(self, *clients: Client, size_bytes: int = 10) -> None:
        """Each of them, and it is settled."""
        for client in clients:
            client.submitted_bytes += size_bytes
            self.shares.check(client, 0)
        self.shares.submitted(clients)
        for client in clients:
            client.submitted_bytes = 0
        self.shares.settled(0)

    def exceed(self, *clients: Client) -> None:
        """Each of them sends more than it may have on the way."""
        self.publish(*clients, size_bytes=CLIENT_BYTES + 1)

    def look(self, seconds: float = LOOK_S) -> None:
        self.loop.pass_time(seconds)

    def read(self, client: Client) -> None:
        """The client's portion comes, and is settled."""
        self.shares.submitted([client])
        self.shares.served(client)


def test_heavy_clients_alone_continue_when_half_is_settled() -> None:
    crowd, greedy = Crowd(), Client()
    for _ in range(5):
        greedy.submitted_bytes = CLIENT_BYTES + 1
        crowd.shares.check(greedy, 0)
        assert greedy.held()
        greedy.submitted_bytes = CLIENT_BYTES // 2 + 1
        crowd.shares.settled(0)
        assert greedy.held()
        greedy.submitted_bytes = CLIENT_BYTES // 2
        crowd.shares.settled(0)
        assert not greedy.held()
        crowd.look()
    assert greedy.portions == [0] * 5


def test_equal_heavy_clients_do_not_take_turns() -> None:
    crowd, greedy = Crowd(), [Client() for _ in range(10)]
    for _ in range(5):
        crowd.exceed(*greedy)
        crowd.look()
    assert {portion for client in greedy for portion in client.portions} == {0}


@pytest.mark.slow
def test_heavy_client_gets_one_portion_a_turn_beside_others() -> None:
    crowd, greedy, others = Crowd(), Client(), [Client() for _ in range(100_000)]
    crowd.exceed(greedy)
    crowd.publish(*others)
    crowd.look(FIRST_LOOK_S)
    greedy.portions.clear()
    for _ in range(10):
        assert not greedy.held()
        crowd.read(greedy)
        assert greedy.held()
        crowd.loop.pass_time(TURN_S)
    assert greedy.portions == [LEAST_PORTION] * 10
    assert not any(client.held() for client in others)


def test_portion_is_larger_when_fewer_clients_publish() -> None:
    crowd, greedy, others = Crowd(client_bytes=TURN_BYTES), Client(), [Client() for _ in range(9)]
    crowd.publish(greedy, size_bytes=TURN_BYTES + 1)
    crowd.publish(*others)
    crowd.look(FIRST_LOOK_S)
    crowd.read(greedy)
    crowd.loop.pass_time(TURN_S)
    assert greedy.portions[-1] == TURN_BYTES // 10


def test_portion_is_at_most_a_quarter_of_the_limit_of_a_client() -> None:
    crowd, greedy = Crowd(), Client()
    crowd.exceed(greedy)
    crowd.publish(Client())
    crowd.look(FIRST_LOOK_S)
    crowd.read(greedy)
    crowd.loop.pass_time(TURN_S)
    assert greedy.portions[-1] == CLIENT_BYTES // 4


def test_next_portion_is_not_read_before_the_last_is_settled() -> None:
    crowd, greedy, other = Crowd(), Client(), Client()
    crowd.exceed(greedy)
    crowd.publish(other)
    crowd.look(FIRST_LOOK_S)
    greedy.submitted_bytes = 1
    crowd.read(greedy)
    crowd.loop.pass_time(5 * TURN_S)
    assert greedy.held()
    greedy.submitted_bytes = 0
    crowd.shares.settled(0)
    assert greedy.held(), "it takes turns"
    crowd.loop.pass_time(TURN_S)
    assert not greedy.held()


@pytest.mark.slow
def test_many_heavy_clients_share_and_each_gets_its_turn() -> None:
    crowd, greedy, others = Crowd(), [Client() for _ in range(50)], [Client() for _ in range(50_000)]
    crowd.exceed(*greedy)
    crowd.publish(*others)
    crowd.look(FIRST_LOOK_S)
    for client in greedy:
        client.portions.clear()
    served = []
    for _ in range(10):
        # The client that waits longest is read from first.
        going = sorted(
            (client for client in greedy if not client.held()), key=lambda client: len(client.portions)
        )
        served.append(len(going))
        for client in going:
            crowd.read(client)
        crowd.loop.pass_time(TURN_S)
    assert max(served[1:]) == TURN_BYTES * 50 // 50_050 // LEAST_PORTION + 1
    assert (
        max(len(client.portions) for client in greedy) - min(len(client.portions) for client in greedy) <= 1
    )


def test_heavy_client_gets_its_full_rate_when_the_others_stop() -> None:
    crowd, greedy, other = Crowd(), Client(), Client()
    crowd.exceed(greedy)
    crowd.publish(other)
    crowd.look(FIRST_LOOK_S)
    crowd.read(greedy)
    crowd.loop.pass_time(TURN_S)
    crowd.read(greedy)
    greedy.submitted_bytes = 1  # so that it waits, and takes part in no turn, until the look
    crowd.look()
    assert greedy.portions[-1] == 0 and not greedy.held()
    crowd.exceed(greedy)
    assert greedy.portions[-1] == 0 and not greedy.held()


def test_new_light_client_is_protected_at_once() -> None:
    crowd, greedy = Crowd(), Client()
    crowd.exceed(greedy)
    crowd.look(FIRST_LOOK_S)
    crowd.exceed(greedy)
    assert greedy.portions == [0, 0]
    crowd.publish(Client())
    assert greedy.portions == [0, 0, LEAST_PORTION]
    crowd.exceed(greedy)
    crowd.loop.pass_time(TURN_S)
    assert greedy.portions == [0, 0, LEAST_PORTION, LEAST_PORTION]


def test_client_that_begins_to_flood_beside_others_takes_turns_at_once() -> None:
    crowd, greedy, others = Crowd(), Client(), [Client() for _ in range(100)]
    crowd.publish(*others)
    greedy.submitted_bytes = CLIENT_BYTES // 2 + 1
    crowd.shares.check(greedy, 0)
    assert greedy.held()
    greedy.submitted_bytes = 0
    crowd.shares.settled(0)
    assert greedy.held(), "it takes turns"
    crowd.loop.pass_time(TURN_S)
    assert greedy.portions == [LEAST_PORTION]


def test_client_alone_for_a_while_gets_its_full_limit() -> None:
    crowd, greedy = Crowd(), Client()
    crowd.publish(Client())
    crowd.loop.pass_time(LOOK_S)
    crowd.publish(greedy, size_bytes=CLIENT_BYTES // 4)
    greedy.submitted_bytes = CLIENT_BYTES
    crowd.shares.check(greedy, 0)
    assert not greedy.held()


def test_heavy_client_takes_no_turns_beside_nearly_heavy_ones() -> None:
    crowd, greedy, busy = Crowd(), Client(), Client()
    for number in range(20):
        if number == 3:  # by now the unsettled bytes of each client are known
            greedy.portions.clear()
        crowd.publish(busy, size_bytes=CLIENT_BYTES // 4)
        crowd.publish(busy)
        crowd.exceed(greedy)
        crowd.look(LOOK_S / 2)
    assert set(greedy.portions) == {0}


def test_clients_that_begin_to_flood_together_take_turns_until_the_first_evaluation() -> None:
    crowd, greedy = Crowd(), [Client() for _ in range(10)]
    crowd.publish(*greedy)
    crowd.exceed(*greedy)
    crowd.loop.pass_time(FIRST_LOOK_S)
    for _ in range(3):
        for client in greedy:
            client.portions.clear()
        crowd.exceed(*greedy)
        crowd.look()
    assert {portion for client in greedy for portion in client.portions} == {0}


def test_former_heavy_client_is_released_and_the_timer_stops() -> None:
    crowd, greedy, other = Crowd(), Client(), Client()
    crowd.exceed(greedy)
    crowd.publish(other)
    crowd.look(FIRST_LOOK_S)  # from here on, it sends nothing
    crowd.look()
    crowd.publish(greedy, other, size_bytes=LEAST_PORTION)
    assert not greedy.held()
    for _ in range(LOOKS):
        crowd.publish(greedy, other)
        crowd.look()
    assert not greedy.held() and not crowd.loop.timers


def test_light_clients_wait_above_the_total_bound_without_becoming_heavy() -> None:
    crowd, modest = Crowd(total_bytes=100), Client()
    modest.submitted_bytes = 60
    crowd.shares.check(modest, 101)
    assert modest.held() and not crowd.loop.timers
    crowd.shares.settled(51)
    assert modest.held()
    crowd.shares.settled(50)
    assert modest.portions == [0]

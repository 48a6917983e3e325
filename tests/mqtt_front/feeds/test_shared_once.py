"""A record at QoS 2 goes to one member of a shared subscription, once, also when homes of a cluster and what is
between them are lost."""

import random
from collections import Counter

import pytest

from tests.support.once_homes import Device, OnceHomes
from tests.support.seeds import rounds, run_seed, told_on_failure
from timestone.store import Store

RUNS = rounds(12, "TIMESTONE_ROUNDS")
STEPS = 1500
ACTS = {
    "publish": 3,
    "turn": 40,
    "commit": 20,
    "arrive": 25,
    "step": 30,
    "tick": 3,
    "join": 3,
    "cut": 0.3,
    "come or go": 1,
    "change": 0.5,
    "lose": 0.3,
}


def act(homes: OnceHomes, kind: str, chance: random.Random) -> None:
    """Have something happen."""
    number, device = chance.randrange(2), chance.choice(homes.devices)
    match kind:
        case "publish":
            homes.publish(chance.choice((1, 1, 1, 5)))
        case "turn":
            homes.turn(number)
        case "commit":
            homes.stored[number].commit()
        case "arrive":
            homes.arrive()
        case "step":
            homes.step(device)
        case "tick":
            homes.servers[number].tick()
        case "join":
            homes.join()
        case "cut":
            homes.cut()
        case "come or go":
            homes.come_or_go(device)
        case "change":
            homes.change(device)
        case "lose":
            homes.lose(number)
            if chance.random() < 0.3:
                homes.lose(1 - number)


def devices(chance: random.Random) -> list[Device]:
    """Return members at QoS 2 with homes of both shards."""
    return [Device(f"d{number}", number % 2, 2, chance.choice((1, 3, 100))) for number in range(4)]


def received(homes: OnceHomes) -> Counter[int]:
    """Return how often each message was received."""
    return Counter(number for device in homes.devices for number in device.received)


@pytest.mark.parametrize("run", range(RUNS))
def test_each_record_is_received_once_when_homes_are_lost_in_turn(
    store: Store, run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = run_seed(f"once homes {run}")
    chance = random.Random(seed)
    monkeypatch.setattr("mqtt_front.delivery.remote_members._AWAY_S", chance.choice((0.0, 10.0)))
    with told_on_failure(TIMESTONE_SEED=seed):
        homes = OnceHomes(store.log("mqtt", 1), chance, devices(chance))
        for device in homes.devices:
            homes.come_or_go(device)
        homes.settle()
        for kind in chance.choices(list(ACTS), list(ACTS.values()), k=STEPS):
            act(homes, kind, chance)
        homes.settle()
        assert received(homes) == Counter(range(homes.published))
        group, (branch,) = homes.group, homes.servers[0].groups
        assert (group.committed, group.open_offsets, group.held) == (homes.published, frozenset(), {})
        assert (set(branch.done), branch.is_settled) == (set(), True)


def test_delivery_that_its_home_had_not_saved_is_not_done_when_it_unsubscribes(store: Store) -> None:
    """The group must not hear of that before: its home may be lost, and the session has never had the record then."""
    leaving = Device("leaving", 0, 2, 1)
    homes = OnceHomes(store.log("mqtt", 1), random.Random(1), [leaving])
    homes.settle()
    homes.publish(1)
    everywhere(homes, 1)
    assert leaving.link is not None and leaving.link.session is not None
    assert len(leaving.link.session.in_flight) == 1 and not leaving.link.coming
    homes.change(leaving)
    everywhere(homes, 1)
    homes.lose(0, committed_count=0)
    homes.settle()
    assert received(homes) == Counter([0])


def everywhere(homes: OnceHomes, saving: int) -> None:
    """Have all happen that is under way, with one home that saves."""
    for _ in range(20):
        for number in range(2):
            homes.servers[number].loop.settle()
        homes.servers[1].tick()
        homes.arrive()
        homes.stored[saving].commit()

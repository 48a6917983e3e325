"""Ways through the states of a small cluster: all of them, breadth first, or long ones at random."""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.cluster.small_model import Broken, Event, Model, State


class Searched(NamedTuple):
    """What a search has seen."""

    states: int
    depth: int
    is_complete: bool
    broken: str | None
    trace: tuple[Event, ...]


def search(model: Model, first: State, most_states: int) -> Searched:
    """Visit all states breadth first, up to a number of them. What is found first is the shortest way there."""
    first = model.canonical(first)
    came: dict[State, tuple[State, Event] | None] = {first: None}
    layer, depth = [first], 0
    while layer and len(came) < most_states:
        depth += 1
        following = []
        for state in layer:
            event = None
            try:
                for event, after in model.next(state):
                    after = model.canonical(after)
                    if after not in came:
                        came[after] = state, event
                        model.check(after)
                        following.append(after)
            except Broken as broken:
                return Searched(len(came), depth, False, str(broken), _way(came, state, event))
            if len(came) >= most_states:
                return Searched(len(came), depth, False, None, ())
        layer = following
    return Searched(len(came), depth, not layer, None, ())


def _way(
    came: dict[State, tuple[State, Event] | None], state: State, event: Event | None
) -> tuple[Event, ...]:
    events = [event] if event else []
    while (step := came[state]) is not None:
        state, before = step
        events.append(before)
    return tuple(reversed(events))


def walk(model: Model, first: State, rng: random.Random, most_steps: int) -> tuple[str, list[Event]] | None:
    """Take steps at random until an invariant breaks. Return which one, and the way there."""
    state, taken = first, list[Event]()
    favour = {
        name: rng.choice((1, 1, 4, 16)) for name in ("receives", "sees", "flushes", "is killed", "appends")
    }
    for _ in range(5 * most_steps):
        if len(taken) == most_steps:
            break
        options = list(model.options(state))
        event, make = rng.choices(options, [favour.get(event.name, 2) for event, _ in options])[0]
        try:
            state = _step(model, state, event, make, taken)
        except Broken as broken:
            return str(broken), taken
    return None


def _step(
    model: Model, state: State, event: Event, make: Callable[[], State | None], taken: list[Event]
) -> State:
    """Take a step and return the state after it. It is added to `taken` unless it changes nothing. Raises Broken."""
    taken.append(event)
    after = make()
    if after is None or after == state:
        taken.pop()
        return state
    model.check(after)
    return after


def breaks(model: Model, first: State, events: Sequence[Event]) -> list[Event] | None:
    """Take these steps, as far as they are possible. Return those that led to a broken invariant, or None."""
    state = first
    taken: list[Event] = []
    for wanted in events:
        make = next((make for event, make in model.options(state) if event == wanted), None)
        if make is None:
            continue
        try:
            state = _step(model, state, wanted, make, taken)
        except Broken:
            return taken
    return None


def shortened(model: Model, first: State, events: list[Event]) -> list[Event]:
    """Leave out steps while an invariant still breaks."""
    place = len(events) - 1
    while place >= 0:
        fewer = breaks(model, first, events[:place] + events[place + 1 :])
        if fewer is not None and len(fewer) < len(events):
            events = fewer
        place = min(place, len(events)) - 1
    return events

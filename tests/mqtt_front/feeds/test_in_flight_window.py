"""The committed offset is the lowest unacknowledged one, for any order of acknowledgements."""

from hypothesis import given
from hypothesis import strategies as st

from mqtt_front.feeds.in_flight_window import InFlightWindow


def test_acknowledgements_behind_an_open_offset_commit_nothing() -> None:
    window = InFlightWindow(4)
    window.sent([4, 5, 6, 7])
    window.seen = 8
    for offset in (5, 6, 7):
        window.acknowledged(offset)
    assert (window.committed, window.in_flight_count) == (4, 1)
    window.acknowledged(4)
    assert (window.committed, window.in_flight_count) == (8, 0)


def test_window_stays_bounded_when_only_the_first_is_unacknowledged() -> None:
    window = InFlightWindow(0)
    window.sent(range(10))
    for offset in range(1, 20_000):
        window.sent([offset + 9])
        window.seen = offset + 10
        window.acknowledged(offset)
        assert (window.committed, window.in_flight_count) == (0, 10)
        assert len(window._order) + len(window._early or ()) < 3000
    window.acknowledged(0)
    assert window.committed == 20_000


def test_window_commits_all_seen_offsets_when_none_is_in_flight() -> None:
    window = InFlightWindow(10)
    assert window.committed == 10
    window.seen = 99
    assert window.committed == 99


@given(st.sets(st.integers(0, 200), max_size=30), st.randoms())
def test_committed_offset_equals_a_simple_model(offsets: set[int], random: object) -> None:
    window, left = InFlightWindow(0), set(offsets)
    window.sent(sorted(offsets))
    window.seen = 1000
    order = list(offsets)
    random.shuffle(order)  # type: ignore[attr-defined]
    for offset in order:
        window.acknowledged(offset)
        left.discard(offset)
        assert window.committed == min(left, default=1000)
        assert window.in_flight_count == len(left)

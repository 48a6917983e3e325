import pytest

from timestone_console.config import Role
from timestone_console.http import sessions
from timestone_console.http.sessions import IDLE_S, LONGEST_S, Session, Sessions


def test_key_starts_one_session() -> None:
    found = Sessions(lambda: 0.0)
    key = found.new_key()
    assert not found.take_key(key + "x")
    assert found.take_key(key) and not found.take_key(key)


def test_session_ends_when_idle_and_after_its_longest_time() -> None:
    now_s = 0.0
    found = Sessions(lambda: now_s)
    number = found.start(Session("anna", Role.READER))
    now_s = IDLE_S
    assert found.find(number) is not None
    now_s += IDLE_S + 1
    assert found.find(number) is None
    number, now_s = found.start(Session("anna", Role.READER)), 0.0
    while now_s < LONGEST_S:
        assert found.find(number) is not None
        now_s += IDLE_S
    now_s += IDLE_S * 2
    assert found.find(number) is None


def test_session_is_found_by_its_id_only_until_it_is_ended() -> None:
    found = Sessions(lambda: 0.0)
    one, two = Session("anna", Role.READER), Session("anna", Role.READER)
    first, second = found.start(one), found.start(two)
    assert first != second and one.token != two.token
    found.end(one)
    assert found.find(first) is None and found.find(second) is two


def test_sessions_are_bounded(monkeypatch: object) -> None:
    now_s = 0.0
    found = Sessions(lambda: now_s)
    numbers = []
    for _ in range(sessions.SESSION_COUNT + 1):
        now_s += 0.001
        numbers.append(found.start(Session(None, Role.READER)))
    assert found.find(numbers[0]) is None and found.find(numbers[1]) is not None


def test_session_has_ended_by_logout_by_time_and_when_a_newer_one_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    found = Sessions(lambda: now_s)
    script, left, idle, lasting = (Session("anna", Role.READER) for _ in range(4))
    found.start(left)
    number = found.start(idle)
    found.end(left)
    now_s = IDLE_S + 1
    assert found.find(number) is None
    found.start(lasting)
    assert [found.has_ended(one) for one in (script, left, idle, lasting)] == [False, True, True, False]
    now_s += LONGEST_S + 1
    assert found.has_ended(lasting) and not found.has_ended(script)
    monkeypatch.setattr(sessions, "SESSION_COUNT", 1)
    found.start(Session(None, Role.READER))
    now_s -= LONGEST_S
    assert found.has_ended(lasting)

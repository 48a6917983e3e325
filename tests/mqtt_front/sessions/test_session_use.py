"""Sessions and their bytes against the limits and the share of an owner."""

import pytest

from mqtt_front.runtime.user_share import Shares
from mqtt_front.sessions.session_use import SessionUse

COUNT = ("session_count", "session_count is 4")
BYTES = ("session_bytes", "session_bytes is 1000")


def shared(setting: str) -> tuple[str, str]:
    return "user_share_percent", f"user_share_percent is 50 of {setting}"


def filled(users: bool) -> SessionUse:
    use = SessionUse(Shares(50, users=users), 4, 1000)
    use.add("a\0greedy", 100)
    use.add("b\0greedy", 300)
    use.resize("b\0greedy", 100)
    return use


@pytest.mark.parametrize(
    ("key", "count", "size_bytes", "over"),
    [
        ("c\0greedy", 1, 0, shared("session_count (4)")),
        ("a\0greedy", 0, 1, shared("session_bytes (1000)")),
        ("a\0greedy", 0, 0, None),
        ("c\0modest", 1, 500, None),
        ("c\0modest", 1, 501, BYTES),
        ("c\0modest", 3, 1, COUNT),
        ("c", 1, 500, None),
    ],
)
def test_share_of_a_user_is_compared_with_all_its_sessions(
    key: str, count: int, size_bytes: int, over: tuple[str, str] | None
) -> None:
    assert filled(users=True).over(key, count, size_bytes) == over


def test_without_logins_only_the_sums_count() -> None:
    use = filled(users=False)
    assert use.over("c", 2, 500) is None
    assert use.over("c", 3, 1) == COUNT
    assert use.over("c", 1, 501) == BYTES


def test_sessions_that_end_make_room() -> None:
    use = filled(users=True)
    use.remove("b\0greedy", 400)
    assert use.over("c\0greedy", 1, 400) is None
    assert (use.counts.total, use.sizes.total) == (1, 100)


def test_share_of_a_user_is_compared_with_all_its_connections() -> None:
    use = SessionUse(Shares(50, users=True), connection_limit=4)
    for key in ("a\0greedy", "b\0greedy", "anonymous"):
        use.connect(key)
    assert use.over_connections("c\0greedy") == shared("connection_count (4)")
    assert use.over_connections("a\0modest") is None
    assert use.over_connections("b") is None
    use.connect("b")
    assert use.over_connections("c") == shared("connection_count (4)")
    use.disconnect("b\0greedy")
    assert use.over_connections("c\0greedy") is None


def test_connections_have_no_share_without_logins() -> None:
    use = SessionUse(Shares(50), connection_limit=2)
    for key in ("a", "b", "c"):
        use.connect(key)
    assert use.over_connections("a") is None

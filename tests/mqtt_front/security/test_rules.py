import pytest

from mqtt_front.security import rules
from mqtt_front.security.rules import Permissions, RuleSet, fill_in
from timestone_access.identity import Access, Rule


def permissions(*sets: list[tuple[str, Access]]) -> Permissions:
    return Permissions([RuleSet(Rule(*rule) for rule in each) for each in sets])


def test_topic_without_a_rule_is_forbidden() -> None:
    nobody = permissions([])
    assert not nobody.may_read("a")
    assert not nobody.may_write("a")
    assert not nobody.may_subscribe("#")
    assert nobody.forbidden([b"a", b"b", b"a"]) == {b"a", b"b"}


def test_reading_and_writing_are_allowed_separately() -> None:
    client = permissions([("r/#", Access.READ), ("w/#", Access.WRITE), ("rw/+", Access.READ_WRITE)])
    for topic, may_read, may_write in [
        ("r/1", True, False),
        ("r", True, False),
        ("w/1", False, True),
        ("rw/1", True, True),
        ("rw/1/2", False, False),
    ]:
        assert client.may_read(topic) is may_read
        assert client.may_write(topic) is may_write


def test_denial_wins_in_any_position() -> None:
    client = permissions([("a/#", Access.READ_WRITE), ("a/b", Access.DENY), ("a/b", Access.READ)])
    assert client.may_read("a/c")
    assert not client.may_read("a/b")
    assert not client.may_write("a/b")


def test_own_rules_come_before_patterns_in_both_directions() -> None:
    client = permissions([("a", Access.READ), ("b", Access.DENY)], [("a", Access.DENY), ("b", Access.READ)])
    assert client.may_read("a")
    assert not client.may_read("b")


def test_rule_for_the_other_direction_is_skipped() -> None:
    client = permissions([("a", Access.WRITE)], [("a", Access.READ)])
    assert client.may_read("a")


def test_server_topics_need_explicit_rules() -> None:
    client = permissions([("#", Access.READ_WRITE), ("+/uptime", Access.READ)])
    assert not client.may_read("$SYS/uptime")
    assert not client.may_subscribe("$SYS/#")
    assert permissions([("$SYS/#", Access.READ)]).may_subscribe("$SYS/+")


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("#", True),  # what it may not read of it is held back on delivery
        ("a/#", True),
        ("a/secret", False),
        ("a/secret/#", True),  # the denial is about one topic
        ("hidden/#", False),
        ("hidden/x", False),
        ("+/x", True),
        ("w/#", False),
        ("elsewhere", False),
    ],
)
def test_subscription_is_allowed_when_some_topic_may_be_read(topic_filter: str, expected: bool) -> None:
    client = permissions(
        [
            ("a/#", Access.READ),
            ("a/secret", Access.DENY),
            ("hidden/#", Access.DENY),
            ("hidden/x", Access.READ),
            ("w/#", Access.WRITE),
        ]
    )
    assert client.may_subscribe(topic_filter) is expected


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("a/x/#", True),
        ("a/+", False),  # a/secret is one of them
        ("a/x", True),
        ("own/7/#", True),  # only the second set speaks of it
        ("own/+/#", False),
        ("#", False),
        ("b/#", False),  # the second set denies a part
        ("b/x", True),
        ("w/x", False),
        ("elsewhere", False),
    ],
)
def test_permissions_cover_a_filter_when_no_topic_of_it_is_left_out(
    topic_filter: str, expected: bool
) -> None:
    client = permissions(
        [("a/#", Access.READ), ("a/secret", Access.DENY), ("w/#", Access.WRITE)],
        [("own/7/#", Access.READ_WRITE), ("b/#", Access.READ), ("b/secret", Access.DENY)],
    )
    assert client.may_read_all(topic_filter) is expected
    scoped = Permissions([RuleSet([Rule("#", Access.READ)])], RuleSet([Rule("a/#", Access.READ)]))
    assert scoped.may_read_all(topic_filter) is topic_filter.startswith("a/")


def test_permission_to_publish_is_cached_for_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    client = permissions([("a/#", Access.WRITE)])
    assert client.forbidden([b"a/1", b"x", b"a/2"]) == {b"x"}
    monkeypatch.setattr(RuleSet, "judge", None)
    assert client.forbidden([b"a/1", b"a/2", b"a/1"]) == frozenset()


def test_cache_of_permissions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_REMEMBERED_TOPICS", 10)
    client = permissions([("#", Access.WRITE)])
    for number in range(100):
        assert not client.forbidden([b"%d" % number])
        assert len(client._publishable) <= 10


def test_invalid_topic_is_left_to_topic_validation() -> None:
    assert permissions([]).forbidden([b"\xff"]) == frozenset()


PATTERNS = [Rule("devices/%c/#", Access.WRITE), Rule("users/%u/%c", Access.READ), Rule("all", Access.READ)]


def test_scope_and_rules_must_both_allow() -> None:
    rules = RuleSet([Rule("devices/#", Access.READ_WRITE), Rule("public/#", Access.READ)])
    bound = Permissions([rules], RuleSet([Rule("devices/7/#", Access.READ_WRITE)]))
    assert bound.may_write("devices/7/temp") and bound.may_read("devices/7/temp")
    assert not bound.may_write("devices/8/temp") and not bound.may_read("public/x")
    assert bound.may_subscribe("devices/+/temp") and not bound.may_subscribe("public/#")
    assert bound.forbidden([b"devices/7/a", b"devices/8/a"]) == {b"devices/8/a"}


def test_patterns_are_filled_with_user_and_client_id() -> None:
    assert [each.topic_filter for each in fill_in(PATTERNS, "alice", "d1")] == [
        "devices/d1/#",
        "users/alice/d1",
        "all",
    ]


def test_pattern_with_a_user_does_not_apply_to_anonymous_clients() -> None:
    for user in (None, ""):
        assert [each.topic_filter for each in fill_in(PATTERNS, user, "d1")] == ["devices/d1/#", "all"]


@pytest.mark.parametrize(
    ("user", "client_id"),
    [
        ("+", "d"),
        ("#", "d"),
        ("a/#", "d"),
        (None, "+"),
        ("alice", "#"),
        ("alice", "d/+"),
        ("alice", "$SYS"),
        ("$x", "d"),
    ],
)
def test_pattern_does_not_apply_to_names_with_wildcards_or_separators(
    user: str | None, client_id: str
) -> None:
    assert fill_in(PATTERNS, user, client_id) == []


def test_names_are_substituted_once() -> None:
    """A client id with a placeholder in it does not become the user's name in the second step."""
    rule = Rule("%c/x", Access.READ)
    assert fill_in([rule], "alice", "%u") == [Rule("%u/x", Access.READ)]

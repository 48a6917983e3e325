"""The combination of several subscriptions to one topic."""

from mqtt_front.feeds.subscription import Grant, Subscription

HEAD = b"\0\1t"


def grant(*subscriptions: Subscription) -> Grant:
    return Grant(subscriptions, "mqtt", HEAD)


def test_overlapping_subscriptions_give_the_highest_qos_and_all_identifiers() -> None:
    both = grant(
        Subscription("t/#", 0, identifier=1, since={"mqtt": 5}),
        Subscription("t/+", 1, retain_as_published=True, identifier=200, since={"mqtt": 9}),
    )
    assert (both.qos, both.retain_as_published, both.plain_from) == (1, True, 9)
    assert both.identifiers == bytes.fromhex("0b01 0bc801")
    assert both.block == bytes((5,)) + both.identifiers


def test_subscription_matches_from_its_first_offset_on() -> None:
    both = grant(Subscription("t/#", 0, since={"mqtt": 5}), Subscription("t/+", 1, since={"mqtt": 9}))
    assert both.at(4, own=False) is None
    early = both.at(5, own=False)
    assert early is not None and early.qos == 0
    late = both.at(9, own=False)
    assert late is not None and late.qos == 1


def test_no_local_skips_the_subscribers_own_messages() -> None:
    local = Subscription("t/#", 1, no_local=True, since={"mqtt": 0})
    assert grant(local).at(100, own=True) is None
    assert grant(local).at(100, own=False) is not None
    assert grant(local).plain_from > 1 << 62, "each record has to be looked at"
    other = grant(local, Subscription("t", 0, since={"mqtt": 0})).at(100, own=True)
    assert other is not None and other.qos == 0


def test_property_block_is_empty_without_identifiers() -> None:
    assert grant(Subscription("t", 1)).block == b"\0"

import pytest

from timestone_access import lockout
from timestone_access.lockout import Lockout
from timestone_access.settings import LockoutSettings

HERE = "192.0.2.1"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lockout_of(clock: Clock, failures: int = 3) -> Lockout:
    return Lockout(LockoutSettings(failures=failures, within_ms=10_000, lock_ms=60_000), clock)


def test_failures_up_to_the_limit_lock_for_the_configured_time(clock: Clock) -> None:
    locks = lockout_of(clock)
    assert [locks.failed("alice", HERE) for _ in range(3)] == [False, False, True]
    assert locks.left_s("alice", HERE) == 60
    clock.now += 59
    assert locks.left_s("alice", HERE) == 1
    clock.now += 1
    assert locks.left_s("alice", HERE) == 0
    assert [locks.failed("alice", HERE) for _ in range(3)] == [False, False, True]


def test_other_users_and_other_addresses_are_not_locked(clock: Clock) -> None:
    locks = lockout_of(clock, 1)
    assert locks.failed("alice", HERE)
    assert not locks.left_s("bob", HERE)
    assert not locks.left_s("alice", "192.0.2.2")
    assert not locks.left_s(None, HERE)
    assert not locks.left_s("", HERE)


def test_failures_far_apart_do_not_add_up(clock: Clock) -> None:
    locks = lockout_of(clock)
    for _ in range(10):
        assert not locks.failed("alice", HERE)
        clock.now += 10.1
    assert not locks.left_s("alice", HERE)


def test_success_resets_the_failures(clock: Clock) -> None:
    locks = lockout_of(clock)
    for _ in range(10):
        locks.failed("alice", HERE)
        locks.failed("alice", HERE)
        locks.succeeded("alice", HERE)
    assert not locks.left_s("alice", HERE)
    assert len(locks) == 0


def test_attempts_during_a_lockout_do_not_extend_it(clock: Clock) -> None:
    """Logins that were on their way when the lock came."""
    locks = lockout_of(clock)
    for _ in range(6):
        locks.failed("alice", HERE)
    assert locks.left_s("alice", HERE) == 60


def test_lockout_keeps_no_state_without_a_limit(clock: Clock) -> None:
    locks = lockout_of(clock, 0)
    assert not any(locks.failed("alice", HERE) for _ in range(100))
    assert len(locks) == 0


def test_addresses_of_one_ipv6_network_count_together(clock: Clock) -> None:
    locks = lockout_of(clock, 2)
    locks.failed("alice", "2001:db8:1:1::1")
    assert locks.failed("alice", "2001:db8:1:1:ffff::1")
    assert locks.left_s("alice", "2001:db8:1:1::2")
    assert not locks.left_s("alice", "2001:db8:1:2::1")


def test_ipv4_addresses_in_ipv6_are_counted_separately(clock: Clock) -> None:
    locks = lockout_of(clock, 1)
    locks.failed("alice", "::ffff:192.0.2.1")
    assert locks.left_s("alice", "192.0.2.1")
    assert not locks.left_s("alice", "::ffff:192.0.2.2")


def test_memory_is_bounded_and_the_oldest_entry_is_removed_first(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockout, "_ENTRIES_MAX", 100)
    locks = lockout_of(clock, 1)
    for number in range(1000):
        locks.failed("x" * 60_000 + str(number), HERE)
        assert len(locks) <= 100
    assert not locks.left_s("x" * 60_000 + "0", HERE)
    assert locks.left_s("x" * 60_000 + "999", HERE)


def test_expired_entries_are_removed_at_the_next_failure(clock: Clock) -> None:
    locks = lockout_of(clock)
    for number in range(50):
        locks.failed(str(number), HERE)
    clock.now += 11
    locks.failed("last", HERE)
    assert len(locks) == 1

"""When a flush begins at once, and for what it waits."""

from timestone.commit.commit_delay import PATIENCE_MOST_S, SMALL_BYTES, FlushGroups

MESSAGE = SMALL_BYTES // 8


def groups_after_a_round(answered: int, queued: int, *, took_s: float = 0.0) -> FlushGroups:
    moments = iter((1.0, 1.0 + took_s))
    groups = FlushGroups(lambda: next(moments))
    groups.written(answered * MESSAGE)
    groups.begin()
    groups.end()
    groups.answered(answered * MESSAGE, queued * MESSAGE)
    return groups


def test_first_flush_waits_for_nobody() -> None:
    groups = FlushGroups()
    groups.written(1)
    assert groups.missing_bytes <= 0
    assert groups.patience_s == 0.0


def test_half_of_what_goes_round_is_waited_for_whoever_was_answered_last() -> None:
    for answered, queued in ((90, 10), (10, 90), (100, 0)):
        groups = groups_after_a_round(answered, queued)
        groups.written(10 * MESSAGE)
        assert groups.missing_bytes == 40 * MESSAGE
        groups.written(40 * MESSAGE)
        assert groups.missing_bytes == 0


def test_what_was_not_answered_yet_goes_round_too() -> None:
    groups = FlushGroups()
    groups.written(100 * MESSAGE)
    groups.answered(40 * MESSAGE, 0)
    assert groups.missing_bytes == (50 - 60) * MESSAGE


def test_nothing_is_waited_for_where_little_goes_round() -> None:
    groups = groups_after_a_round(6, 1)
    groups.written(1)
    assert groups.missing_bytes <= 0


def test_wait_is_never_longer_than_the_last_flush() -> None:
    assert groups_after_a_round(9, 1, took_s=0.000_25).patience_s == 1.000_25 - 1.0
    assert groups_after_a_round(9, 1, took_s=3.0).patience_s == PATIENCE_MOST_S


def test_nobody_is_waited_for_after_a_failure() -> None:
    groups = groups_after_a_round(90, 10)
    groups.written(MESSAGE)
    groups.failed()
    assert groups.missing_bytes == 0

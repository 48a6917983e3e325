"""When a flush begins at once, and when it is delayed."""

from timestone.commit.commit_delay import PATIENCE_MOST_S, SMALL_BYTES, CommitDelay

MESSAGE = SMALL_BYTES // 8


def groups_after_a_round(
    answered: int, queued: int, *, submissions: int = 2, took_s: float = 0.0
) -> CommitDelay:
    moments = iter((1.0, 1.0 + took_s))
    groups = CommitDelay(lambda: next(moments))
    groups.written(answered * MESSAGE)
    groups.begin()
    groups.end()
    groups.answered(submissions, answered * MESSAGE, queued * MESSAGE)
    return groups


def test_first_flush_is_not_delayed() -> None:
    groups = CommitDelay()
    groups.written(1)
    assert groups.missing_bytes <= 0
    assert groups.patience_s == 0.0


def test_flush_waits_for_half_of_the_messages_in_circulation() -> None:
    for answered, queued in ((90, 10), (10, 90), (100, 0)):
        groups = groups_after_a_round(answered, queued)
        groups.written(10 * MESSAGE)
        assert groups.missing_bytes == 40 * MESSAGE
        groups.written(40 * MESSAGE)
        assert groups.missing_bytes == 0


def test_unanswered_messages_count_as_in_circulation() -> None:
    groups = CommitDelay()
    groups.written(100 * MESSAGE)
    groups.answered(2, 40 * MESSAGE, 0)
    assert groups.missing_bytes == (50 - 60) * MESSAGE


def test_flush_of_few_messages_waits_a_quarter_of_a_flush_when_the_last_was_shared() -> None:
    groups = groups_after_a_round(6, 1, took_s=0.000_5)
    groups.written(5 * MESSAGE)
    assert groups.missing_bytes == 2 * MESSAGE
    assert groups.patience_s == (1.000_5 - 1.0) / 4
    groups.written(2 * MESSAGE)
    assert groups.missing_bytes == 0


def test_flush_of_few_messages_is_not_delayed_when_the_last_was_for_one_submission() -> None:
    groups = groups_after_a_round(6, 1, submissions=1)
    groups.written(1)
    assert groups.missing_bytes <= 0


def test_delay_is_never_longer_than_the_last_flush() -> None:
    assert groups_after_a_round(9, 1, took_s=0.000_25).patience_s == 1.000_25 - 1.0
    assert groups_after_a_round(9, 1, took_s=3.0).patience_s == PATIENCE_MOST_S


def test_flush_is_not_delayed_after_a_failure() -> None:
    groups = groups_after_a_round(90, 10)
    groups.written(MESSAGE)
    groups.failed()
    assert groups.missing_bytes == 0

"""Age marks never make a record older than it is, and are precise enough."""

import random

import pytest

from tests.support.seeds import run_seed, told_on_failure
from timestone.upkeep.age_marks import AgeMarks

TEN_YEARS_S = 10 * 365 * 86400


def test_age_is_that_of_the_first_mark_behind_a_record() -> None:
    marks = AgeMarks()
    assert marks.appended_by_us(1) is None
    assert marks.add(10, 5)
    assert marks.add(20, 9)
    found = [marks.appended_by_us(end) for end in (1, 5, 6, 9, 10)]
    assert found == [10, 10, 20, 20, None]


def test_mark_is_not_added_when_nothing_was_appended() -> None:
    marks = AgeMarks()
    marks.add(10, 5)
    assert not marks.add(20, 5)
    assert marks.appended_by_us(5) == 10


def test_marks_of_one_moment_are_merged() -> None:
    marks = AgeMarks()
    marks.add(10, 5)
    marks.add(10, 7)
    assert (len(marks), marks.appended_by_us(7)) == (1, 10)


def test_marks_are_removed_with_their_records() -> None:
    marks = AgeMarks([(10, 5), (20, 9)])
    assert not marks.forget_below(4)
    assert marks.forget_below(5)
    assert (len(marks), marks.appended_by_us(6)) == (1, 20)


@pytest.mark.slow
def test_age_is_never_too_high_and_at_most_a_thirty_second_part_too_low() -> None:
    seed = run_seed("age marks")
    rng = random.Random(seed)
    with told_on_failure(TIMESTONE_SEED=seed):
        for _ in range(20):
            marks, now, end, truth = AgeMarks(), 0, 0, list[tuple[int, int]]()
            while now < TEN_YEARS_S:
                now += int(rng.expovariate(1 / rng.choice((60, 3600, 86400, 10 * 86400)))) + 1
                end += rng.randint(1, 5)
                marks.add(now, end)
                truth.append((now, end))
                if len(truth) % 97 == 0:
                    for when, offset in rng.sample(truth, min(50, len(truth))):
                        found = marks.appended_by_us(offset)
                        assert found is not None
                        assert 0 <= now - found <= now - when
                        assert found - when <= (now - found) / 32
            assert len(marks) < 1100


def test_marks_are_read_back_for_the_log_they_are_of() -> None:
    document = AgeMarks([(10, 5), (20, 9)]).encode(3, (1 << 64) - 1)
    assert AgeMarks.decode(document, 3, (1 << 64) - 1, 9).appended_by_us(9) == 20
    assert AgeMarks.decode(document, 3, (1 << 64) - 1, 8).appended_by_us(6) is None, "of an end yet to come"
    for timeline, log_id in ((4, (1 << 64) - 1), (3, 1)):
        with pytest.raises(ValueError, match="invalid"):
            AgeMarks.decode(document, timeline, log_id, 9)


@pytest.mark.parametrize(
    "marks", ["5", "[1]", "[[1]]", '[["1", 2]]', "[[2, 1], [1, 2]]", "[[1, 2], [2, 2]]", "[[-1, 1]]"]
)
def test_marks_are_refused_when_they_are_damaged(marks: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        AgeMarks.decode(b'{"timeline": 1, "log_id": 2, "marks": %s}' % marks.encode(), 1, 2, 99)

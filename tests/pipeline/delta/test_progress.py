"""Closed windows stay closed, and no message closes more than its time allows."""

from pyspark_timestone.offsets import LogPartition, SourceOffset
from timestone_pipeline.delta.progress import MINUTE_US, Progress

MINUTES = (1, 5, 15)
KEY = LogPartition("mqtt", 0)


def advanced(progress: Progress, newest_minute: float | None, lateness_s: int = 60) -> Progress:
    newest = None if newest_minute is None else int(newest_minute * MINUTE_US)
    return progress.advanced(SourceOffset({KEY: 7}), newest, minutes=MINUTES, lateness_s=lateness_s)


def closed(progress: Progress) -> list[float]:
    return [at / MINUTE_US for at in progress.closed_us.values()]


def test_windows_close_when_a_message_is_newer_than_their_end_by_the_lateness() -> None:
    progress = advanced(Progress(), 30.5)
    assert closed(progress) == [29, 25, 15]
    assert progress.late_before_us(MINUTES) == 29 * MINUTE_US
    assert closed(advanced(progress, 31)) == [30, 30, 30]


def test_old_messages_open_no_window() -> None:
    progress = advanced(Progress(), 30.5)
    assert closed(advanced(progress, 3)) == [29, 25, 15]
    assert closed(advanced(progress, None)) == [29, 25, 15]
    assert closed(advanced(progress, 30.6, lateness_s=1000)) == [29, 25, 15]


def test_no_message_is_late_before_the_first() -> None:
    assert Progress().late_before_us(MINUTES) is None
    assert advanced(Progress(), None).closed_us == {}
    assert Progress().ended(None, MINUTES) == Progress()


def test_windows_that_are_not_in_the_settings_any_more_make_no_message_late() -> None:
    progress = advanced(Progress(), 30.5)
    assert progress.late_before_us([15, 60]) == 15 * MINUTE_US
    assert progress.late_before_us([]) is None
    assert progress.closed([15, 60]) == {15: 15 * MINUTE_US}


def test_end_closes_the_window_of_the_newest_message_and_no_later_one() -> None:
    assert closed(advanced(Progress(), 30.5).ended(int(30.5 * MINUTE_US), MINUTES)) == [31, 35, 45]


def test_progress_is_decoded_to_its_input() -> None:
    progress = advanced(Progress(), 30.5)
    assert Progress.from_json(progress.to_json()) == progress
    assert Progress.from_json(Progress().to_json()) == Progress()

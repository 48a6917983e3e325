import gc
import time

from timestone_bench.measurement import Spread, Stopwatch, measure


def test_each_call_is_timed_and_the_sync_comes_on_top() -> None:
    seen = []

    def call() -> None:
        seen.append(1)
        time.sleep(0.002)

    found = measure([call] * 5, records=50, size_bytes=500, sync=lambda: time.sleep(0.01))
    assert len(seen) == 5
    assert len(found.calls_ns) == 5
    assert found.calls_ns.min() >= 2_000_000
    assert found.elapsed_s * 1e9 == found.calls_ns.sum()
    assert found.synced_s is not None
    assert found.synced_s >= found.elapsed_s + 0.01
    assert found.cpu_s < found.elapsed_s, "sleeping is no processor time"


def test_what_a_program_has_frozen_stays_frozen() -> None:
    gc.freeze()  # as the tests have, too
    frozen = gc.get_freeze_count()
    measure([lambda: None], records=1, size_bytes=1)
    assert gc.get_freeze_count() >= frozen > 0


def test_reads_have_nothing_to_sync() -> None:
    assert measure([lambda: None], records=1, size_bytes=1).synced_s is None


def test_a_loop_of_unknown_length_is_timed_until_it_says_that_it_is_done() -> None:
    left = iter([True, True, False])
    stopwatch = Stopwatch()
    stopwatch.run_until_done(lambda: next(left))
    assert len(stopwatch.measurement(records=3, size_bytes=3).calls_ns) == 3


def test_a_spread_is_a_median_with_its_range() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert Spread.of([3.0, 1.0, 2.0]).to_json() == {"median": 2.0, "min": 1.0, "max": 3.0}

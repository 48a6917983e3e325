from typing import Any

import numpy as np
import pytest

from timestone_bench.console.costs import FIGURES, LOADS, MODES, PLAN, Costs, Estimate, Run, scenarios

STEADY, FULL = LOADS


def run(**figures: Any) -> Run:
    known: dict[str, Any] = dict.fromkeys(FIGURES, 0.0)
    return Run(**(known | figures))


def test_ratios_and_differences_are_those_of_the_same_turns() -> None:
    costs = Costs(
        {
            STEADY: {
                "off": [
                    run(per_s=100.0, windows=(0.2, 0.1)),
                    run(per_s=10.0, windows=(0.1,)),
                    run(per_s=1.0),
                ],
                "figures": [
                    run(per_s=90.0, windows=(0.3, 0.5)),
                    run(per_s=9.9, windows=(0.2,)),
                    run(per_s=1.0),
                ],
            }
        }
    )
    assert costs.median(STEADY, "off", "per_s") == 10.0
    assert costs.ratio(STEADY, "figures", "off", "per_s").value == pytest.approx(0.99)
    assert costs.difference(STEADY, "figures", "off", "per_s").value == pytest.approx(-0.1)
    assert costs.more_processor(STEADY, "figures", "off").value == pytest.approx((0.1 + 0.4 + 0.1) / 3)
    assert costs.to_json()[STEADY]["figures"]["per_s"] == {"median": 9.9, "min": 1.0, "max": 90.0}


def test_estimate_has_an_interval_that_is_as_wide_as_the_turns_differ() -> None:
    assert Estimate.of([0.5, 0.5, 0.5], np.mean) == (0.5, 0.5, 0.5)
    wide = Estimate.of([0.0, 1.0, 2.0, 3.0, 4.0], np.median)
    assert (wide.value, wide.low >= 0, wide.high <= 4) == (2.0, True, True)
    assert wide.low < 1.5 < 2.5 < wide.high


def test_each_mode_is_in_the_plan_and_compared_ones_are_in_the_same_load() -> None:
    assert {mode for groups in PLAN.values() for group in groups for mode in group} == set(MODES)
    assert PLAN[STEADY] == (("off", "figures"), ("console", "1 browser"), ("console again", "5 browsers"))


def test_steady_load_has_a_message_each_ten_seconds_and_at_least_one_a_client() -> None:
    found = scenarios(1000, 20, 5000)
    assert (found[STEADY].rate, found[STEADY].messages, found[STEADY].publishers) == (100, 2000, 1000)
    assert scenarios(1000, 1, 5000)[STEADY].messages == 1000
    assert (found[FULL].rate, found[FULL].messages) == (None, 5000)

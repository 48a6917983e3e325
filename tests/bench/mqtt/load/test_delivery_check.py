"""Loss, duplicates and order, told from what arrived."""

import numpy as np
import pytest

from timestone_bench.mqtt.load.delivery_check import DeliveryCheck

CASES = {
    "all in order": ([0, 1, 2, 3, 4, 5], {"lost": 0, "duplicates": 0, "reordered": 0}),
    "one missing": ([0, 1, 3, 4, 5], {"lost": 1, "duplicates": 0, "reordered": 0}),
    "the last ones missing": ([0, 1, 2], {"lost": 3, "duplicates": 0, "reordered": 0}),
    "one twice": ([0, 1, 1, 2, 3, 4, 5], {"lost": 0, "duplicates": 1, "reordered": 0}),
    "two changed places": ([0, 2, 1, 3, 4, 5], {"lost": 0, "duplicates": 0, "reordered": 1}),
    "sent again from the middle": ([0, 1, 2, 3, 2, 3, 4, 5], {"lost": 0, "duplicates": 2, "reordered": 0}),
    "the first late": ([1, 2, 3, 0, 4, 5], {"lost": 0, "duplicates": 0, "reordered": 1}),
}


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
@pytest.mark.parametrize(("numbers", "expected"), CASES.values(), ids=CASES.keys())
def test_the_tally_names_what_happened(numbers: list[int], expected: dict[str, int], chunk: int) -> None:
    check = DeliveryCheck()
    for start in range(0, len(numbers), chunk):
        part = np.array(numbers[start : start + chunk], np.uint32)
        check.add(np.full(len(part), 3, np.uint32), part)
    assert check.to_json(6) == expected | {"received": len(numbers)}


def test_senders_are_distinguished() -> None:
    check = DeliveryCheck()
    check.add(np.array([1, 2, 1, 2, 1], np.uint32), np.array([0, 0, 1, 2, 2], np.uint32))
    assert check.to_json(6) == {"received": 5, "lost": 1, "duplicates": 0, "reordered": 0}

"""A pin has a limit, always."""

import pytest

from timestone import Pin


@pytest.mark.parametrize(
    "limits", [{}, {"max_bytes": 0}, {"max_age_ms": -1}, {"max_bytes": -1, "max_age_ms": 5}]
)
def test_pin_without_a_limit_that_makes_sense_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="limit"):
        Pin(**limits)


def test_one_limit_is_enough() -> None:
    assert Pin(max_age_ms=1).max_bytes == 0
    assert Pin(max_bytes=1).max_age_ms == 0

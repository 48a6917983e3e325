"""A setting says once what it may be, and is held to it."""

from dataclasses import dataclass, fields

import pytest

from timestone.declared import Declared, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Oven(Declared):
    heat: int = setting(180, "degrees", low=0, high=250)
    minutes: int = setting(1, "how long", low=1)
    fan: bool = setting(False, "with the fan")
    dish: str | None = setting(None, "what is in it")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("heat", -1, "heat is -1; it goes from 0 to 250"),
        ("heat", 251, "heat is 251; it goes from 0 to 250"),
        ("minutes", 0, "minutes is 0; it goes from 1$"),
        ("minutes", 2**63, f"minutes is {2**63}, which is larger than any machine counts"),
    ],
)
def test_value_out_of_range_is_refused_with_the_range(name: str, value: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Oven(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("heat", "1 d", "a whole number"),
        ("heat", 1.5, "a whole number"),
        ("minutes", True, "a whole number"),
        ("fan", 1, "True or False"),
    ],
)
def test_value_of_another_kind_is_refused_by_name(name: str, value: object, kind: str) -> None:
    with pytest.raises(TypeError, match=f"{name} is {value!r}; it has to be {kind}"):
        Oven(**{name: value})  # type: ignore[arg-type]


def test_values_at_the_bounds_are_fine_and_what_may_be_missing_may() -> None:
    assert Oven(heat=250, minutes=1, fan=True, dish="bread").heat == 250
    assert Oven(heat=0).dish is None
    assert [one.metadata["help"] for one in fields(Oven)][:2] == ["degrees", "how long"]

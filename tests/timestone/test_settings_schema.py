"""Declared settings and the check of their values."""

from dataclasses import dataclass, fields
from datetime import timedelta

import pytest

from timestone.settings_schema import Declared, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Oven(Declared):
    heat: int = setting(180, "degrees", low=0, high=250)
    minutes: int = setting(1, "how long", low=1)
    fan: bool = setting(False, "with the fan")
    dish: str | None = setting(None, "what is in it")
    warm_ms: int = setting(0, "how long it is kept warm", low=0)
    tray_bytes: int = setting(0, "how much a tray holds")
    flow_bytes_per_s: int = setting(0, "how fast it fills")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("heat", -1, "invalid heat: expected 0 to 250, got -1"),
        ("heat", 251, "invalid heat: expected 0 to 250, got 251"),
        ("minutes", 0, "invalid minutes: expected at least 1, got 0$"),
        ("minutes", 2**63, rf"invalid minutes: expected at most 2\^63 - 1, got {2**63}"),
    ],
)
def test_value_out_of_range_is_refused_with_the_range(name: str, value: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Oven(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("heat", 1.5, "a whole number"),
        ("minutes", True, "a whole number"),
        ("fan", 1, "True or False"),
    ],
)
def test_value_of_another_type_is_refused_by_name(name: str, value: object, kind: str) -> None:
    with pytest.raises(TypeError, match=f"invalid {name}: expected {kind}, got {value!r}"):
        Oven(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("warm_ms", "7d", 604_800_000),
        ("warm_ms", "1.5 s", 1500),
        ("warm_ms", "250", 250),
        ("warm_ms", timedelta(days=7), 604_800_000),
        ("warm_ms", timedelta(milliseconds=250), 250),
        ("tray_bytes", "64 MiB", 64 << 20),
        ("flow_bytes_per_s", "1kB", 1000),
        ("heat", "200", 200),
    ],
)
def test_value_with_a_unit_is_converted_by_the_name_of_its_setting(
    name: str, given: object, value: int
) -> None:
    assert getattr(Oven(**{name: given}), name) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("warm_ms", "a while", "invalid warm_ms: expected a number, got 'a while'"),
        ("warm_ms", "7 weeks", "invalid warm_ms: expected a time in us, ms, s, min, h or d, got '7 weeks'"),
        ("warm_ms", "-1s", "invalid warm_ms: expected at least 0, got -1000"),
        ("warm_ms", timedelta(microseconds=1500), "invalid warm_ms: expected a whole number of ms"),
        ("warm_ms", timedelta(days=-1), "invalid warm_ms: expected at least 0, got -86400000"),
        ("tray_bytes", "7d", "invalid tray_bytes: expected a size in KiB, MiB, GiB, kB, MB or GB, got '7d'"),
        ("heat", "1 d", "invalid heat: expected a whole number, got '1 d'"),
    ],
)
def test_value_with_a_wrong_unit_is_refused(name: str, given: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Oven(**{name: given})  # type: ignore[arg-type]


def test_time_for_what_is_not_a_time_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"invalid tray_bytes: expected a whole number, got datetime\.timedelta"
    ):
        Oven(tray_bytes=timedelta(days=1))  # type: ignore[arg-type]


def test_values_at_the_bounds_and_missing_optional_values_are_accepted() -> None:
    assert Oven(heat=250, minutes=1, fan=True, dish="bread").heat == 250
    assert Oven(heat=0).dish is None
    assert [one.metadata["help"] for one in fields(Oven)][:2] == ["degrees", "how long"]

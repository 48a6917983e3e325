import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from timestone_cli.settings.schema import Setting
from timestone_cli.settings.values import convert


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Route:
    filter: str
    log: str
    retain_ms: int = 0


@pytest.mark.parametrize(
    ("kind", "key", "given", "value"),
    [
        (str, "name", "x", "x"),
        (int, "count", "12", 12),
        (int, "count", 12, 12),
        (int, "tail_bytes", "64 MiB", 64 << 20),
        (int, "scrub_bytes_per_s", "2 MiB", 2 << 20),
        (int, "connects_per_s", "50", 50),
        (int, "age_ms", "7 d", 604_800_000),
        (int, "age_s", "2 min", 120),
        (float, "rate", "2.5", 2.5),
        (float, "rate", 2, 2.0),
        (bool, "on", "yes", True),
        (bool, "on", "OFF", False),
        (bool, "on", True, True),
        (Path, "file", "a/b", Path("a/b")),
        (Path | None, "file", "none", None),
        (Path | None, "file", "a", Path("a")),
        (int | None, "limit", "", None),
        (Colour, "colour", "blue", Colour.BLUE),
        (Literal["info", "debug"], "level", "debug", "debug"),
        (tuple[str, ...], "names", "a, b,", ("a", "b")),
        (tuple[str, ...], "names", ["a", "b"], ("a", "b")),
        (tuple[str, ...], "names", '["a,b", "c"]', ("a,b", "c")),
        (list[int], "sizes_bytes", "[1, 2]", [1, 2]),
        (Sequence[str], "names", "a", ("a",)),
        (frozenset[str], "names", "a,a", frozenset("a")),
        (tuple[str, int], "pair", ["a", 1], ("a", 1)),
        (Mapping[str, int], "limits", "{a = 1}", {"a": 1}),
        (dict[str, int], "limits", {"a": 1}, {"a": 1}),
        (
            tuple[Route, ...],
            "routes",
            [{"filter": "a/#", "log": "a", "retain_ms": "1 s"}],
            (Route("a/#", "a", 1000),),
        ),
        (tuple[Route, ...], "routes", '[{filter = "a/#", log = "a"}]', (Route("a/#", "a"),)),
    ],
)
def test_text_and_toml_become_the_type_of_the_setting(kind: Any, key: str, given: Any, value: Any) -> None:
    result = convert(Setting(key, kind, None), given)
    assert result == value
    assert type(result) is type(value)


def test_rate_is_not_taken_for_a_time() -> None:
    with pytest.raises(ValueError, match="expected a whole number, got '1 min'"):
        convert(Setting("connects_per_s", int, 5), "1 min")


@pytest.mark.parametrize(
    ("kind", "given", "complaint"),
    [
        (int, "many", "expected a number"),
        (int, True, "not a whole number"),
        (int, 1.5, "not a whole number"),
        (int, [1], "not a whole number"),
        (str, 5, "not text"),
        (bool, "perhaps", "not true or false"),
        (bool, 1, "not true or false"),
        (float, "fast", "could not convert"),
        (Path, 5, "not a path"),
        (Path, "", "not a path"),
        (int, 2**63, r"expected at most 2\^63 - 1, got"),
        (Colour, "green", "expected one of red, blue, got"),
        (Colour, 5, "expected one of red, blue, got"),
        (int | None, "x", "expected a number"),
        (tuple[str, ...], 5, "not a list"),
        (tuple[str, ...], "[a", "not a TOML value"),
        (tuple[str, int], ["a"], "it takes 2"),
        (tuple[Route, ...], [{"filter": "a"}], "lacks log"),
        (tuple[Route, ...], [{"filtre": "a"}], "unknown key 'filtre'"),
        (tuple[Route, ...], ["a"], "not a TOML value"),
        (Mapping[str, int], "[1]", "not a table"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(kind: Any, given: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        convert(Setting("name", kind, None), given)


@pytest.mark.parametrize("given", [0, "0", 11, "2 MiB"])
def test_a_value_out_of_range_is_refused_with_the_range(given: Any) -> None:
    with pytest.raises(ValueError, match="expected a number from 1 to 10, got"):
        convert(Setting("tail_bytes", int, 5, low=1, high=10), given)

"""What is read back as JSON is an object of real numbers, or an error of one kind."""

import json

import pytest

from tests.support.damaged_json import DAMAGED_JSON
from timestone.disk.json_document import INT64_MAX, integer, integers, json_object


@pytest.mark.parametrize("document", DAMAGED_JSON.values(), ids=DAMAGED_JSON)
def test_what_is_no_sound_object_is_a_value_error_of_one_short_line(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"^.{1,200}$"):
        json_object(document)


def test_an_object_comes_back_as_it_was() -> None:
    value = {"a": [1, -1, (1 << 64) - 1, 1.5, None, True, "é"], "b": {"c": {}}}
    assert json_object(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("1", TypeError),
        (True, TypeError),
        (1.0, TypeError),
        (None, TypeError),
        (-1, ValueError),
        (INT64_MAX + 1, ValueError),
    ],
)
def test_an_integer_is_one_within_its_bounds(value: object, error: type[Exception]) -> None:
    assert integer(7) == 7 and integer(-1, -1) == -1
    with pytest.raises(error):
        integer(value)
    with pytest.raises(error):
        integers([3, value])


def test_integers_are_a_list() -> None:
    assert integers([]) == []
    with pytest.raises(TypeError, match="no list"):
        integers("12")

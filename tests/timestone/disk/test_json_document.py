"""JSON documents are decoded to objects of valid numbers, or raise one kind of error."""

import json

import pytest

from tests.support.damaged_json import DAMAGED_JSON
from timestone.disk.json_document import INT64_MAX, integer, integers, json_object


@pytest.mark.parametrize("document", DAMAGED_JSON.values(), ids=DAMAGED_JSON)
def test_decode_raises_a_short_value_error_when_the_object_is_not_valid(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"^.{1,200}$"):
        json_object(document)


def test_object_is_decoded_to_its_input() -> None:
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
def test_integer_is_refused_outside_its_bounds(value: object, error: type[Exception]) -> None:
    assert integer(7) == 7 and integer(-1, -1) == -1
    with pytest.raises(error):
        integer(value)
    with pytest.raises(error):
        integers([3, value])


def test_integers_accepts_only_a_list() -> None:
    assert integers([]) == []
    with pytest.raises(TypeError, match="expected a list"):
        integers("12")

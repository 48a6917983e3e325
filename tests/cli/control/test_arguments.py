"""Arguments of the requests of the control socket."""

from typing import Any

import pytest

from timestone_cli.control.arguments import InvalidRequest, number, optional, text


def test_arguments_are_returned_in_their_type() -> None:
    request = {"client": "pump", "after": 7, "user": None}
    assert text(request, "client") == "pump"
    assert (optional(request, "user"), optional(request, "client")) == (None, "pump")
    assert (number(request, "after", 0), number(request, "limit", 5)) == (7, 5)


@pytest.mark.parametrize("value", [True, -1, 1 << 63, 1.0, "1", None])
def test_number_refuses_what_is_none(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="invalid n: expected a whole number from 0"):
        number({"n": value}, "n", 0)


@pytest.mark.parametrize("value", [None, 1, ["a"]])
def test_text_refuses_what_is_none(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="invalid t: expected text"):
        text({"t": value}, "t")

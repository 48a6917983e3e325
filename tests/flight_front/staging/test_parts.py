"""Names of parts: what clients may call them."""

import pytest

from flight_front.calls import Call
from flight_front.errors import InvalidRequest
from flight_front.staging.parts import part_folder, part_place
from timestone_access.identity import Identity
from timestone_access.rights import ALL_RIGHTS


def call(user: str | None) -> Call:
    return Call(None, Identity(user), ALL_RIGHTS)


def test_users_with_the_same_group_have_folders_of_their_own() -> None:
    token = "0123456789abcdef" * 2
    assert part_place(call("a"), f"job-7/{token}") == (part_folder(call("a"), "job-7"), token)
    assert part_folder(call("a"), "job-7") != part_folder(call("b"), "job-7")


@pytest.mark.parametrize("name", ["", "job", "job/0", "../job/" + "0" * 32, "job/" + "0" * 33, 5])
def test_part_is_refused_when_its_name_is_not_from_an_answer(name: object) -> None:
    with pytest.raises(InvalidRequest, match="invalid part"):
        part_place(call("a"), name)

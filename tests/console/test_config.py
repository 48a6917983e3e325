from typing import Any

import pytest

from timestone_console.config import ConsoleConfig, Role
from timestone_console.problems import InvalidConfig

ANNA = {"anna": Role.READER}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"host": "0.0.0.0"}, "console.users"),
        ({"host": "192.0.2.1", "users": ANNA}, "console_certificate"),
        (
            {"host": "192.0.2.1", "users": ANNA, "certificate": "c", "key": "k", "anonymous": Role.READER},
            "login",
        ),
    ],
)
def test_address_beyond_loopback_is_refused_without_login_and_tls(
    settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidConfig, match=named):
        ConsoleConfig(**settings)


def test_address_beyond_loopback_is_taken_with_login_and_tls_or_a_proxy_that_has_it() -> None:
    assert ConsoleConfig(host="192.0.2.1", users=ANNA, certificate="c", key="k").has_tls
    assert not ConsoleConfig(host="192.0.2.1", users=ANNA, allow_plain=True).has_tls


def test_role_is_parsed_from_its_word() -> None:
    assert [Role.parse(word) for word in ("figures", "reader", "operator")] == [1, 2, 3]
    with pytest.raises(
        ValueError, match="invalid role: expected one of figures, reader, operator, got 'none'"
    ):
        Role.parse("none")

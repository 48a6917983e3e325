from pathlib import Path
from typing import Any

import pytest

from timestone_cli.settings.console import DEFAULT_ADDRESS, ConsoleSettings


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"listen": "0.0.0.0:9465"}, "console.users"),
        ({"listen": "192.0.2.1:1", "users": {"anna": "reader"}}, "certificate and key, or allow_plain"),
        ({"certificate": Path("c")}, "certificate and key together"),
        ({"listen": "nonsense"}, "console.listen"),
    ],
)
def test_console_that_would_show_the_store_to_others_is_refused_and_the_setting_named(
    settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        ConsoleSettings(**settings)


def test_console_listens_on_loopback_by_default() -> None:
    assert ConsoleSettings().address == ("127.0.0.1", 9465) and DEFAULT_ADDRESS.endswith(":9465")
    assert ConsoleSettings(listen=None).address is None
    users: dict[str, Any] = {"anna": "reader"}
    assert ConsoleSettings(listen="192.0.2.1:1", users=users, allow_plain=True).address is not None

import dataclasses
from pathlib import Path

import pytest

from flight_front.settings import FlightSettings

PASSWORDS = Path("passwords")


def test_every_setting_has_a_help_text() -> None:
    for setting in dataclasses.fields(FlightSettings):
        assert setting.metadata["help"], setting.name


def test_front_is_off_and_needs_no_login_by_default() -> None:
    settings = FlightSettings()
    assert settings.listen is None and not settings.knows_users


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"listen": "0.0.0.0:8815"}, "without authentication would allow every client"),
        ({"listen": "0.0.0.0:8815", "password_file": PASSWORDS}, "passwords in clear text"),
        ({"ack": "memory"}, "invalid ack: expected written or synced"),
        ({"key": Path("k")}, "key needs certificate"),
        ({"client_ca": Path("c")}, "client_ca needs certificate"),
        ({"user_from": "cn"}, "user_from needs client_ca"),
        ({"message_bytes": 1}, "invalid message_bytes: expected 65536 to 1073741824"),
    ],
)
def test_contradicting_settings_are_refused(settings: dict[str, object], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        FlightSettings(**settings)  # type: ignore[arg-type]


def test_listener_beyond_this_machine_is_allowed_with_login_and_tls() -> None:
    FlightSettings(listen="0.0.0.0:8815", password_file=PASSWORDS, certificate=Path("c"))
    FlightSettings(listen="0.0.0.0:8815", allow_anonymous_remote=True)

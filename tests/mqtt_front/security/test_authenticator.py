from importlib.metadata import EntryPoint

import pytest

from mqtt_front.security import authenticator
from mqtt_front.security.authenticator import UnknownAuthenticator, load_authenticator
from mqtt_front.security.identity import Credentials, Identity

HERE = "tests.mqtt_front.security.test_authenticator"


class Everybody:
    """Knows everybody under the name it was told to use."""

    def __init__(self, options: dict[str, str]) -> None:
        self.name = options["name"]

    def authenticate(self, credentials: Credentials) -> Identity:
        return Identity(self.name)


def test_an_installed_authenticator_is_made_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("everybody", f"{HERE}:Everybody", "timestone.mqtt.authenticators")
    monkeypatch.setattr(authenticator, "entry_points", lambda group: [entry] if group == entry.group else [])
    made = load_authenticator("everybody", {"name": "alice"})
    assert made.authenticate(Credentials()) == Identity("alice")


def test_one_that_is_not_installed_is_named_with_those_that_are() -> None:
    with pytest.raises(UnknownAuthenticator, match="no authenticator 'nobody' is installed; there are: "):
        load_authenticator("nobody", {})

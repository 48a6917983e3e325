from importlib.metadata import EntryPoint

import pytest

from timestone_access import authenticator
from timestone_access.authenticator import UnknownAuthenticator, load_authenticator
from timestone_access.identity import Credentials, Identity

HERE = "tests.access.test_authenticator"


class Everybody:
    """Accepts every client, under the configured name."""

    def __init__(self, options: dict[str, str]) -> None:
        self.name = options["name"]

    def authenticate(self, credentials: Credentials) -> Identity:
        return Identity(self.name)


def test_installed_authenticator_is_created_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("everybody", f"{HERE}:Everybody", "timestone.mqtt.authenticators")
    monkeypatch.setattr(authenticator, "entry_points", lambda group: [entry] if group == entry.group else [])
    made = load_authenticator("everybody", {"name": "alice"})
    assert made.authenticate(Credentials()) == Identity("alice")


def test_unknown_authenticator_is_refused_with_the_installed_ones() -> None:
    with pytest.raises(UnknownAuthenticator, match="unknown authenticator 'missing': expected one of "):
        load_authenticator("missing", {})


def test_authenticator_that_cannot_be_imported_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = EntryPoint("broken", "no_such_module:Login", "timestone.mqtt.authenticators")
    monkeypatch.setattr(authenticator, "entry_points", lambda group: [entry])
    with pytest.raises(UnknownAuthenticator, match=r"'broken' .* cannot be loaded: No module named"):
        load_authenticator("broken", {})

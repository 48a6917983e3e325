import logging
from pathlib import Path

import pytest

from mqtt_front.security.settings import SecuritySettings
from timestone_access.identity import Credentials, Identity, Refusal
from timestone_access.logins import Logins, read_logins
from timestone_access.passwords.password_file import BadPasswordFile, set_password

LOG = logging.getLogger("timestone.access")


def test_users_of_the_password_file_are_admitted(tmp_path: Path) -> None:
    set_password(tmp_path / "passwords", "alice", b"secret")
    logins = read_logins(SecuritySettings(password_file=tmp_path / "passwords"), LOG)
    alice = logins.authenticate(Credentials(user="alice", password=b"secret"))
    assert isinstance(alice, Identity) and alice.user == "alice" and logins.still_holds(alice)
    assert logins.authenticate(Credentials(user="bob", password=b"x")) == Refusal("unknown user 'bob'")
    assert not read_logins(SecuritySettings(), LOG).still_holds(alice)


def test_nothing_is_configured_by_default() -> None:
    assert read_logins(SecuritySettings(), LOG) == Logins((), None, None)


def test_unusable_file_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("alice\n")
    with pytest.raises(BadPasswordFile, match="passwords:1"):
        read_logins(SecuritySettings(password_file=tmp_path / "passwords"), LOG)

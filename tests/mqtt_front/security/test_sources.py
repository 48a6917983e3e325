import logging
from pathlib import Path

import pytest

from mqtt_front.security.settings import SecuritySettings
from mqtt_front.security.sources import Sources, read_sources
from timestone_access.access_file import BadAclFile
from timestone_access.authenticator import UnknownAuthenticator
from timestone_access.identity import Access, Credentials, Identity, Refusal, Rule
from timestone_access.passwords.password_file import set_password

LOG = logging.getLogger("timestone.mqtt")


@pytest.fixture
def files(tmp_path: Path) -> SecuritySettings:
    set_password(tmp_path / "passwords", "alice", b"secret")
    (tmp_path / "acl").write_text("topic read public\nuser alice\ntopic a/#\npattern write own/%c\n")
    return SecuritySettings(password_file=tmp_path / "passwords", acl_file=tmp_path / "acl")


def test_users_are_read_from_the_file(files: SecuritySettings) -> None:
    sources = read_sources(files, LOG)
    alice = sources.authenticate(Credentials("c", "alice", b"secret"))
    assert isinstance(alice, Identity) and alice.user == "alice"
    assert sources.still_holds(alice)
    assert sources.authenticate(Credentials("c", "bob", b"x")) == Refusal("unknown user 'bob'")


def test_permissions_combine_the_users_rules_and_the_patterns(files: SecuritySettings) -> None:
    sources = read_sources(files, LOG)
    alice = sources.permissions(Identity("alice"), "d1")
    nobody = sources.permissions(Identity(None), "d1")
    other = sources.permissions(Identity("bob"), "d1")
    assert alice is not None and nobody is not None and other is not None
    assert [each.may_read("a/1") for each in (alice, nobody, other)] == [True, False, False]
    assert [each.may_read("public") for each in (alice, nobody, other)] == [False, True, False]
    assert all(each.may_write("own/d1") and not each.may_write("own/d2") for each in (alice, nobody, other))


def test_rules_of_a_token_replace_those_of_the_file(files: SecuritySettings) -> None:
    rules = (Rule("t/%c", Access.READ),)
    permissions = read_sources(files, LOG).permissions(Identity("alice", "token", rules), "d1")
    assert permissions is not None
    assert permissions.may_read("t/d1")
    assert not permissions.may_read("a/1")
    assert not permissions.may_write("own/d1")


def test_everything_is_allowed_and_no_user_known_without_files() -> None:
    sources = read_sources(SecuritySettings(), LOG)
    assert sources == Sources((), None, None, None)
    assert sources.permissions(Identity("alice"), "c") is None
    assert sources.still_holds(Identity("alice", "certificate"))


def test_authenticators_are_asked_in_order_until_one_decides() -> None:
    asked = []

    class One:
        def __init__(self, answer: Identity | Refusal | None) -> None:
            self.answer = answer

        def authenticate(self, credentials: Credentials) -> Identity | Refusal | None:
            asked.append(self)
            return self.answer

    chain = (One(None), One(Refusal("no")), One(Identity("x")))
    assert Sources(chain, None, None, None).authenticate(Credentials()) == Refusal("no")
    assert asked == list(chain[:2])


def test_identity_of_a_removed_authenticator_is_no_longer_valid(files: SecuritySettings) -> None:
    alice = read_sources(files, LOG).authenticate(Credentials("c", "alice", b"secret"))
    assert isinstance(alice, Identity)
    assert not read_sources(SecuritySettings(), LOG).still_holds(alice)
    assert not read_sources(SecuritySettings(), LOG).still_holds(Identity("x", "token", proof="key"))


def test_unreadable_file_is_reported(files: SecuritySettings, tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("nonsense")
    with pytest.raises(BadAclFile, match="acl:1"):
        read_sources(files, LOG)
    with pytest.raises(FileNotFoundError):
        read_sources(SecuritySettings(password_file=tmp_path / "missing"), LOG)
    with pytest.raises(UnknownAuthenticator):
        read_sources(SecuritySettings(authenticators=("missing",)), LOG)


def test_world_readable_password_file_is_logged(
    files: SecuritySettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "passwords").chmod(0o644)
    read_sources(files, LOG)
    assert "is readable by every user of this machine" in caplog.text

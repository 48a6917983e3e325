import pytest

from mqtt_front.reasons import Reason
from mqtt_front.security.identity import Credentials, Identity, Refusal


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(Credentials("c", "alice", b"hunter2", "192.0.2.1"))
    assert "hunter2" not in repr(Identity("alice", "password", proof="hunter2"))


def test_an_identity_is_refused_when_its_user_is_not_text_in_utf_8() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        Identity("\ud800", "token")


def test_a_refusal_is_about_user_and_password_unless_it_says_otherwise() -> None:
    assert Refusal("no").reason is Reason.BAD_USER_NAME_OR_PASSWORD

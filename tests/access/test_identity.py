import pytest

from timestone_access.identity import Cause, Credentials, Identity, Refusal


def test_repr_hides_secrets() -> None:
    assert "hunter2" not in repr(Credentials("c", "alice", b"hunter2", "192.0.2.1"))
    assert "hunter2" not in repr(Identity("alice", "password", proof="hunter2"))


def test_identity_is_refused_when_its_user_is_not_valid_utf_8() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        Identity("\ud800", "token")


def test_refusal_has_the_reason_bad_user_or_password_by_default() -> None:
    assert Refusal("no").cause is Cause.CREDENTIALS

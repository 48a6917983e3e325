import ssl

import pytest

from mqtt_front.net.tls_faults import handshake_fault, no_tls


class Fault(ssl.SSLError):
    def __init__(self, reason: str | None) -> None:
        super().__init__(1, "text")
        self.named = reason

    @property
    def reason(self) -> str | None:  # type: ignore[override]
        return self.named


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("NO_SHARED_CIPHER", "it has no cipher suite in common with this server"),
        ("SOMETHING_NEW", "the TLS handshake failed: something new"),
        (None, "the TLS handshake failed: no reason given"),
    ],
)
def test_openssl_reason_is_explained_in_words(reason: str | None, words: str) -> None:
    assert handshake_fault(Fault(reason)) == words


@pytest.mark.parametrize("start", [b"\x16\x03\x01", b"\x16", b"\x80\x2e\x01"])
def test_handshake_of_any_version_is_left_to_openssl(start: bytes) -> None:
    assert no_tls(start) is None

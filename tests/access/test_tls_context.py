import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from mqtt_front.listener_settings import ListenerSettings
from tests.support.certificates import Authority, Certified, encrypt_key
from timestone_access.tls_context import BadTls, certificate_name, tls_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Certified:
    return authority.issue_server()


def context(server: Certified, **settings: Any) -> ssl.SSLContext:
    own = {"address": "127.0.0.1:0", "certificate": server.path, "key": server.key_path}
    return tls_context(ListenerSettings(**{**own, **settings}), protocols=["mqtt"])


def test_versions_before_tls_1_2_are_refused(server: Certified) -> None:
    assert context(server).minimum_version is ssl.TLSVersion.TLSv1_2
    assert context(server, tls_minimum="1.3").minimum_version is ssl.TLSVersion.TLSv1_3
    assert context(server).options & ssl.OP_NO_RENEGOTIATION


def test_client_certificates_are_requested_only_with_an_authority(
    server: Certified, authority: Authority, tmp_path: Path
) -> None:
    assert context(server).verify_mode is ssl.CERT_NONE
    assert context(server, client_ca=authority.path).verify_mode is ssl.CERT_OPTIONAL
    assert context(server, client_ca=tmp_path, require_certificate=True).verify_mode is ssl.CERT_REQUIRED


def test_certificate_and_key_may_share_a_file(server: Certified, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(server.path.read_bytes() + server.key_path.read_bytes())
    context(server, certificate=both, key=None)


def test_unusable_file_is_reported_by_name(server: Certified, authority: Authority, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("nothing")
    cut = tmp_path / "cut"
    cut.write_bytes(server.path.read_bytes()[:200])
    other = authority.issue("other")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"key": other.key_path}, "belong to different keys"),
        ({"certificate": text}, f"{text} does not contain a certificate in PEM"),
        ({"certificate": cut}, f"{cut} does not contain a certificate in PEM$"),
        (
            {"certificate": server.key_path, "key": server.path},
            f"{server.key_path} does not contain a certificate in PEM",
        ),
        ({"key": text}, f"{text} does not contain a private key in PEM$"),
        ({"key": encrypt_key(server, b"secret")}, "is encrypted"),
        ({"client_ca": text}, "does not contain a certificate"),
        ({"client_ca": authority.path, "client_crl": text}, "does not contain a certificate revocation list"),
        ({"ciphers": "NONSENSE"}, "expected names that OpenSSL supports"),
    ]
    for settings, complaint in cases:
        with pytest.raises(BadTls, match=complaint):
            context(server, **settings)
    for name in ("certificate", "key", "client_ca"):
        with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
            context(server, **{name: tmp_path / "missing.pem"})


def decoded(certified: Certified) -> dict[str, Any]:
    """As `getpeercert` gives it; the standard library can do that for a file, too, though not in public."""
    found: dict[str, Any] = ssl._ssl._test_decode_cert(str(certified.path))  # type: ignore[attr-defined]
    return found


def test_user_name_is_the_common_name(authority: Authority) -> None:
    assert certificate_name(decoded(authority.issue("device-7")), "cn") == "device-7"
    assert certificate_name(decoded(authority.issue("two", "names")), "cn") is None
    assert certificate_name(decoded(authority.issue(file="none")), "cn") is None
    assert certificate_name(decoded(authority.issue("a\x01b", file="odd")), "cn") is None


def test_user_name_is_the_first_alternative_name(authority: Authority) -> None:
    several = (x509.UniformResourceIdentifier("urn:device:7"), x509.DNSName("device-7.example"))
    found = decoded(authority.issue("cn", alternatives=several, file="several"))
    assert certificate_name(found, "san") == "urn:device:7"
    assert certificate_name(found, "cn") == "cn"
    assert certificate_name(decoded(authority.issue("only-cn")), "san") is None

import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from mqtt_front.listener_settings import ListenerSettings
from mqtt_front.net.tls_context import BadTls, certificate_name, tls_context
from tests.support.certificates import Authority, Certified, encrypt_key


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Certified:
    return authority.issue_server()


def context(server: Certified, **settings: Any) -> ssl.SSLContext:
    own = {"address": "127.0.0.1:0", "certificate": server.path, "key": server.key_path}
    return tls_context(ListenerSettings(**{**own, **settings}))


def test_nothing_older_than_tls_1_2_is_spoken(server: Certified) -> None:
    assert context(server).minimum_version is ssl.TLSVersion.TLSv1_2
    assert context(server, tls_minimum="1.3").minimum_version is ssl.TLSVersion.TLSv1_3
    assert context(server).options & ssl.OP_NO_RENEGOTIATION


def test_clients_are_asked_for_certificates_only_where_an_authority_is_named(
    server: Certified, authority: Authority, tmp_path: Path
) -> None:
    assert context(server).verify_mode is ssl.CERT_NONE
    assert context(server, client_ca=authority.path).verify_mode is ssl.CERT_OPTIONAL
    assert context(server, client_ca=tmp_path, require_certificate=True).verify_mode is ssl.CERT_REQUIRED


def test_certificate_and_key_may_be_in_one_file(server: Certified, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(server.path.read_bytes() + server.key_path.read_bytes())
    context(server, certificate=both, key=None)


def test_files_that_cannot_be_used_are_named(server: Certified, authority: Authority, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("nothing")
    cut = tmp_path / "cut"
    cut.write_bytes(server.path.read_bytes()[:200])
    other = authority.issue("other")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"key": other.key_path}, "belong to different keys"),
        ({"certificate": text}, f"{text} holds no certificate in PEM"),
        ({"certificate": cut}, f"{cut} holds no certificate in PEM$"),
        (
            {"certificate": server.key_path, "key": server.path},
            f"{server.key_path} holds no certificate in PEM",
        ),
        ({"key": text}, f"{text} holds no private key in PEM$"),
        ({"key": encrypt_key(server, b"secret")}, "is encrypted"),
        ({"client_ca": text}, "holds no certificate"),
        ({"client_ca": authority.path, "client_crl": text}, "holds no certificate revocation list"),
        ({"ciphers": "NONSENSE"}, "OpenSSL knows none of them"),
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


def test_the_name_is_the_one_common_name(authority: Authority) -> None:
    assert certificate_name(decoded(authority.issue("device-7")), "cn") == "device-7"
    assert certificate_name(decoded(authority.issue("two", "names")), "cn") is None
    assert certificate_name(decoded(authority.issue(file="none")), "cn") is None
    assert certificate_name(decoded(authority.issue("a\x01b", file="odd")), "cn") is None


def test_the_name_is_the_first_alternative_name(authority: Authority) -> None:
    several = (x509.UniformResourceIdentifier("urn:device:7"), x509.DNSName("device-7.example"))
    found = decoded(authority.issue("cn", alternatives=several, file="several"))
    assert certificate_name(found, "san") == "urn:device:7"
    assert certificate_name(found, "cn") == "cn"
    assert certificate_name(decoded(authority.issue("only-cn")), "san") is None

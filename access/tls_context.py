"""TLS settings of a listener as an SSLContext: versions, certificates, trusted CAs."""

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_MISMATCHES = ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED", "KEY_TYPE_MISMATCH")
"""Errors of OpenSSL for a key that does not belong to the certificate; the last for keys of different types."""


class TlsSettings(Protocol):
    """TLS settings of a listener."""

    @property
    def certificate(self) -> Path | None: ...
    @property
    def key(self) -> Path | None: ...
    @property
    def tls_minimum(self) -> str: ...
    @property
    def ciphers(self) -> str | None: ...
    @property
    def client_ca(self) -> Path | None: ...
    @property
    def client_crl(self) -> Path | None: ...
    @property
    def require_certificate(self) -> bool: ...


class BadTls(ValueError):
    """A file or value that TLS cannot use. The message names it."""


def tls_context(settings: TlsSettings, *, protocols: Sequence[str]) -> ssl.SSLContext:
    """Return the context for new connections. Reads files. protocols: names for ALPN. Raises OSError, BadTls."""
    assert settings.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.tls_minimum]
    # A client that may request new keys repeatedly could keep the event loop busy.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(protocols)
    if settings.ciphers is not None:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError:
            raise BadTls(
                f"invalid ciphers {settings.ciphers!r}: expected names that OpenSSL supports"
            ) from None
    _load_own(context, settings.certificate, settings.key or settings.certificate)
    if settings.client_ca is not None:
        _load_authorities(context, settings.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if settings.require_certificate else ssl.CERT_OPTIONAL
    if settings.client_crl is not None:
        _load_pem(context, settings.client_crl, "certificate revocation list")
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    return context


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        path.open("rb").close()  # OpenSSL's own error does not name the missing file
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason in _MISMATCHES:
            raise BadTls(f"certificate {certificate} and key {key} belong to different keys") from None
        # OpenSSL often gives no reason and never names the file.
        _load_pem(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, "certificate")
        if error.reason is None:
            raise BadTls(f"{key} does not contain a private key in PEM") from None
        raise BadTls(f"certificate {certificate} and key {key} cannot be used: {error.reason}") from None
    except _Encrypted:
        raise BadTls(f"key {key} is encrypted: expected a key without a password") from None


class _Encrypted(Exception):
    """The key file is encrypted."""


def _no_password() -> NoReturn:
    # Otherwise OpenSSL asks for a password on the terminal, and a server waits forever.
    raise _Encrypted


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    if path.is_dir():
        context.load_verify_locations(capath=path)
    else:
        _load_pem(context, path, "certificate")


def _load_pem(context: ssl.SSLContext, path: Path, what: str) -> None:
    path.open("rb").close()
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        reason = f": {error.reason}" if error.reason else ""
        raise BadTls(f"{path} does not contain a {what} in PEM{reason}") from None


def certificate_name(certificate: Mapping[str, Any], kind: str) -> str | None:
    """Return the name in a verified certificate: its only common name ("cn") or its first alternative name ("san");
    None if there is none or an ambiguous one. certificate: result of `SSLObject.getpeercert`."""
    if kind == "cn":
        parts = [pair for group in certificate.get("subject", ()) for pair in group]
        names = [value for name, value in parts if name == "commonName"]
        found = names[0] if len(names) == 1 else None
    else:
        alternatives = certificate.get("subjectAltName", ())
        found = next((value for kind, value in alternatives if kind in ("DNS", "URI", "email")), None)
    return found if isinstance(found, str) and found and found.isprintable() else None

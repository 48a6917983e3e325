"""A listener's side of TLS: versions, certificates, and whose certificates it believes."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_MISMATCHES = ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED", "KEY_TYPE_MISMATCH")
"""What OpenSSL says of a key that is not the certificate's; the second one where they are of two kinds."""


class TlsSettings(Protocol):
    """What of a listener's settings is about TLS."""

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
    @property
    def websocket(self) -> bool: ...


class BadTls(ValueError):
    """A file or word that TLS cannot use. The text names it."""


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """A context for new connections. Reads files. Raises OSError and BadTls."""
    assert settings.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.tls_minimum]
    # A client that could ask for new keys again and again could keep the event loop busy.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"] if settings.websocket else ["mqtt"])
    if settings.ciphers is not None:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError:
            raise BadTls(f"ciphers {settings.ciphers!r}: OpenSSL knows none of them") from None
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
        path.open("rb").close()  # OpenSSL's own error does not say which of them is missing
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason in _MISMATCHES:
            raise BadTls(f"certificate {certificate} and key {key} belong to different keys") from None
        # OpenSSL mostly has no reason to give here, and never says which file it means.
        _load_pem(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, "certificate")
        if error.reason is None:
            raise BadTls(f"{key} holds no private key in PEM") from None
        raise BadTls(f"certificate {certificate} and key {key} cannot be used: {error.reason}") from None
    except _Encrypted:
        raise BadTls(f"key {key} is encrypted: nobody is there to type its password") from None


class _Encrypted(Exception):
    """The key file is encrypted."""


def _no_password() -> NoReturn:
    # Without this OpenSSL would ask on the terminal, and a server would wait there without end.
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
        raise BadTls(f"{path} holds no {what} in PEM{reason}") from None


def certificate_name(certificate: Mapping[str, Any], kind: str) -> str | None:
    """The name of a verified certificate: its one common name ("cn"), or its first alternative name ("san").

    None when there is none, or one that could be read in two ways. `certificate` is what `SSLObject.getpeercert`
    gives.
    """
    if kind == "cn":
        parts = [pair for group in certificate.get("subject", ()) for pair in group]
        names = [value for name, value in parts if name == "commonName"]
        found = names[0] if len(names) == 1 else None
    else:
        alternatives = certificate.get("subjectAltName", ())
        found = next((value for kind, value in alternatives if kind in ("DNS", "URI", "email")), None)
    return found if isinstance(found, str) and found and found.isprintable() else None

"""TLS of the listener: files that were checked, in gRPC's form. gRPC brings its own TLS, from version 1.2 on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from flight_front.settings import ListenerSettings
from timestone_access.tls_context import tls_context


@dataclass(frozen=True, slots=True)
class _Files:
    """Settings for the check of the files."""

    certificate: Path | None
    key: Path | None
    client_ca: Path | None
    require_certificate: bool
    tls_minimum: str = "1.2"
    ciphers: str | None = None
    client_crl: Path | None = None


def read_certificates(settings: ListenerSettings) -> Any:
    """Return the certificates for new connections; None without TLS. Raises ValueError, which names the file."""
    if settings.certificate is None:
        return None
    files = _Files(settings.certificate, settings.key, settings.client_ca, settings.client_ca is not None)
    try:
        # Errors of gRPC do not name the file, and come with the first client.
        tls_context(files, protocols=["h2"])
        key = (settings.key or settings.certificate).read_bytes()
        chain = settings.certificate.read_bytes()
        authorities = None if settings.client_ca is None else settings.client_ca.read_bytes()
    except OSError as error:
        raise ValueError(f"{error.filename}: {error.strerror}") from error
    return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=authorities)

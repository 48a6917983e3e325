"""Certificate authorities and certificates for tests, made quickly: elliptic curves, valid from yesterday on."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certified:
    """A certificate, its key, and their files."""

    certificate: x509.Certificate
    private: ec.EllipticCurvePrivateKey
    path: Path
    key_path: Path


class Authority:
    """A certificate authority that writes into a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._private = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(self._name, self._name, self._private, 0, 365)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = builder.sign(self._private, hashes.SHA256())
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        *common_names: str,
        days: int = 30,
        alternatives: tuple[x509.GeneralName, ...] = (),
        file: str = "",
    ) -> Certified:
        """Return a certificate for these names; with negative `days` an expired one."""
        private = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in common_names])
        builder = _builder(subject, self._name, private, min(days, 0), max(days, 0))
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(self._private, hashes.SHA256())
        stem = file or "-".join(common_names) or "nameless"
        path, key_path = self._directory / f"{stem}.pem", self._directory / f"{stem}.key"
        path.write_bytes(certificate.public_bytes(Encoding.PEM))
        key_path.write_bytes(_private_pem(private, NoEncryption()))
        return Certified(certificate, private, path, key_path)

    def issue_server(self, *, days: int = 30, file: str = "server", is_named: bool = True) -> Certified:
        """Return a certificate for a server on this machine, with a common name or without."""
        here = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        return self.issue(*["localhost"][:is_named], days=days, alternatives=here, file=file)

    def revoke(self, *revoked: Certified, file: str = "crl.pem") -> Path:
        """Return a revocation list with these certificates."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - _DAY).next_update(now + _DAY)
        for each in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(each.certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(now - _DAY).build())
        path = self._directory / file
        path.write_bytes(builder.sign(self._private, hashes.SHA256()).public_bytes(Encoding.PEM))
        return path


def encrypt_key(certified: Certified, password: bytes) -> Path:
    """Write the key into a file that needs a password."""
    path = certified.key_path.with_suffix(".encrypted")
    path.write_bytes(_private_pem(certified.private, BestAvailableEncryption(password)))
    return path


def _private_pem(private: ec.EllipticCurvePrivateKey, encryption: KeySerializationEncryption) -> bytes:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def _builder(
    subject: x509.Name, issuer: x509.Name, private: ec.EllipticCurvePrivateKey, from_days: int, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    start, end = now + (from_days - 1) * _DAY, now + (days or -0.5) * _DAY
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    builder = builder.public_key(private.public_key()).serial_number(x509.random_serial_number())
    return builder.not_valid_before(start).not_valid_after(end)

"""Where a cluster is: its endpoints of etcd and its name, as one text."""

import ssl
from pathlib import Path
from typing import NamedTuple

from timestone.address import parse_address, shown_address
from timestone_cluster.etcd.client import EtcdClient, Login
from timestone_cluster.etcd.keys import ClusterKeys

_SCHEME = "etcd://"
_PASSWORD_BYTES = 1024


class Certificates(NamedTuple):
    """PEM files: who signs for all, and the own certificate with its key."""

    ca: Path
    certificate: Path
    key: Path

    def client_context(self) -> ssl.SSLContext:
        """Return the context of connections that are dialled. Raises OSError, SSLError."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.certificate, self.key)
        return context

    def server_context(self) -> ssl.SSLContext:
        """Return the context of connections that are accepted, which need a certificate. Raises OSError, SSLError."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.load_cert_chain(self.certificate, self.key)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


class ClusterAddress(NamedTuple):
    """Endpoints of etcd, and the name of a cluster there."""

    endpoints: tuple[tuple[str, int], ...]
    keys: ClusterKeys

    @classmethod
    def parse(cls, text: str) -> "ClusterAddress":
        """Return the parts of `etcd://HOST:PORT[,HOST:PORT…]/NAME`. Raises ValueError."""
        rest, slash, name = text.removeprefix(_SCHEME).partition("/")
        if not text.startswith(_SCHEME) or not slash or not name or not set(name) <= _LETTERS:
            raise ValueError(
                f"invalid cluster: expected etcd://HOST:PORT,…/NAME, as in etcd://127.0.0.1:2379/plant, got {text!r}"
            )
        return cls(tuple(parse_address(one, setting="cluster") for one in rest.split(",")), ClusterKeys(name))

    def client(self, certificates: Certificates | None, login: Login | None = None) -> EtcdClient:
        """Return a client, with TLS if there are certificates. Raises OSError, SSLError."""
        scheme = "http" if certificates is None else "https"
        urls = [f"{scheme}://{shown_address(*one)}" for one in self.endpoints]
        verify = None if certificates is None else certificates.client_context()
        return EtcdClient(urls, verify=verify, login=login)


def read_login(user: str | None, password_file: Path | None) -> Login | None:
    """Return the user of etcd whose password is the first line of a file; None without a user. Raises ValueError,
    OSError."""
    if (user is None) != (password_file is None):
        raise ValueError("expected a user of etcd and the file with its password together")
    if user is None or password_file is None:
        return None
    with password_file.open("rb") as file:
        line = file.readline(_PASSWORD_BYTES + 1).rstrip(b"\r\n")
    if not 0 < len(line) <= _PASSWORD_BYTES:
        raise ValueError(f"invalid password in {password_file}: expected 1 to {_PASSWORD_BYTES} bytes")
    return Login(user, line.decode())


_LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")

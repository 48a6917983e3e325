"""Where a cluster is: its endpoints of etcd and its name, as one text."""

import ssl
from pathlib import Path
from typing import NamedTuple

from timestone.address import parse_address, shown_address
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.keys import ClusterKeys

_SCHEME = "etcd://"


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

    def client(self, certificates: Certificates | None) -> EtcdClient:
        """Return a client, with TLS if there are certificates. Raises OSError, SSLError."""
        scheme = "http" if certificates is None else "https"
        urls = [f"{scheme}://{shown_address(*one)}" for one in self.endpoints]
        return EtcdClient(urls, verify=True if certificates is None else certificates.client_context())


_LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")

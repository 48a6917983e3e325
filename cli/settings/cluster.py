"""Settings of a node of a cluster, which `serve --cluster` starts."""

from dataclasses import dataclass, field
from pathlib import Path

from timestone.address import is_loopback, parse_address
from timestone.settings_schema import Declared, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings(Declared):
    """Table `[cluster]`. Raises ValueError for contradicting settings."""

    etcd: str | None = setting(
        None,
        "run a node of this cluster: etcd://HOST:PORT,HOST:PORT/NAME; MQTT only if --mqtt is given; none: no cluster",
        metavar="URL",
    )
    user: str | None = setting(None, "user of etcd, where etcd has users", metavar="NAME")
    password_file: Path | None = field(
        default=None, metadata={"help": "file whose first line is the password of that user"}
    )
    name: str = setting("", "name of the node, for people; none: the name of the machine")
    zone: str = setting(
        "",
        "what fails together with this node: replicas of a shard are in different zones while there are any; "
        "none: the machine",
    )
    weight: int = setting(
        1, "share of the replicas that this node holds, beside the weights of others", low=1, high=1000
    )
    listen: str = setting(
        "127.0.0.1:0",
        "address for other nodes and for clients of the cluster; port 0 takes a free one; beyond loopback it needs "
        "certificates",
        metavar="HOST:PORT",
    )
    advertise: str | None = setting(
        None,
        "address by which others reach this node, if it is not the one it listens on",
        metavar="HOST:PORT",
    )
    will_grace_s: int = setting(
        10,
        "time for clients of a node that was lost to connect again before their wills are published",
        low=0,
        high=3600,
    )
    ca: Path | None = field(
        default=None,
        metadata={"help": "PEM file with who signs the certificates of etcd and of all nodes"},
    )
    certificate: Path | None = field(
        default=None,
        metadata={"help": "PEM file with the certificate that the node shows to etcd and to nodes"},
    )
    key: Path | None = field(default=None, metadata={"help": "PEM file with the key of that certificate"})

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        given = [self.ca is not None, self.certificate is not None, self.key is not None]
        if any(given) and not all(given):
            raise ValueError("expected ca, certificate and key together")
        if (self.user is None) != (self.password_file is None):
            raise ValueError("expected user and password_file together")
        host, _ = parse_address(self.listen, setting="listen")
        if self.advertise is not None:
            parse_address(self.advertise, setting="advertise")
        if not is_loopback(host) and not all(given):
            raise ValueError(
                f"listen = {self.listen} lets other machines append without a login: set ca, certificate and key"
            )

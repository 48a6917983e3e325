"""Ids in folders: a node's own, and of its replicas.

All replicas of a log have one id, by which fronts know it again on another node."""

import hashlib
import json
import secrets
from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names
from timestone.format.folder_listing import is_begun
from timestone.format.identity import LogIdentity
from timestone.format.topics import create_topics_file
from timestone.store import Store
from timestone_cluster.errors import WrongCluster

IDENTITY_NAME = "NODE"


def replica_id(cluster: str, name: str, partition: int) -> int:
    """Return the id of a log of a cluster."""
    text = f"{cluster}/{names.log_folder(name, partition)}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def make_replica_folder(store: Store, name: str, partition: int, log_id: int) -> None:
    """Make the folder of a log with this id, unless the log exists; `Store.log` opens it. Raises OSError."""
    folder = store.path / names.log_folder(name, partition)
    if folder.name not in store.files.names(store.path):
        store.files.make_directory(folder)
    elif not is_begun(store.files.names(folder)):
        return
    identity = LogIdentity(log_id, name, partition, store.now_us())
    create_topics_file(store.files, folder / names.TOPICS_NAME, identity)
    store.files.sync_directory(folder)


def identity(files: Files, folder: Path, cluster: str) -> str:
    """Return the id of the node whose data this folder has; made at its first start. Raises WrongCluster, OSError."""
    path = folder / IDENTITY_NAME
    try:
        found = json.loads(path.read_bytes())
        node, owner = str(found["node"]), str(found["cluster"])
    except FileNotFoundError:
        node, owner = secrets.token_hex(8), cluster
        unfinished = path.with_name(path.name + ".tmp")
        unfinished.unlink(missing_ok=True)
        files.write_file(unfinished, json.dumps({"node": node, "cluster": cluster}).encode() + b"\n")
        files.rename(unfinished, path)
        files.sync_directory(folder)
    except (ValueError, KeyError, TypeError) as error:
        raise WrongCluster(f"{path} is not valid: {error!r}") from None
    if owner != cluster:
        raise WrongCluster(f"{folder} belongs to the cluster {owner}, and etcd has the cluster {cluster}")
    return node

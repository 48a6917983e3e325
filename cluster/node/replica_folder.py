"""Folder of a new replica. All replicas of a log have one id, by which fronts know it again on another node."""

import hashlib

from timestone.format import names
from timestone.format.folder_listing import is_begun
from timestone.format.identity import LogIdentity
from timestone.format.topics import create_topics_file
from timestone.store import Store


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

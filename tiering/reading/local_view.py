"""Views of a store on the local disk that read what only its bucket has: for `timestone read` and other processes.

The owner of the store notes where its bucket is, without credentials, and keeps copies of its manifests. A view has a
cache of its own in a temporary folder."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from timestone.disk.files import Files
from timestone.disk.json_document import json_object
from timestone.format.names import TEMPORARY_SUFFIX
from timestone.reading.remote_history import RemoteHistory
from timestone.view import LogView, StoreView

from ..buckets.bucket import Bucket
from ..buckets.bucket_url import open_bucket
from ..config import TierConfig
from ..errors import DamagedObject
from ..objects.layout import LogPlace, short_hash
from .fetched_segments import FetchedSegments
from .histories import Histories, newest_copy
from .temporary_folder import TemporaryFolder

FOLDER = "tier"
"""Of a store: what was fetched from a bucket, copies of its manifests, and SOURCE."""
SOURCE = "source.json"
"""Which bucket: its URL, endpoint and region."""


def note_source(files: Files, store: Path, config: TierConfig) -> None:
    """Note which bucket a store has, for views. Raises OSError."""
    path = store / FOLDER / SOURCE
    fields = {"url": config.url, "endpoint": config.endpoint, "region": config.region}
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with suppress(FileNotFoundError):
        files.unlink(temporary)
    files.write_file(temporary, json.dumps(fields).encode())
    files.rename(temporary, path)


def folder_of_copies(store: Path, bucket: Bucket) -> Path:
    """Return the folder with the copies of manifests of one bucket."""
    return store / FOLDER / short_hash((bucket.url.encode(),))


@contextmanager
def remote_history(view: StoreView, *, bucket: Bucket | None = None) -> Iterator[None]:
    """Within the block, logs that the view opens also have what only the bucket of their store has. No effect for a
    store without one. bucket: another one than that of the store.

    Raises DamagedObject when what the owner has noted cannot be used, TieringError, OSError."""
    config = _source(view.path)
    if config is None or config.url is None:
        yield
        return
    chosen = bucket or open_bucket(config.url, endpoint=config.endpoint, region=config.region)
    with TemporaryFolder() as folder:
        fetched = FetchedSegments(folder.path / "cache", config.cache_bytes, files=view.files)
        copies = folder_of_copies(view.path, chosen)
        histories = Histories(copies, fetched, view.files, view.open_segments)

        def history_of(log: LogView) -> RemoteHistory | None:
            return histories.known(chosen, LogPlace(log.id, log.name, log.partition))

        view.history_of = history_of
        try:
            yield
        finally:
            view.open_segments.clear()


def bucket_starts(store: Path, files: Files) -> Callable[[int, str, int], int | None]:
    """Return a function that says for the id, name and partition of a log where its history in the bucket of a store
    begins, as far as the store knows; None without one. Asks nothing of the bucket. Raises DamagedObject when what the
    owner has noted cannot be used, TieringError."""
    config = _source(store)
    if config is None or config.url is None:
        return lambda log_id, name, partition: None
    bucket = open_bucket(config.url, endpoint=config.endpoint, region=config.region)
    copies = folder_of_copies(store, bucket)

    def start_of(log_id: int, name: str, partition: int) -> int | None:
        manifest = newest_copy(files, copies, LogPlace(log_id, name, partition))
        return None if manifest is None or manifest.start == manifest.end else manifest.start

    return start_of


def _source(store: Path) -> TierConfig | None:
    path = store / FOLDER / SOURCE
    try:
        fields = json_object(path.read_bytes())
        return TierConfig(url=fields.get("url"), endpoint=fields.get("endpoint"), region=fields.get("region"))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise DamagedObject(str(path), str(error)) from error

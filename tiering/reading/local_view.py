"""Views of a store on the local disk that read what only its bucket has: for `timestone read` and other processes.

The owner of the store notes where its bucket is, without credentials, and keeps copies of its manifests. A view has a
cache of its own in a temporary folder."""

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from timestone.disk.files import Files
from timestone.disk.json_document import json_object
from timestone.format.names import TEMPORARY_SUFFIX
from timestone.reading.remote_history import RemoteHistory, reaching
from timestone.view import LogView, StoreView

from ..buckets.bucket import Bucket
from ..buckets.bucket_url import open_bucket
from ..config import TierConfig
from ..errors import BucketError, DamagedObject
from ..objects.layout import LogPlace, short_hash
from .fetched_segments import FetchedSegments
from .histories import Histories, newest_copy
from .temporary_folder import TemporaryFolder

_LOGGER = logging.getLogger("timestone.tiering")
FOLDER = "tier"
"""Of a store: what was fetched from a bucket, copies of its manifests, SOURCE and ERROR."""
SOURCE = "source.json"
"""Which bucket: its URL, endpoint and region; and the names of logs that are not uploaded."""
ERROR = "error.json"
"""Why the last upload failed. Only while it is so."""


def note_source(files: Files, store: Path, config: TierConfig, left_out: Collection[str]) -> None:
    """Note which bucket a store has, for views. left_out: names of logs that are not uploaded. Raises OSError."""
    _note(
        files,
        store / FOLDER / SOURCE,
        {
            "url": config.url,
            "endpoint": config.endpoint,
            "region": config.region,
            "left_out": sorted(left_out),
        },
    )


def note_error(files: Files, store: Path, error: str) -> None:
    """Note why the last upload failed, for `timestone inspect`; empty: it did not. Raises OSError."""
    path = store / FOLDER / ERROR
    if error:
        _note(files, path, {"error": error})
    else:
        with suppress(FileNotFoundError):
            files.unlink(path)


def _note(files: Files, path: Path, fields: Mapping[str, str | list[str] | None]) -> None:
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
    config = noted_source(view.path)
    if config is None or config.url is None:
        yield
        return
    chosen = bucket or open_bucket(config.url, endpoint=config.endpoint, region=config.region)
    with TemporaryFolder() as folder:
        fetched = FetchedSegments(folder.path / "cache", config.cache_bytes, files=view.files)
        copies = folder_of_copies(view.path, chosen)
        histories = Histories(copies, fetched, view.files, view.open_segments)

        def history_of(log: LogView) -> RemoteHistory | None:
            place = LogPlace(log.id, log.name, log.partition)
            known = histories.known(chosen, place)
            if not log.is_replicated or log.local_start_offset <= (0 if known is None else known.end):
                return known
            # It begins where its leader does, and has not asked since what the leader had uploaded before.
            try:
                return histories.newest(chosen, place)
            except BucketError as error:
                _LOGGER.warning("%s: what its bucket has is not known: %s", log.folder, error)
                return reaching(log.local_start_offset, known, log.folder, log.id, view)

        view.history_of = history_of
        try:
            yield
        finally:
            view.open_segments.clear()


class NotedBucket:
    """What a store has noted about its bucket, which is not asked: `NotedBucket` of `inspect_store`."""

    def __init__(self, store: Path, files: Files, bucket: Bucket, left_out: Collection[str]) -> None:
        """left_out: names of logs that are not uploaded. Raises DamagedObject when the note of the last error cannot be
        used."""
        self.url = bucket.url
        self.error = _noted_error(store)
        self._left_out = left_out
        self._files = files
        self._copies = folder_of_copies(store, bucket)

    def keeps(self, name: str) -> bool:
        """Return whether logs of this name are uploaded."""
        return name not in self._left_out

    def range_of(self, log_id: int, name: str, partition: int) -> tuple[int, int] | None:
        """Return the offsets [start, end) that the bucket has of a log; None for none."""
        manifest = newest_copy(self._files, self._copies, LogPlace(log_id, name, partition))
        return None if manifest is None or manifest.start == manifest.end else (manifest.start, manifest.end)


def noted_bucket(store: Path, files: Files) -> NotedBucket | None:
    """Return what a store has noted about its bucket; None for a store without one. Raises DamagedObject when the notes
    cannot be used, TieringError."""
    noted = _noted_source(store)
    if noted is None:
        return None
    config, left_out = noted
    if config.url is None:
        return None
    bucket = open_bucket(config.url, endpoint=config.endpoint, region=config.region)
    return NotedBucket(store, files, bucket, left_out)


def noted_source(store: Path) -> TierConfig | None:
    """Return the bucket that the owner of a store has noted; None for a store without one. Raises DamagedObject,
    OSError."""
    noted = _noted_source(store)
    return None if noted is None else noted[0]


def _noted_source(store: Path) -> tuple[TierConfig, frozenset[str]] | None:
    """Return the bucket that was noted, and the names of logs that are not uploaded to it."""
    path = store / FOLDER / SOURCE
    try:
        fields = json_object(path.read_bytes())
        config = TierConfig(
            url=fields.get("url"), endpoint=fields.get("endpoint"), region=fields.get("region")
        )
        return config, frozenset(fields.get("left_out", ()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise DamagedObject(str(path), str(error)) from error


def _noted_error(store: Path) -> str:
    path = store / FOLDER / ERROR
    try:
        return str(json_object(path.read_bytes())["error"])
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError) as error:
        raise DamagedObject(str(path), str(error)) from error

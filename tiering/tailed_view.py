"""A bucket together with the store that uploads to it: `timestone.view("s3://bucket/prefix", tail="data")`.

What is on the disk of the store is read there, up to its newest record, and what is below comes from the bucket. A
local segment is deleted only when the bucket has it, and the bucket is asked after the files of the store were listed:
so there is no gap between the two, and each offset is read from one of them."""

import os
from pathlib import Path

from timestone.reading.remote_history import RemoteHistory
from timestone.view import LogView, StoreView

from .buckets.bucket import Bucket
from .buckets.bucket_url import open_bucket
from .errors import TieringError
from .objects.layout import LogPlace
from .reading.fetched_segments import FetchedSegments, FetchStatus
from .reading.histories import Histories
from .reading.shared_segments import SharedSegments
from .reading.temporary_folder import TemporaryFolder
from .uploading.ownership import SPACE
from .view import CACHE_BYTES


def view_with_tail(
    url: str,
    tail: str | os.PathLike[str],
    *,
    endpoint: str | None = None,
    region: str | None = None,
    shared: Path | None = None,
) -> "TailedView":
    """Read the logs of a store from the start that they have in its bucket. tail: folder of the store, which a server
    may own. endpoint, region: instead of those of the environment. shared: a folder for fetched segments that several
    processes use at the same time, instead of a temporary one.

    Raises NotAStore, TieringError for a URL that is not valid or that the store does not upload to."""
    return TailedView(open_bucket(url, endpoint=endpoint, region=region), Path(tail), shared=shared)


class TailedView(StoreView):
    """The logs of a store, with what only its bucket has. Made by `view_with_tail`; usable from any thread. Reads below
    the local start raise HistoryUnavailable while the bucket does not answer."""

    def __init__(self, bucket: Bucket, tail: Path, *, shared: Path | None = None) -> None:
        """See `view_with_tail`."""
        super().__init__(tail)
        self.bucket = bucket
        urls = sorted(self.documents(SPACE))
        if bucket.url not in urls:
            raise TieringError(
                f"invalid tail {tail}: expected the store that uploads to {bucket.url}, got one that uploads to "
                f"{', '.join(urls) or 'no bucket'}"
            )
        self._temporary = TemporaryFolder()
        folder = self._temporary.path
        self._fetched = (
            FetchedSegments(folder / "segments", CACHE_BYTES, files=self.files)
            if shared is None
            else SharedSegments(shared, CACHE_BYTES, files=self.files)
        )
        self._histories = Histories(folder, self._fetched, self.files, self.open_segments)
        self.history_of = self._history_of

    @property
    def location(self) -> str:
        return f"{self.bucket.url} and {self.path}"

    def fetch_status(self) -> FetchStatus:
        """Counters of fetched segments, and the contents of the cache."""
        return self._fetched.status()

    def close(self) -> None:
        """Close the logs, and remove what was fetched."""
        super().close()
        self._temporary.close()

    def _history_of(self, log: LogView) -> RemoteHistory | None:
        return self._histories.newest(self.bucket, LogPlace(log.id, log.name, log.partition))

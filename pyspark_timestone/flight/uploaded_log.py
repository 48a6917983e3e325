"""What the bucket of a server, or of a cluster, has of one of its logs: in the place of what its disks have no more."""

from collections.abc import Callable
from functools import cached_property

from timestone import LogView
from timestone_tiering import BucketView
from timestone_tiering.objects.layout import LogPlace


class OpenedBucket:
    """View of a bucket, opened when it is first needed: a stream that follows the end of its logs needs none."""

    def __init__(self, opening: Callable[[], BucketView]) -> None:
        """opening: raises TieringError, OSError."""
        self._opening = opening
        self._is_open = False

    @cached_property
    def view(self) -> BucketView:
        """The view. Raises TieringError, OSError."""
        view = self._opening()
        self._is_open = True
        return view

    def close(self) -> None:
        """Close the view, and remove what was fetched."""
        if self._is_open:
            self.view.close()


class UploadedLog:
    """A log in a bucket, as of the newest manifest when it is first needed."""

    def __init__(self, bucket: OpenedBucket, place: LogPlace) -> None:
        self._bucket, self._place = bucket, place
        self._log: LogView | None = None

    @property
    def log(self) -> LogView | None:
        """The log; None while nothing of it was uploaded. Raises TieringError, OSError."""
        if self._log is None:
            self._log = self._bucket.view.log_at(self._place)
        return self._log

    @property
    def range(self) -> tuple[int, int]:
        """Return the offsets [start, end) that are there. Raises as `log`."""
        log = self.log
        return (0, 0) if log is None else (log.start_offset, log.end_offset)

    def look_again(self) -> None:
        """Have the next use look for a newer manifest."""
        self._log = None

    @property
    def location(self) -> str:
        """Return the URL, for messages."""
        return self._bucket.view.location

"""A sealed segment in a bucket, read like one on the disk: its files are fetched when they are opened."""

from timestone.disk.files import Files
from timestone.errors import HistoryUnavailable
from timestone.segment import OpenPair, Segment, SegmentCache

from ..errors import TieringError
from ..objects.manifest import StoredDictionary, StoredSegment
from ..objects.manifests import LogObjects
from .fetched_segments import FetchedSegments


class RemoteSegment(Segment):
    """Records [base, end) of a log, in a bucket. A call that reads a file of it may wait for the network, and raises
    HistoryUnavailable when the bucket does not answer or has other bytes."""

    def __init__(
        self,
        fetched: FetchedSegments,
        objects: LogObjects,
        stored: StoredSegment,
        dictionary: StoredDictionary | None,
        files: Files,
        open_segments: SegmentCache,
    ) -> None:
        """dictionary: see `dictionary_of`."""
        super().__init__(
            files,
            fetched.folder_of(objects, stored),
            stored.base,
            stored.trailer.log_id,
            open_segments,
            trailer=stored.trailer,
            epoch=stored.epoch,
        )
        self.stored = stored
        self._fetched = fetched
        self._objects = objects
        self._dictionary = dictionary

    def _open_pair(self) -> OpenPair:
        try:
            with self._fetched.use(self._objects, self.stored, self._dictionary):
                return super()._open_pair()
        except TieringError as error:
            raise self._unavailable(error) from error

    def first_at_or_after(self, timestamp_us: int) -> int:
        """Return the first ordinal with a timestamp at or after the given one; fetches nothing when the trailer says
        it."""
        trailer = self.stored.trailer
        if timestamp_us <= trailer.first_timestamp_us:
            return 0
        if timestamp_us > trailer.last_timestamp_us > 0:
            return self.count
        return super().first_at_or_after(timestamp_us)

    def _index_bytes(self, position: int, length_bytes: int) -> bytes:
        """Read a part of the index: from the bucket, when the segment is not there, because few segments that are asked
        for their topics are read."""
        if self._pair is not None or self._fetched.holds(self._objects, self.stored):
            return bytes(self._opened().index_map[position : position + length_bytes])
        if not length_bytes:
            return b""
        try:
            name = self._objects.name_of(self.stored.index)
            with self._fetched.asking():
                return self._objects.bucket.read_range(name, position, length_bytes)
        except TieringError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: TieringError) -> HistoryUnavailable:
        return HistoryUnavailable(self.base_offset, self.end_offset, str(error))

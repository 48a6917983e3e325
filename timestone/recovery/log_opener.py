"""Opening of a log: from the files of its folder to the topic dictionary, what recovery found, and the segments to
serve."""

import functools
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from timestone.config import Recovery
from timestone.disk.catalog import CatalogRow
from timestone.disk.files import Files
from timestone.errors import CorruptLog
from timestone.format import names
from timestone.format.deleted_files import finish_deletions
from timestone.format.folder_listing import known_missing, listed_bases
from timestone.format.identity import LogIdentity, identity_from_indexes
from timestone.format.topics import TopicDictionary, create_topics_file
from timestone.reading.segment_cache import SegmentCache
from timestone.reading.segment_list import LostRange, SegmentList
from timestone.recovery.opening_progress import Progress
from timestone.recovery.recover import LogRecovery, Recovered
from timestone.recovery.segment_report import SegmentScan
from timestone.segment import Segment
from timestone.writing.active_segment import LogPlace

_LOGGER = logging.getLogger("timestone")


class OpenedLog(NamedTuple):
    """Parts of a log. The topic dictionary has to be closed."""

    place: LogPlace
    topics: TopicDictionary
    recovered: Recovered
    segment_list: SegmentList


@dataclass(frozen=True, slots=True)
class LogOpener:
    """Opens the logs of a store. The caller holds its lock."""

    files: Files
    path: Path
    mode: Recovery
    open_segments: SegmentCache
    boot_id: bytes
    now_us: Callable[[], int]

    def open(
        self,
        name: str,
        partition: int,
        row: CatalogRow,
        *,
        remember: Callable[[int, int], bool],
        progress: Progress,
        at_once: bool = True,
        is_replicated: bool = False,
    ) -> OpenedLog:
        """Open the log in its folder. row: what the catalogue knows of it. remember and others: see `LogRecovery.run`.
        Raises CorruptLog, UnsupportedFormat, LogFailed, OSError."""
        folder = self.path / names.log_folder(name, partition)
        topics = self._topics(name, partition, folder, row)
        log_id, shared = topics.identity.log_id, (self.boot_id, self.open_segments, self.now_us)
        place = LogPlace(self.files, folder, log_id, *shared, is_replicated)
        try:
            recovered = LogRecovery(place, topics, self.mode).run(
                least_next_offset=row.next_offset,
                least_epoch=row.epoch,
                remember=remember,
                progress=functools.partial(progress, folder.name),
                at_once=at_once,
            )
            segment_list = SegmentList(
                [_segment(place, scan) for scan in recovered.scans],
                [LostRange(*one) for one in known_missing(self.files.names(folder))],
            )
        except BaseException:
            topics.close()
            raise
        return OpenedLog(place, topics, recovered, segment_list)

    def _topics(self, name: str, partition: int, folder: Path, row: CatalogRow) -> TopicDictionary:
        """Open the topic dictionary, after creating it if it is missing."""
        if self.mode is Recovery.REPAIR:
            self._finish_deletions(folder)
        present = self.files.names(folder)
        bases, _ = listed_bases(present)
        known = identity_from_indexes(self.files, folder, bases, name, partition)
        path = folder / names.TOPICS_NAME
        if names.TOPICS_NAME not in present:
            # Either the process died while it created the log, or the file is lost: ids then have no names.
            if self.mode is Recovery.STRICT and (bases or row.next_offset):
                raise CorruptLog(path, "the topic dictionary is missing and recovery is 'strict'")
            identity = known or LogIdentity(secrets.randbits(64), name, partition, self.now_us())
            create_topics_file(self.files, path, identity)
            self.files.sync_directory(folder)
        return TopicDictionary(
            self.files,
            path,
            writable=True,
            limit=row.config.topic_count,
            limit_bytes=row.config.topic_bytes,
            known=known,
        )

    def _finish_deletions(self, folder: Path) -> None:
        try:
            finish_deletions(self.files, folder)
        except OSError as error:
            _LOGGER.warning("%s: deleted segments still take space: %s", folder, error)


def _segment(place: LogPlace, scan: SegmentScan) -> Segment:
    epoch = scan.header.known_epoch if scan.header else None
    trailer = scan.trailer_for_readers(place.log_id)
    return place.segment(scan.base_offset, epoch, count=scan.count, trailer=trailer)

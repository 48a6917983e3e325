"""Opening of a log: from the files of its folder to the topic dictionary, what recovery found, and the segments to
serve."""

import functools
import logging
import secrets
from collections.abc import Callable
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

_LOGGER = logging.getLogger("timestone")


class OpenedLog(NamedTuple):
    """Parts of a log. The topic dictionary has to be closed."""

    folder: Path
    topics: TopicDictionary
    recovered: Recovered
    segment_list: SegmentList


class LogOpener:
    """Opens the logs of a store. The caller holds its lock."""

    def __init__(
        self,
        files: Files,
        path: Path,
        mode: Recovery,
        open_segments: SegmentCache,
        boot_id: bytes,
        now_us: Callable[[], int],
    ) -> None:
        self._files = files
        self._path = path
        self._mode = mode
        self._open_segments = open_segments
        self._boot_id = boot_id
        self._now_us = now_us

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
        folder = self._path / names.log_folder(name, partition)
        topics = self._topics(name, partition, folder, row)
        try:
            recovery = LogRecovery(
                self._files,
                folder,
                topics,
                self._mode,
                self._boot_id,
                self._now_us,
                is_replicated=is_replicated,
            )
            recovered = recovery.run(
                least_next_offset=row.next_offset,
                least_epoch=row.epoch,
                remember=remember,
                progress=functools.partial(progress, folder.name),
                at_once=at_once,
            )
            segment_list = SegmentList(
                [self._segment(folder, topics, scan) for scan in recovered.scans],
                [LostRange(*one) for one in known_missing(self._files.names(folder))],
            )
        except BaseException:
            topics.close()
            raise
        return OpenedLog(folder, topics, recovered, segment_list)

    def _topics(self, name: str, partition: int, folder: Path, row: CatalogRow) -> TopicDictionary:
        """Open the topic dictionary, after creating it if it is missing."""
        if self._mode is Recovery.REPAIR:
            self._finish_deletions(folder)
        present = self._files.names(folder)
        bases, _ = listed_bases(present)
        known = identity_from_indexes(self._files, folder, bases, name, partition)
        path = folder / names.TOPICS_NAME
        if names.TOPICS_NAME not in present:
            # Either the process died while it created the log, or the file is lost: ids then have no names.
            if self._mode is Recovery.STRICT and (bases or row.next_offset):
                raise CorruptLog(path, "the topic dictionary is missing and recovery is 'strict'")
            identity = known or LogIdentity(secrets.randbits(64), name, partition, self._now_us())
            create_topics_file(self._files, path, identity)
            self._files.sync_directory(folder)
        return TopicDictionary(
            self._files,
            path,
            writable=True,
            limit=row.config.topic_count,
            limit_bytes=row.config.topic_bytes,
            known=known,
        )

    def _finish_deletions(self, folder: Path) -> None:
        try:
            finish_deletions(self._files, folder)
        except OSError as error:
            _LOGGER.warning("%s: deleted segments still take space: %s", folder, error)

    def _segment(self, folder: Path, topics: TopicDictionary, scan: SegmentScan) -> Segment:
        log_id = topics.identity.log_id
        return Segment(
            self._files,
            folder,
            scan.base_offset,
            log_id,
            self._open_segments,
            count=scan.count,
            trailer=scan.trailer_for_readers(log_id),
            epoch=scan.header.known_epoch if scan.header else None,
        )

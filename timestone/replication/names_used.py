"""How many topic names records use: one more than the highest topic id of them.

Ids are numbered on from there, on each replica alike, so the number may not fall when records go: what those used that
were deleted, or removed by compaction, is noted in the catalogue before."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from timestone.disk.catalog import Catalog
from timestone.disk.json_document import integer, json_object
from timestone.errors import CorruptLog
from timestone.index import topics_used
from timestone.kernel.entries import NO_TOPIC
from timestone.segment import Segment

SPACE = "replica"
"""Namespace in the catalogue: `<log>-<partition>` with what records that are gone have used."""

CEILINGS = "ceilings"
"""Namespace in the catalogue: `<log>-<partition>` with the offset at or above which no reader of a replica had seen one
when its machine was booted again."""
_LOGGER = logging.getLogger("timestone")
_SCAN_RECORDS = 1 << 16


class NamesUsed:
    """Numbers of names of one log. The caller holds the lock of rewrites, or is alone."""

    def __init__(self, documents: Catalog, key: str, log_id: int) -> None:
        """Raises CorruptLog for a damaged document."""
        self._documents, self._key, self._log_id = documents, key, log_id
        document = documents.get(SPACE, key)
        values = json_object(document) if document is not None else {}
        if values.get("log_id") != log_id:
            values = {}
        self.deleted = integer(values.get("names", 0))
        """The number for the records that were deleted."""
        self._compacted = {int(base): integer(one) for base, one in values.get("compacted", {}).items()}

    def of(self, segment: Segment) -> int:
        """Return the number for a segment, with the records that compaction has removed. Raises OSError."""
        return max(names_in(segment), self._compacted.get(segment.base_offset, 0))

    def delete(self, segments: Sequence[Segment]) -> None:
        """Note what segments use that are deleted next. Raises OSError."""
        deleted = max(self.deleted, *map(self.of, segments))
        bases = {one.base_offset for one in segments}
        kept = {base: one for base, one in self._compacted.items() if base not in bases}
        if (deleted, kept) != (self.deleted, self._compacted):
            self._note(deleted, kept)

    def compact(self, segment: Segment) -> None:
        """Note what a segment uses from which records are removed next. Raises OSError."""
        used = self.of(segment)
        if self._compacted.get(segment.base_offset) != used:
            self._note(self.deleted, {**self._compacted, segment.base_offset: used})

    def forget(self) -> None:
        """Forget all: the log begins again without any. Raises OSError."""
        if self.deleted or self._compacted:
            self._documents.put_many(SPACE, {self._key: None})
            self.deleted, self._compacted = 0, {}

    def _note(self, deleted: int, compacted: dict[int, int]) -> None:
        self._documents.put_many(SPACE, {self._key: used_document(self._log_id, deleted, compacted)})
        self.deleted, self._compacted = deleted, compacted


def used_document(log_id: int, deleted: int, compacted: Mapping[int, int]) -> bytes:
    """Return the document of a log: the numbers for records that were deleted, and that compaction has removed."""
    return json.dumps({"log_id": log_id, "names": deleted, "compacted": compacted}).encode()


def note_ceiling(documents: Catalog, key: str, offset: int, epoch: int = 0) -> bool:
    """Note the ceiling of a log durably, unless a higher one is noted; return whether that worked. See
    `LogRecovery.run`."""
    try:
        if offset > noted_ceiling(documents, key):
            documents.put_many(CEILINGS, {key: json.dumps({"offset": offset}).encode()})
    except (OSError, CorruptLog) as error:
        _LOGGER.warning("%s: the catalogue cannot be written: %s", key, error)
        return False
    return True


def noted_ceiling(documents: Catalog, key: str) -> int:
    """Return the noted ceiling of a log; 0 for none. Raises CorruptLog for a damaged document."""
    document = documents.get(CEILINGS, key)
    return integer(json_object(document).get("offset", 0)) if document is not None else 0


def names_of(topic_ids: Any) -> int:
    """Return the number for one topic id, or an array of them."""
    if isinstance(topic_ids, int):
        return 0 if topic_ids == NO_TOPIC else topic_ids + 1
    return topics_used(topic_ids)


def names_in(segment: Segment) -> int:
    """Return the number for the records of a segment, from its summary or its entries. Raises OSError."""
    summary = segment.topic_summary()
    if summary is not None:
        return names_of(summary["topic"])
    return max(
        (
            names_of(segment.read_entries(first, min(first + _SCAN_RECORDS, segment.count))["topic"])
            for first in range(0, segment.count, _SCAN_RECORDS)
        ),
        default=0,
    )

"""Staging on a node of a cluster: parts are records of a log of each shard, and so are on all its replicas, as is the
progress of producers. Whichever node leads continues where the one before was.

A part is a run of records, each with a piece of it. Its token is the offsets of that run. A group has a document with
the offset from which on its parts are: below those of all groups, the log of the parts is deleted."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

from flight_front.calls import Call
from flight_front.errors import InvalidRequest
from flight_front.readers import forget_deleted, shard_documents
from flight_front.settings import PARTS_LOG, FlightSettings
from flight_front.staging.parts import PostOrder, part_folder, part_place, refused_posting
from flight_front.staging.producers import Producers
from timestone.config import MIB
from timestone.disk.json_document import integer, json_object
from timestone.errors import (
    CorruptLog,
    InvalidName,
    NotLeader,
    OffsetOutOfRange,
    RecordTooLarge,
    TopicLimit,
    UnknownLog,
    UnsupportedFormat,
)
from timestone.format.names import INBOX_SPACE
from timestone.fronts import ClusterNode, SharedDocuments
from timestone.log import Log
from timestone.record import encode_headers, user_headers
from timestone.replication.replicated_log import ReplicatedLog
from timestone.spool.append_once import append_frame, append_once, check_frames, progress_of
from timestone.spool.format import Frame, PostingId, check_producer, frames_of
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

GROUPS_SPACE = "flight.groups"
"""Namespace of the documents; a key is the folder of a group, a value `{"from": offset, "begun_us": …}`."""
_PIECE_BYTES = MIB
_APPEND_PIECES = 4
_ABANDONED_US = 24 * 3600 * 1_000_000
_HEADER = "part"
_WRONG = (InvalidName, CorruptLog, RecordTooLarge, TopicLimit, UnsupportedFormat, ValueError, OverflowError)


class _ShardStaging:
    """Staging in one shard, as long as this node leads it without a break."""

    def __init__(self, documents: SharedDocuments, parts: ReplicatedLog, settings: FlightSettings) -> None:
        self.documents, self.parts = documents, parts
        self.producers = Producers(documents, documents.clock, settings)
        self.lock = threading.Lock()
        """Held to append for producers."""
        self._groups_lock = threading.Lock()

    def begin_group(self, folder: str) -> None:
        """Keep parts from now on."""
        with self._groups_lock:
            groups = self.documents.items(GROUPS_SPACE)
            if folder in groups:
                return
            now_us = self.documents.clock.now_us()
            values = {"from": self.parts.end_offset, "begun_us": now_us}
            changes: dict[str, bytes | None] = {folder: json.dumps(values).encode()}
            for other, document in groups.items():
                if now_us - _field(document, "begun_us") > _ABANDONED_US:
                    changes[other] = None
            self.documents.put_many(GROUPS_SPACE, changes)

    def end_group(self, folder: str) -> None:
        """Keep the parts of a group no longer."""
        with self._groups_lock:
            if folder in self.documents.items(GROUPS_SPACE):
                self.documents.put_many(GROUPS_SPACE, {folder: None})
            groups = self.documents.items(GROUPS_SPACE).values()
            self.parts.expire(min((_field(each, "from") for each in groups), default=self.parts.end_offset))


class ClusterStaging:
    """Staging on one node. Implements `Staging`; raises NotLeader where another node leads the shard."""

    def __init__(self, store: Store, node: ClusterNode, settings: FlightSettings) -> None:
        self._store, self._node, self._settings = store, node, settings
        self._shards: dict[int, _ShardStaging] = {}
        self._lock = threading.Lock()

    @property
    def producer_count(self) -> int:
        """See `Staging`."""
        return sum(shard.producers.count for shard in list(self._shards.values()))

    def append_once(self, call: Call, log: Log, posting: PostingId, frame: Frame) -> range | None:
        """See `Staging`."""
        check_producer(posting.producer)
        shard = self._shard(log)
        with self._numbers(shard, log):
            shard.producers.use(call, posting)
            return append_frame(log, shard.documents, posting, frame)

    def stage(self, call: Call, log: Log, group: str, part: bytes) -> str:
        """See `Staging`."""
        if not part:
            raise InvalidRequest("invalid part: expected frames, got no bytes")
        shard, folder = self._shard(log), part_folder(call, group)
        shard.begin_group(folder)
        block = encode_headers(user_headers([(_HEADER, folder.encode())]))
        records = [block + part[at : at + _PIECE_BYTES] for at in range(0, len(part), _PIECE_BYTES)]
        offsets = shard.parts.append_batch(WriteBatch(records, header_lengths=len(block)))
        return f"{group}/{offsets.start:016x}{offsets.stop:016x}"

    def post(self, call: Call, log: Log, order: PostOrder) -> None:
        """See `Staging`."""
        shard = self._shard(log)
        parts = [part_place(call, each) for each in order.parts]
        with self._numbers(shard, log):
            shard.producers.use(call, order.posting, begins=order.begins)
            if order.posting.number <= progress_of(shard.documents, order.posting).done:
                return
            try:
                for number, part in enumerate(parts):
                    check_frames(log, _frames(shard.parts, [part]), number)
            except _WRONG as error:
                raise refused_posting(_shown(error)) from None
            append_once(log, shard.documents, order.posting, _frames(shard.parts, parts))

    def begin(self, call: Call, posting: PostingId) -> None:
        """See `Staging`."""
        log = self._store.log(posting.log, posting.partition, create=False)
        shard = self._shard(log)
        with self._numbers(shard, log):
            shard.producers.use(call, posting, begins=True)

    def discard(self, call: Call, log: Log, values: dict[str, Any]) -> None:
        """See `Staging`. Single parts are removed with their group."""
        shard = self._shard(log)
        for each in values.get("parts", ()):
            part_place(call, each)
        if "group" in values:
            shard.end_group(part_folder(call, values["group"]))
        if "producer" in values:
            posting = PostingId(log.name, log.partition, call.producer(values["producer"]), 0)
            with self._numbers(shard, log):
                shard.producers.discard(call, posting)

    @contextmanager
    def _numbers(self, shard: _ShardStaging, log: Log) -> Iterator[None]:
        """Hold the numbers that producers have in a log; none of an earlier one of its name."""
        with shard.lock:
            forget_deleted(self._node, log, shard.documents, INBOX_SPACE)
            yield

    def _shard(self, log: Log) -> _ShardStaging:
        number = log.partition
        documents = shard_documents(self._node, log)
        try:
            parts = self._store.log(PARTS_LOG, number, create=False)
        except UnknownLog:
            raise NotLeader(f"this node does not serve shard {number} yet") from None
        with self._lock:
            found = self._shards.get(number)
            if found is None or found.documents is not documents:
                found = _ShardStaging(documents, cast(ReplicatedLog, parts), self._settings)
                self._shards[number] = found
            return found


def _frames(log: ReplicatedLog, parts: Sequence[tuple[str, str]]) -> Iterator[Frame]:
    """Yield the frames of parts, by folder and token. Raises CorruptLog."""
    for folder, token in parts:
        yield from frames_of(log.folder, _part(log, folder, int(token[:16], 16), int(token[16:], 16)))


def _part(log: ReplicatedLog, folder: str, first: int, end: int) -> bytes:
    """Return the bytes of a part. Raises CorruptLog for one that is not there, or is another user's."""
    pieces: list[bytes] = []
    owner = ((_HEADER, folder.encode()),)
    with suppress(OffsetOutOfRange):
        at = first
        while at < end <= log.end_offset:
            batch = log.read(at, max_records=min(end - at, _APPEND_PIECES))
            pieces += (bytes(record.payload) for record in batch if record.headers == owner)
            at = batch.next_offset
            if len(pieces) < at - first:
                break
    if not pieces or len(pieces) != end - first:
        raise CorruptLog(log.folder, "a part of the posting is missing")
    return b"".join(pieces)


def _shown(error: Exception) -> str:
    """Return the reason without the paths of the server."""
    return error.reason if isinstance(error, CorruptLog) else str(error)


def _field(document: bytes, name: str) -> int:
    return integer(json_object(document)[name])

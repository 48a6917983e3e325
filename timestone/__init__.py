"""Timestone: an append-only log that a Python program can embed.

    import timestone

    with timestone.open("data") as store:
        log = store.log("telemetry")
        log.append(b'{"temperature": 21.5}', topic="devices/7/state")
        for record in log.reader("earliest", topics="devices/+/state"):
            print(record.offset, record.topic, record.payload)

`open` owns a store and may write; `view` reads one that any process owns. The words are those of
docs/architecture.md."""

from timestone.commit.submission import Submission
from timestone.config import Ack, Compression, LogConfig, Recovery, StoreConfig
from timestone.errors import (
    CorruptLog,
    CorruptRecord,
    HistoryUnavailable,
    InvalidName,
    LogFailed,
    MissingExtra,
    NotAStore,
    OffsetOutOfRange,
    OffsetsLost,
    PostingNotTaken,
    PostingRefused,
    QueueFull,
    ReaderInUse,
    ReadOnlyStore,
    RecordTooLarge,
    StorageFull,
    StoreClosed,
    StoreLocked,
    TimestoneError,
    TopicLimit,
    UnknownLog,
    UnsupportedFormat,
)
from timestone.errors import not_pickled as _not_pickled
from timestone.format.damage_report import Damage
from timestone.kernel.entries import NO_TOPIC
from timestone.log import Log
from timestone.reader import Reader
from timestone.reading.batch import Batch
from timestone.reading.named_readers import Commitment, ReaderId, ReaderLag
from timestone.reading.retention_hold import Pin
from timestone.record import Header, HeaderKind, Record
from timestone.store import Store
from timestone.store import open_store as open
from timestone.view import LogView, StoreView
from timestone.view import view_store as view
from timestone.writing.write_batch import WriteBatch

__version__ = "0.1.0"

__all__ = [
    "NO_TOPIC",
    "Ack",
    "Batch",
    "Commitment",
    "Compression",
    "CorruptLog",
    "CorruptRecord",
    "Damage",
    "Header",
    "HeaderKind",
    "HistoryUnavailable",
    "InvalidName",
    "Log",
    "LogConfig",
    "LogFailed",
    "LogView",
    "MissingExtra",
    "NotAStore",
    "OffsetOutOfRange",
    "OffsetsLost",
    "Pin",
    "PostingNotTaken",
    "PostingRefused",
    "QueueFull",
    "ReadOnlyStore",
    "Reader",
    "ReaderId",
    "ReaderInUse",
    "ReaderLag",
    "Record",
    "RecordTooLarge",
    "Recovery",
    "StorageFull",
    "Store",
    "StoreClosed",
    "StoreConfig",
    "StoreLocked",
    "StoreView",
    "Submission",
    "TimestoneError",
    "TopicLimit",
    "UnknownLog",
    "UnsupportedFormat",
    "WriteBatch",
    "open",
    "view",
]

_not_pickled(Store, StoreView, Log, LogView, Reader, Batch, Submission)

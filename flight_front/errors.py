"""Errors of calls: the gRPC status for each error of the engine, with the log and the offsets in its text."""

import enum

import pyarrow as pa

from timestone.errors import (
    CorruptLog,
    CorruptRecord,
    HistoryUnavailable,
    InvalidName,
    LogFailed,
    NotLeader,
    OffsetOutOfRange,
    OffsetsLost,
    QueueFull,
    ReaderInUse,
    RecordTooLarge,
    StorageFull,
    StoreClosed,
    TopicLimit,
    UnknownLog,
)


class Code(enum.Enum):
    """Status of a call, as gRPC numbers them."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_TEXT_MOST = 800


class CallRefused(Exception):
    """Reason to end a call with a status. The text goes to the client and never holds a secret."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class ClientGone(Exception):
    """The client has ended the call, and takes no answer."""


class InvalidRequest(CallRefused):
    """Request that is not valid, for any client."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INVALID_ARGUMENT, message)


_CODES: tuple[tuple[type[Exception], Code], ...] = (
    (UnknownLog, Code.NOT_FOUND),
    (OffsetOutOfRange, Code.OUT_OF_RANGE),
    (CorruptRecord, Code.DATA_LOSS),
    (CorruptLog, Code.DATA_LOSS),
    (RecordTooLarge, Code.RESOURCE_EXHAUSTED),
    (TopicLimit, Code.RESOURCE_EXHAUSTED),
    (StorageFull, Code.RESOURCE_EXHAUSTED),
    (QueueFull, Code.RESOURCE_EXHAUSTED),
    (ReaderInUse, Code.ALREADY_EXISTS),
    (LogFailed, Code.FAILED_PRECONDITION),
    (HistoryUnavailable, Code.UNAVAILABLE),
    (StoreClosed, Code.UNAVAILABLE),
    (NotLeader, Code.UNAVAILABLE),
    (InvalidName, Code.INVALID_ARGUMENT),
    (pa.ArrowInvalid, Code.INVALID_ARGUMENT),
    (ValueError, Code.INVALID_ARGUMENT),
    (TypeError, Code.INVALID_ARGUMENT),
    (OverflowError, Code.INVALID_ARGUMENT),
)


def status_text(error: CallRefused) -> str:
    """Return the text as gRPC can send it. A lone surrogate, as JSON may have in a name, would leave the call without
    an end; a text that fills the 8 KiB of metadata, which are percent-encoded, would not arrive."""
    return str(error)[:_TEXT_MOST].encode(errors="backslashreplace").decode()


def refusal(error: Exception, log: str | None = None) -> CallRefused | None:
    """Return the status for an error, with the folder of the log it concerns; None for an internal error."""
    if isinstance(error, CallRefused):
        return error
    code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    if code is None:
        return None
    text = str(error)
    if isinstance(error, CorruptRecord):
        # Without the path: a client has no business with the files of the server.
        what = "lost" if isinstance(error, OffsetsLost) else "damaged"
        text = (
            f"offsets {error.offset} to {error.next_offset - 1} are {what}; continue at {error.next_offset}"
        )
    elif isinstance(error, LogFailed):
        text = "the log takes no appends until the server is restarted, because its disk failed"
    elif isinstance(error, StorageFull):
        text = "the disk is full"
    elif isinstance(error, UnknownLog):
        # Without the names of others, which the user may not know.
        return CallRefused(code, f"no log named {error.name!r}")
    elif isinstance(error, CorruptLog):
        text = "a file of the log is damaged"
    return CallRefused(code, text if log is None else f"log {log}: {text}")

"""Errors of a leader as fields of a message, and back: a client of any node gets what the leader has raised."""

from pathlib import Path

from timestone.errors import QueueFull, StorageFull, TopicLimit

Refusal = tuple[str | int, ...]
"""Name of an error, and its facts; empty for one that has no name here. Its words are sent beside it."""


def refusal_of(error: Exception) -> Refusal:
    """Return an error without its words."""
    match error:
        case StorageFull():
            return "StorageFull", str(error.path), error.free_bytes, error.limit_bytes
        case QueueFull():
            return "QueueFull", error.log, error.queued_bytes, error.limit_bytes
        case TopicLimit():
            return "TopicLimit", error.log, error.limit
        case OSError():
            return "OSError", error.errno or 0
    return ()


def error_of(refusal: Refusal, words: str) -> Exception | None:
    """Return the error that another node has raised; None for one that has no name here, as of a later version."""
    found: StorageFull | QueueFull | TopicLimit
    match refusal:
        case ("StorageFull", str(path), int(free_bytes), int(limit_bytes)):
            found = StorageFull(Path(path), free_bytes, limit_bytes)
        case ("QueueFull", str(log), int(queued_bytes), int(limit_bytes)):
            found = QueueFull(log, queued_bytes, limit_bytes)
        case ("TopicLimit", str(log), int(limit)):
            found = TopicLimit(log, limit)
        case ("OSError", int(number)):
            return OSError(number, words.removeprefix(f"[Errno {number}] "))
        case _:
            return None
    found.args = (words,)
    return found

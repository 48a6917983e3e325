"""The classes of errors: each has its numbers and file, and all have one root."""

import inspect
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest

import timestone
from timestone import errors
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
    QueueFull,
    RecordTooLarge,
    StorageFull,
    StoreLocked,
    TimestoneError,
    TopicLimit,
    UnknownLog,
    UnsupportedFormat,
)

PATH = Path("data/telemetry-0/00000000000000000000.index")

MESSAGES = {
    "unknown log": (UnknownLog("a", ("b", "c")), ["'a'", "b, c"]),
    "unknown log in an empty store": (UnknownLog("a"), ["'a'", "no logs"]),
    "offset": (OffsetOutOfRange(7, 10, 20), ["7", "[10, 20)"]),
    "size": (RecordTooLarge(101, 100), ["101 bytes", "100 bytes"]),
    "topics": (TopicLimit("telemetry", 5), ["telemetry", "5", "topic_count"]),
    "queue": (QueueFull("telemetry-0", 7, 5), ["telemetry-0", "7", "5", "queue_bytes"]),
    "locked": (StoreLocked(PATH, 4711, "host-7"), [str(PATH), "4711", "host-7"]),
    "locked by an unknown process": (StoreLocked(PATH, None, None), [str(PATH), "another process"]),
    "no store": (NotAStore(PATH, "it does not exist"), [str(PATH), "it does not exist"]),
    "full": (StorageFull(PATH, 10, 20), [str(PATH), "10 bytes free", "has to leave 20"]),
    "failed": (
        LogFailed(PATH, OSError(5, "Input/output error"), range(3, 9)),
        [str(PATH), "3 to 8", "Input/output"],
    ),
    "failed without loss": (LogFailed(PATH, OSError(5, "Input/output error")), [str(PATH), "reopened"]),
    "record": (CorruptRecord(PATH, 12, "bad crc"), [str(PATH), "12", "bad crc"]),
    "lost": (OffsetsLost(PATH, 12, 20), [str(PATH), "12 to 19", "offset 20"]),
    "bucket": (HistoryUnavailable(12, 20, "s3://b/p: no answer"), ["12 to 19", "s3://b/p: no answer"]),
    "extra": (
        MissingExtra("Arrow columns", "pyarrow", "arrow"),
        ["pyarrow", "pip install '.[arrow]' in a clone"],
    ),
    "log": (CorruptLog(PATH, "no header"), [str(PATH), "no header"]),
    "format": (UnsupportedFormat(PATH, 9, 1), [str(PATH), "9", "1"]),
}


@pytest.mark.parametrize(("error", "parts"), MESSAGES.values(), ids=MESSAGES.keys())
def test_message_carries_the_numbers_and_the_file(error: TimestoneError, parts: list[str]) -> None:
    assert [part for part in parts if part not in str(error)] == []


@pytest.mark.parametrize("error", [error for error, _ in MESSAGES.values()], ids=MESSAGES.keys())
def test_error_is_unpickled_completely_in_another_process(error: TimestoneError) -> None:
    """One that cannot be loaded again ends the whole pool of processes."""
    loaded = ForkingPickler.loads(ForkingPickler.dumps(error))
    assert type(loaded) is type(error)
    assert str(loaded) == str(error)
    facts, known = vars(loaded), vars(error)
    assert {name: str(fact) for name, fact in facts.items()} == {
        name: str(fact) for name, fact in known.items()
    }


def test_all_errors_of_the_engine_have_one_root() -> None:
    own = [
        error
        for _, error in inspect.getmembers(errors, inspect.isclass)
        if error.__module__ == errors.__name__
    ]
    assert [error.__name__ for error in own if not issubclass(error, TimestoneError)] == []


BUILTIN_KIN = [
    (InvalidName, ValueError),
    (RecordTooLarge, ValueError),
    (UnknownLog, KeyError),
    (OffsetOutOfRange, IndexError),
]


@pytest.mark.parametrize(("error", "builtin"), BUILTIN_KIN)
def test_a_callers_mistake_is_also_the_builtin_error_it_expects(error: type, builtin: type) -> None:
    assert issubclass(error, builtin)


def test_newer_format_is_not_an_error_that_handlers_of_corruption_catch() -> None:
    assert not issubclass(UnsupportedFormat, CorruptLog | CorruptRecord)


def test_message_of_an_unknown_log_is_not_quoted_like_a_key() -> None:
    """KeyError shows the repr of its argument; a person should see a sentence."""
    assert str(UnknownLog("a")).startswith("no log named")


def test_what_belongs_to_a_process_is_not_pickled(quick_directory: Path) -> None:
    """The error was one of Cython, about a method."""
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("a")
        submission = log.submit(timestone.WriteBatch([b"x"]), ack="written")
        submission.wait()
        with timestone.view(quick_directory / "data") as view:
            for one in (store, log, log.reader(), log.read(0), submission, view, view.log("a")):
                message = (
                    f"^cannot pickle a {type(one).__name__}: send records, or open a timestone.view there$"
                )
                with pytest.raises(TypeError, match=message):
                    ForkingPickler.dumps(one)
            assert ForkingPickler.loads(ForkingPickler.dumps(log.record(0))).payload == b"x"

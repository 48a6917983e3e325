"""Arguments of the wrong type or value, in every public call: the error names the argument."""

import datetime
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from timestone import Log, LogConfig, LogView, Pin, Store, StoreConfig, StoreView, TimestoneError, WriteBatch

WRONG: tuple[Any, ...] = (
    None, 5, -1, 1 << 70, 1.5, float("nan"), "earliest", "x", b"x", bytearray(b"a"), object(), [], [5], ["x"], [b"x"],
    [None], {}, {"a": 1}, (1,), True, print, "a\0b", "\udcff", datetime.datetime(2026, 1, 1), Path("x"),
)  # fmt: skip
SAID = re.compile(r"invalid |.*expected .*, got |.*cannot ", re.DOTALL)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with timestone.open(tmp_path / "data", log=LogConfig(segment_entries=4)) as store:
        for number in range(9):
            store.log("telemetry").append(b"%d" % number, topic=f"t/{number % 3}", ack="written")
        yield store


def calls(store: Store) -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Yield each call with valid arguments."""
    view = timestone.view(store.path)
    batch = store.log("telemetry").read(0)
    yield lambda path: timestone.open(path).close(), {"path": "other"}
    yield timestone.view, {"path": store.path}
    for kind in (StoreConfig, LogConfig, Pin):
        for name in kind.__dataclass_fields__:
            yield functools.partial(_made, kind), {name: ()}
    for place in (store, view):
        assert isinstance(place, Store | StoreView)
        yield place.log, {"name": "telemetry", "partition": 0}
        yield place.committed, {"reader": ()}
        yield place.forget_readers, {"readers": []}
        yield place.commit_readers, {"offsets": {}}
        log: Log | LogView = place.log("telemetry")
        yield log.read, {"offset": 0, "max_records": 5, "max_bytes": 5}
        yield log.record, {"offset": 0}
        yield log.offset_at, {"time": 0}
        yield log.reader, {"start": 0, "topics": None, "name": None, "pin": None}
        yield log.segment_bounds, {"first": 0, "last": 5}
        yield log.segment_sizes, {"first": 0, "last": 5}
        yield log.segments_with, {"topics": ["t/1"], "first": 0, "last": 5}
        yield log.gap_at, {"offset": 0}
        yield log.lost_offsets, {"first": 0, "last": 5}
        for reader in (log.reader(name=type(place).__name__), log.reader(topics="t/#")):
            yield reader.read, {"max_records": 5, "max_bytes": 5, "max_scan": 5}
            yield reader.seek, {"offset": 0}
            yield reader.set_topics, {"filters": None}
            yield reader.commit, {"offset": 0, "metadata": ""}
    yield store.log("telemetry").reader().wait, {"timeout_s": 0}
    yield store.delete_log, {"name": "other", "partition": 0}
    own = store.log("telemetry")
    yield own.append, {"payload": b"", "topic": "t", "headers": (), "flags": 0, "ack": "written"}
    yield own.append_many, {"payloads": [b""], "topic": "t", "ack": "written"}
    yield own.append_many, {"payloads": [b""], "topics": ["t"], "ack": "written"}
    yield own.append_batch, {"write_batch": WriteBatch([b""]), "ack": "written"}
    yield own.submit, {"write_batch": WriteBatch([b""]), "ack": "written", "done": None}
    yield own.when_synced, {"offset": 0, "done": print}
    yield own.topic_id, {"topic": "t"}
    yield own.topic_name, {"topic_id": 0}
    yield WriteBatch, {"payloads": [b""], "topic_ids": 0, "flags": 0, "header_lengths": 0}
    for method in (batch.payload, batch.headers_of, batch.topic, batch.user_headers_of, batch.header_block):
        yield method, {"number": 0}
    yield batch.select, {"mask": ()}


def _made(kind: type[Any], **arguments: Any) -> None:
    kind(**arguments)


def test_wrong_arguments_are_named_in_every_call(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw, count = set(), 0
    for call, valid in calls(store):
        for name, value in itertools.product(valid, WRONG):
            count += 1
            try:
                call(**{**valid, name: value})
            except (TimestoneError, IndexError):
                pass  # a decision: no such log, offset or record
            except Exception as error:
                if not SAID.match(f"{error}"):
                    raw.add(f"{call}({name}={value!r:.40}): {error!r}")
    assert not raw
    assert count > 2000

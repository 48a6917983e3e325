"""DoAction: what a client does with logs and readers apart from reading and appending. JSON in and out."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flight_front.calls import Call
from flight_front.errors import CallRefused, Code, InvalidRequest
from flight_front.producers import Producers
from flight_front.reading import existing_logs
from flight_front.staging import discard, post
from timestone.config import with_settings
from timestone.disk.json_document import integer, json_object
from timestone.errors import UnknownLog
from timestone.log import Log
from timestone.reading.named_readers import ReaderId
from timestone.spool.format import PostingId
from timestone.store import Store
from timestone_access.rights import Right

Values = dict[str, Any]
WAITING_ACTIONS = frozenset({"post", "begin", "discard"})
"""Actions that wait for the spool."""
_BODY_BYTES_MAX = 1024 * 1024
"""A posting names each of its parts."""


class Target(NamedTuple):
    """What actions work on."""

    store: Store
    producers: Producers


class Action(NamedTuple):
    """Action: what it does, in a thread, and its description for ListActions."""

    run: Callable[[Target, Call, Values], Mapping[str, Any]]
    description: str


def run_action(target: Target, call: Call, kind: str, body: bytes) -> Mapping[str, Any]:
    """Run an action and return its answer. Blocks. Raises CallRefused, and the errors of the engine."""
    action = ACTIONS.get(kind)
    if action is None:
        raise CallRefused(
            Code.UNIMPLEMENTED, f"unknown action {kind!r:.60}: expected one of {', '.join(ACTIONS)}"
        )
    if len(body) > _BODY_BYTES_MAX:
        raise InvalidRequest(f"invalid body: expected at most {_BODY_BYTES_MAX} bytes, got {len(body)}")
    try:
        return action.run(target, call, json_object(body or b"{}"))
    except UnknownLog:
        raise
    except KeyError as error:
        raise InvalidRequest(
            f"invalid {kind}: expected {error.args[0]!r:.60}: {action.description}"
        ) from None


def _log(store: Store, call: Call, values: Values, right: Right) -> Log:
    name, partition = _name(values)
    call.check(right, name)
    return store.log(name, partition, create=False)


def _name(values: Values) -> tuple[str, int]:
    name = values["log"]
    if not isinstance(name, str):
        raise InvalidRequest(f"invalid log: expected a name, got {name!r:.60}")
    return name, integer(values.get("partition", 0))


def _facts(log: Log) -> dict[str, Any]:
    return {
        "log": log.name,
        "partition": log.partition,
        "start": log.start_offset,
        "synced": log.synced_offset,
        "end": log.end_offset,
    }


def _create_log(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    name, partition = _name(values)
    call.check(Right.ADMIN, name)
    config = with_settings(target.store.config.log, values.get("settings", {}))
    return _facts(target.store.log(name, partition, config=config))


def _configure(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target.store, call, values, Right.ADMIN)
    return {"log": log.name, "settings": dataclasses.asdict(log.configure(**values["settings"]))}


def _delete_log(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target.store, call, values, Right.ADMIN)
    target.store.delete_log(log.name, log.partition)
    return {"deleted": log.name, "partition": log.partition}


def _offset_at(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target.store, call, values, Right.READ)
    return {"offset": log.offset_at(integer(values["time_us"]))}


def _lags(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target.store, call, values, Right.READ)
    return {
        "readers": [
            {
                "reader": each.reader.name,
                "committed": each.committed.offset,
                "lag": each.lag,
                "missed": each.missed,
                "metadata": each.committed.metadata,
            }
            for each in log.lags()
        ]
    }


def _commit(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target.store, call, values, Right.READ)
    call.check_group(values["reader"])
    reader = ReaderId(log.name, log.partition, values["reader"])
    target.store.commit_readers(
        {reader: integer(values["offset"])}, metadata={reader: values.get("metadata", "")}
    )
    return {"committed": values["offset"]}


def _sync(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    return {"synced": _log(target.store, call, values, Right.WRITE).sync()}


def _post(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target.store, call, values, Right.WRITE)
    post(target.store, target.producers, call, log, values)
    return {"posted": values["number"]}


def _discard(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target.store, call, values, Right.WRITE)
    discard(target.store, target.producers, call, log, values)
    return {}


def _begin(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target.store, call, values, Right.WRITE)
    producer = PostingId(log.name, log.partition, call.producer(values["producer"]), 0)
    target.producers.use(call, producer, begins=True)
    return {"producer": values["producer"]}


def _health(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    failed = [
        log.folder.name
        for log in existing_logs(target.store)
        if log.failure and call.rights.may(Right.READ, log.name)
    ]
    return {"ready": not failed, "failed": failed}


ACTIONS: Mapping[str, Action] = {
    "create-log": Action(
        _create_log, '{"log": name, "partition": 0, "settings": {}}: create a log if it is missing'
    ),
    "configure": Action(
        _configure, '{"log": name, "settings": {"retention_ms": 1}}: change settings of a log'
    ),
    "delete-log": Action(_delete_log, '{"log": name}: delete a log and its readers; not reversible'),
    "offset-at": Action(
        _offset_at, '{"log": name, "time_us": microseconds}: the first offset at or after a time'
    ),
    "lags": Action(_lags, '{"log": name}: named readers and how far they are behind'),
    "commit": Action(
        _commit,
        '{"log": name, "reader": name, "offset": next, "metadata": text}: where a reader continues',
    ),
    "sync": Action(_sync, '{"log": name}: make everything written durable, and return the offset'),
    "post": Action(
        _post,
        '{"log": name, "producer": name, "number": n, "parts": [name]}: append staged parts, once for each number',
    ),
    "begin": Action(
        _begin,
        '{"log": name, "producer": name}: take any number from a producer that is not known, since nothing of it will '
        "be repeated",
    ),
    "discard": Action(
        _discard,
        '{"log": name, "parts": [name], "group": name, "producer": name}: remove staged parts, all of a group, or what '
        "is kept about a producer that will not post again",
    ),
    "health": Action(_health, "{}: whether every log takes appends"),
}

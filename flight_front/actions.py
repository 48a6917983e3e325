"""DoAction: what a client does with logs and readers apart from reading and appending. JSON in and out."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from flight_front.calls import Call
from flight_front.errors import CallRefused, Code, InvalidRequest
from flight_front.readers import Readers
from flight_front.reading import durable_offset, existing_log, existing_logs
from flight_front.staging.parts import Staging, post_order
from timestone.config import with_settings
from timestone.disk.json_document import integer, json_object
from timestone.errors import UnknownLog
from timestone.format.names import log_folder, validate_reader_name, validate_target
from timestone.fronts import ClusterNode
from timestone.log import Log
from timestone.reading.named_readers import ReaderLag
from timestone.spool.format import PostingId
from timestone.store import Store
from timestone_access.rights import Right

if TYPE_CHECKING:
    from timestone.replication.replicated_log import ReplicatedLog

Values = dict[str, Any]
WAITING_ACTIONS = frozenset({"post", "begin", "discard"})
"""Actions that wait for the spool."""
FRONT = "flight"
_MADE_S, _LOOK_S = 10.0, 0.05
_BODY_BYTES_MAX = 1024 * 1024
"""A posting names each of its parts."""


class Target(NamedTuple):
    """What actions work on."""

    store: Store
    staging: Staging
    readers: Readers
    node: ClusterNode | None
    """None for a store that is in no cluster."""


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


def _log(target: Target, call: Call, values: Values, right: Right) -> Log:
    name, partition = _name(values)
    call.check(right, name)
    call.log, call.partition = log_folder(name, partition), partition
    return existing_log(target.store, target.node, name, partition)


def _name(values: Values) -> tuple[str, int]:
    name = values["log"]
    if not isinstance(name, str):
        raise InvalidRequest(f"invalid log: expected a name, got {name!r:.60}")
    return name, integer(values.get("partition", 0))


def _settings(settings: object) -> dict[str, Any]:
    if not isinstance(settings, dict):
        raise InvalidRequest(f"invalid settings: expected an object, got {settings!r:.60}")
    return settings


def _facts(log: Log) -> dict[str, Any]:
    return {
        "log": log.name,
        "partition": log.partition,
        "start": log.start_offset,
        "synced": durable_offset(log),
        "end": log.end_offset,
    }


def _create_log(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    name, partition = _name(values)
    call.check(Right.ADMIN, name)
    settings = _settings(values.get("settings", {}))
    if target.node is None:
        return _facts(
            target.store.log(name, partition, config=with_settings(target.store.config.log, settings))
        )
    validate_target(name, partition)
    target.node.make_log(name, settings)
    end_s = time.monotonic() + _MADE_S
    while True:  # the node learns it from etcd
        try:
            return _facts(existing_log(target.store, target.node, name, partition))
        except UnknownLog:
            if time.monotonic() > end_s:
                raise CallRefused(
                    Code.UNAVAILABLE, f"log {name}: it is made, and this node does not have it yet"
                ) from None
            time.sleep(_LOOK_S)


def _configure(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log, settings = _log(target, call, values, Right.ADMIN), _settings(values["settings"])
    if target.node is not None:
        return {"log": log.name, "settings": dict(target.node.configure_log(log.name, settings))}
    return {"log": log.name, "settings": dataclasses.asdict(log.configure(**settings))}


def _delete_log(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    if target.node is None:
        log = _log(target, call, values, Right.ADMIN)
        target.store.delete_log(log.name, log.partition)
        return {"deleted": log.name, "partition": log.partition}
    name, _ = _name(values)
    call.check(Right.ADMIN, name)
    if "partition" in values:
        raise InvalidRequest("invalid partition: a log of a cluster is deleted with all its partitions")
    logs = [log for log in existing_logs(target.store, target.node) if log.name == name]
    target.node.delete_log(name)
    end_s = time.monotonic() + _MADE_S
    # The node learns it from etcd.
    while any(log in logs for log in existing_logs(target.store, target.node)):
        if time.monotonic() > end_s:
            raise CallRefused(Code.UNAVAILABLE, f"log {name}: it is deleted, and this node still has it")
        time.sleep(_LOOK_S)
    return {"deleted": name}


def _offset_at(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target, call, values, Right.READ)
    return {"offset": log.offset_at(integer(values["time_us"]))}


def _lags(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target, call, values, Right.READ)
    committed = target.readers.of(log).all_committed()
    start, end = log.start_offset, log.end_offset
    lags = [ReaderLag(reader, found, start, end) for reader, found in committed.items()]
    return {
        "readers": [
            {
                "reader": each.reader.name,
                "committed": each.committed.offset,
                "lag": each.lag,
                "missed": each.missed,
                "metadata": each.committed.metadata,
            }
            for each in lags
        ]
    }


def _commit(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log, name = _log(target, call, values, Right.READ), values["reader"]
    validate_reader_name(name)
    call.check_group(name)
    readers = target.readers.of(log)
    readers.commit(name, integer(values["offset"]), None, values.get("metadata", ""))
    return {"committed": values["offset"]}


def _sync(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target, call, values, Right.WRITE)
    if target.node is None:
        return {"synced": log.sync()}
    cast("ReplicatedLog", log).check_leads()
    return {"synced": log.end_offset}


def _post(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target, call, values, Right.WRITE)
    target.staging.post(call, log, post_order(call, log, values))
    return {"posted": values["number"]}


def _discard(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    target.staging.discard(call, _log(target, call, values, Right.WRITE), values)
    return {}


def _begin(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    log = _log(target, call, values, Right.WRITE)
    target.staging.begin(call, PostingId(log.name, log.partition, call.producer(values["producer"]), 0))
    return {"producer": values["producer"]}


def _cluster(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    if target.node is None:
        raise CallRefused(Code.UNIMPLEMENTED, "this server is in no cluster")
    return target.node.places(FRONT)


def _health(target: Target, call: Call, values: Values) -> Mapping[str, Any]:
    failed = [
        log.folder.name
        for log in existing_logs(target.store, target.node)
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
    "delete-log": Action(
        _delete_log,
        '{"log": name, "partition": 0}: delete a log and its readers, on a cluster all of its partitions; not '
        "reversible",
    ),
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
    "cluster": Action(_cluster, "{}: nodes of the cluster with their addresses, and who leads each shard"),
    "health": Action(_health, "{}: whether every log takes appends"),
}

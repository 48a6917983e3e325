"""Actions of an operator: their arguments, their effect in words before they are done, and the same as a command."""

import base64
import shlex
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from timestone.config import with_settings
from timestone.errors import OffsetOutOfRange
from timestone.reading.named_readers import ReaderId
from timestone.view import LogView

from ..http.sessions import Session
from ..problems import Problem
from ..sources import Sources

Text = Annotated[str, msgspec.Meta(max_length=65_535)]
ActionName = Literal[
    "disconnect",
    "end_session",
    "watch",
    "publish",
    "delete_retained",
    "configure",
    "roll",
    "scrub",
    "release",
    "forget",
    "move",
    "reload",
    "log_level",
]
_CLIENT_ACTIONS = ("disconnect", "end_session", "watch")
_TOPIC_ACTIONS = ("publish", "delete_retained")
_PUBLISH_BYTES = 45_000
"""Of a request to the server, whose limit is 64 KiB."""


class Plan(NamedTuple):
    """What an action will do."""

    text: str
    """The effect in words, with its numbers."""
    command: str | None
    """The command that does the same, if there is one."""
    request: dict[str, Any]
    """Arguments for the server."""
    confirm: str | None = None
    """Name to type before it is done, if it loses something."""


class ActionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Action and its arguments. preview: only state the effect in numbers, and do nothing.

    `disconnect`, `end_session`, `watch`: client, user, and duration_s to watch; `publish`: topic, qos, retain, and
    either value or log, partition, offset of a record to publish again; `delete_retained`: topic; `configure`: log,
    partition, settings (values in the unit of the name); `roll`: log, partition; `release`, `forget`, `move`: log,
    partition, name of a reader, and offset to move to; `log_level`: level, duration_s; `reload`, `scrub`: nothing."""

    action: ActionName
    client: Text | None = None
    user: Text | None = None
    topic: Text | None = None
    value: Text | None = None
    qos: Annotated[int, msgspec.Meta(ge=0, le=2)] = 1
    retain: bool = False
    log: Text | None = None
    partition: int = 0
    name: Text | None = None
    offset: int | None = None
    settings: dict[str, int | bool | str] = {}
    level: Literal["debug", "info", "warning", "error"] | None = None
    duration_s: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 600
    preview: bool = False


def planned(sources: Sources, session: Session, body: ActionBody) -> Plan:
    """Return what an action will do. Raises Problem."""
    if body.action in _CLIENT_ACTIONS:
        return _of_client(sources, body)
    if body.action in _TOPIC_ACTIONS:
        return _of_topic(sources, session, body)
    if body.action == "reload":
        text = (
            "reads the files of users, access rules, keys and certificates again; clients that are not permitted any "
            "more are disconnected, and a front keeps what it has if one of its files is not valid"
        )
        return Plan(text, _command("control", sources, "reload"), {})
    if body.action == "log_level":
        return _log_level(sources, body)
    if body.action == "scrub":
        size = _size(sources.store_bytes())
        text = f"reads up to {size} of sealed segments at full speed and verifies every record; nothing is changed"
        return Plan(text, _command("control", sources, "scrub"), {})
    if body.log is None:
        raise Problem("invalid-request", f"{body.action} needs a log")
    log = sources.log(body.log, body.partition)
    if body.action == "configure":
        return _configure(sources, body, log.name)
    if body.action == "roll":
        return _roll(sources, log)
    return _of_reader(sources, body, log)


def _of_reader(sources: Sources, body: ActionBody, log: LogView) -> Plan:
    if body.name is None:
        raise Problem("invalid-request", f"{body.action} needs the name of a reader")
    found = sources.view.committed(ReaderId(log.name, log.partition, body.name))
    if found is None:
        raise Problem("not-found", f"log {log.folder.name} has no reader {body.name!r:.200}")
    where = f"reader {body.name!r} of {log.folder.name}"
    request: dict[str, Any] = {"log": log.name, "partition": log.partition, "reader": body.name}
    command = _command("readers", sources, f"--{body.action}", body.name, "--log", log.folder.name)
    if body.action == "release":
        held = "and has no pin" if found.pin is None else "and its pin ends: retention no longer waits for it"
        return Plan(f"{where} stays at offset {found.offset:,}, {held}", command, request)
    if body.action == "forget":
        text = f"{where} loses its place, offset {found.offset:,}: the next one starts afresh"
        return Plan(text, command, request, body.name)
    if body.offset is None or not log.start_offset <= body.offset <= log.end_offset:
        limits = f"{log.start_offset} to {log.end_offset}"
        raise Problem("invalid-request", f"invalid offset: expected one from {limits}, got {body.offset}")
    change = body.offset - found.offset
    effect = f"skips {change:,} offsets" if change > 0 else f"reads {-change:,} offsets again"
    text = f"{where} moves from offset {found.offset:,} to {body.offset:,} and {effect}"
    return Plan(text, None, {**request, "offset": body.offset})


def _roll(sources: Sources, log: LogView) -> Plan:
    growing = sum(
        one.records for one in sources.inspected(log.name, log.partition).segments if one.state != "sealed"
    )
    text = (
        f"ends the growing segment of {log.folder.name} with {growing:,} records; the next record begins a new one, "
        "and retention, compression and copies may take what was sealed"
    )
    partition = ["--partition", str(log.partition)] if log.partition else []
    command = _command("control", sources, "roll", words=(log.name, *partition))
    return Plan(text, command, {"log": log.name, "partition": log.partition})


def _log_level(sources: Sources, body: ActionBody) -> Plan:
    if body.level is None:
        raise Problem("invalid-request", "log_level needs a level")
    text = (
        f"the log of the server on standard error has lines from level {body.level} on for "
        f"{_minutes(body.duration_s)}, then from the usual one on"
    )
    command = _command("control", sources, "log-level", words=(body.level, "--for", f"{body.duration_s}s"))
    return Plan(text, command, {"level": body.level, "duration_s": body.duration_s})


def _front(sources: Sources) -> str:
    """Return the front that publishes. Raises Problem."""
    status = sources.status()
    fronts = status["fronts_with_clients"] if status else []
    if not fronts:
        raise Problem("no-server", "no server with clients runs on this store")
    return str(fronts[0])


def _of_topic(sources: Sources, session: Session, body: ActionBody) -> Plan:
    if body.topic is None:
        raise Problem("invalid-request", f"{body.action} needs a topic")
    front = _front(sources)
    request: dict[str, Any] = {"front": front, "topic": body.topic}
    kept = sources.server.call("retained", **request)["retained"]
    if body.action == "delete_retained":
        if kept is None:
            raise Problem("not-found", f"topic {body.topic!r:.200} has no retained message")
        text = (
            f"deletes the retained message of {body.topic!r} with {kept['payload_bytes']:,} bytes: new subscribers do "
            f"not get it any more; the record at offset {kept['offset']:,} stays in the log"
        )
        return Plan(text, shlex.join(["timestone", "pub", "-t", body.topic, "-n", "-r"]), request, body.topic)
    value = _value(sources, session, body)
    text = f"publishes {len(value):,} bytes to {body.topic!r} at QoS {body.qos} to all its subscribers"
    if body.retain:
        text += ", and retains them" + (
            f" in place of {kept['payload_bytes']:,} bytes" if kept is not None else " for later ones"
        )
    request |= {"payload": base64.b64encode(value).decode(), "qos": body.qos, "retain": body.retain}
    return Plan(text, None, request)


def _value(sources: Sources, session: Session, body: ActionBody) -> bytes:
    """Return what is to be published: a text, or the value of a record that the caller may read. Raises Problem."""
    value = _record_value(sources, session, body) if body.value is None else body.value.encode()
    if len(value) > _PUBLISH_BYTES:
        raise Problem(
            "too-large", f"the console publishes up to {_PUBLISH_BYTES:,} bytes: use `timestone pub -f`"
        )
    return value


def _record_value(sources: Sources, session: Session, body: ActionBody) -> bytes:
    if body.log is None or body.offset is None:
        raise Problem("invalid-request", "publish needs a value, or log and offset of a record")
    log = sources.log(body.log, body.partition)
    try:
        record = next(iter(log.read(body.offset, max_records=1)), None)
    except OffsetOutOfRange as error:
        raise Problem("not-found", str(error)) from None
    if record is None or record.offset != body.offset:
        raise Problem("not-found", f"log {log.folder.name} has no record at offset {body.offset}")
    topic = record.topic or ""
    if not sources.may_read(session, [topic])[topic]:
        raise Problem("not-allowed", "this login may not read the record")
    return bytes(record.payload)


def _of_client(sources: Sources, body: ActionBody) -> Plan:
    if body.client is None:
        raise Problem("invalid-request", f"{body.action} needs a client")
    rows = [
        row
        for row in sources.clients.rows().rows
        if row["client"] == body.client and body.user in (None, row["user"])
    ]
    if not rows and body.action != "end_session":
        raise Problem("not-found", f"no client {body.client!r:.200} is connected")
    who = [
        *([] if body.user is None else ["--user", body.user]),
        *(["--"] if body.client.startswith("-") else []),
        body.client,
    ]
    front = rows[0]["front"] if rows else _front(sources)
    request: dict[str, Any] = {"front": front, "client": body.client, "user": body.user}
    in_flight = sum(row["in_flight"] for row in rows)
    connections = f"{len(rows)} connection{'' if len(rows) == 1 else 's'} of client {body.client!r}"
    if body.action == "watch":
        text = (
            f"records kind, topic, size, QoS and reason of each packet of {connections} for "
            f"{_minutes(body.duration_s)}, at most 200 a second and no payloads, as events; only this client leaves "
            "the fast path until then"
        )
        words = ("--for", f"{body.duration_s}s", *who)
        request["duration_s"] = body.duration_s
        return Plan(text, _command("control", sources, "watch", words=words), request)
    if body.action == "end_session":
        subscriptions = sum(row["subscriptions"] for row in rows)
        text = f"ends the session of client {body.client!r} for good"
        text += (
            f": {connections} with {subscriptions:,} subscriptions and {in_flight:,} messages in flight; its will is "
            "published, and what waits for it is lost"
            if rows
            else ", which is away: its subscriptions and what waits for it are lost"
        )
        command = _command("kick", sources, words=("--end-session", *who))
        return Plan(text, command, request, body.client)
    text = (
        f"ends {connections} with {in_flight:,} messages in flight; the session stays, the will is published, and the "
        "client may connect again at once"
    )
    return Plan(text, _command("kick", sources, words=who), request)


def _configure(sources: Sources, body: ActionBody, name: str) -> Plan:
    row = sources.view.row(name, body.partition)
    if row is None:
        raise Problem("not-found", f"the catalogue has no settings of log {name!r}")
    try:
        after = with_settings(row.config, body.settings)
    except (ValueError, TypeError) as error:
        raise Problem("invalid-request", str(error)) from None
    changes = [
        f"{key} from {getattr(row.config, key)} to {getattr(after, key)}"
        for key in body.settings
        if getattr(row.config, key) != getattr(after, key)
    ]
    records, segments = expired(sources, name, body.partition, after.retention_ms, after.retention_bytes)
    text = (
        f"changes {', '.join(changes) or 'nothing'}; with that, retention may delete {records:,} records in "
    )
    text += f"{segments:,} segments"
    pairs = [f"{key}={value}" for key, value in body.settings.items()]
    partition = ["--partition", str(body.partition)] if body.partition else []
    request = {"logs": [[name, body.partition]], "settings": body.settings}
    command = _command("configure", sources, name, *pairs, *partition)
    return Plan(text, command, request, name if records else None)


def expired(
    sources: Sources, name: str, partition: int, retention_ms: int, retention_bytes: int
) -> tuple[int, int]:
    """Return how many records and segments of a log lie beyond a retention now, pins aside."""
    sealed = [one for one in sources.inspected(name, partition).segments if one.state == "sealed"]
    whole = sum(one.stored_bytes + one.index_bytes for one in sources.inspected(name, partition).segments)
    before_us = time.time_ns() // 1000 - retention_ms * 1000
    records = segments = 0
    for one in sealed:
        size = one.stored_bytes + one.index_bytes
        is_old = retention_ms > 0 and 0 < one.last_timestamp_us < before_us
        is_over = retention_bytes > 0 and whole - size >= retention_bytes
        if not is_old and not is_over:
            break
        whole -= size
        records, segments = records + one.records, segments + 1
    return records, segments


def _command(name: str, sources: Sources, *more: str, words: Sequence[str] = ()) -> str:
    """Return a command for a shell; no word is more than text there. more: words in front of the store for `control`,
    behind it for others."""
    store = str(sources.view.path)
    parts = [*more, store, *words] if name == "control" else [store, *more, *words]
    return shlex.join(["timestone", name, *parts])


def _minutes(seconds: int) -> str:
    return f"{seconds // 60} minutes" if seconds % 60 == 0 and seconds > 60 else f"{seconds} s"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.1f} MiB"

"""Actions of an operator: their arguments, their effect in words before they are done, and the same as a command."""

import shlex
import time
from typing import Annotated, Any, Literal

import msgspec

from timestone.config import with_settings
from timestone.reading.named_readers import ReaderId

from ..problems import Problem
from ..sources import Sources

Text = Annotated[str, msgspec.Meta(max_length=65_535)]
ActionName = Literal["disconnect", "configure", "release", "forget", "move"]


class ActionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Action and its arguments. preview: only state the effect in numbers, and do nothing.

    `disconnect`: client, user; `configure`: log, partition, settings (values in the unit of the name); `release`,
    `forget`, `move`: log, partition, name of a reader, and offset to move to."""

    action: ActionName
    client: Text | None = None
    user: Text | None = None
    log: Text | None = None
    partition: int = 0
    name: Text | None = None
    offset: int | None = None
    settings: dict[str, int | bool | str] = {}
    preview: bool = False


def planned(sources: Sources, body: ActionBody) -> tuple[str, str | None, dict[str, Any]]:
    """Return the effect in words, the command that does the same, and the arguments for the server. Raises Problem."""
    if body.action == "disconnect":
        return _disconnect(sources, body)
    if body.log is None:
        raise Problem("invalid-request", f"{body.action} needs a log")
    log = sources.log(body.log, body.partition)
    if body.action == "configure":
        return _configure(sources, body, log.name)
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
        return f"{where} stays at offset {found.offset}, {held}", command, request
    if body.action == "forget":
        return f"{where} loses its place, offset {found.offset}: the next one starts afresh", command, request
    if body.offset is None or not log.start_offset <= body.offset <= log.end_offset:
        limits = f"{log.start_offset} to {log.end_offset}"
        raise Problem("invalid-request", f"invalid offset: expected one from {limits}, got {body.offset}")
    change = body.offset - found.offset
    effect = f"skips {change:,} offsets" if change > 0 else f"reads {-change:,} offsets again"
    text = f"{where} moves from offset {found.offset} to {body.offset} and {effect}"
    return text, None, {**request, "offset": body.offset}


def _disconnect(sources: Sources, body: ActionBody) -> tuple[str, str | None, dict[str, Any]]:
    if body.client is None:
        raise Problem("invalid-request", "disconnect needs a client")
    rows = [
        row
        for row in sources.clients.rows().rows
        if row["client"] == body.client and body.user in (None, row["user"])
    ]
    if not rows:
        raise Problem("not-found", f"no client {body.client!r:.200} is connected")
    in_flight = sum(row["in_flight"] for row in rows)
    text = (
        f"ends {len(rows)} connection{'s' if len(rows) > 1 else ''} of client {body.client!r} with {in_flight:,} "
        "messages in flight; the session stays, the will is published, and the client may connect again at once"
    )
    user = [] if body.user is None else ["--user", body.user]
    request = {"front": rows[0]["front"], "client": body.client, "user": body.user}
    return text, _command("kick", sources, body.client, *user), request


def _configure(sources: Sources, body: ActionBody, name: str) -> tuple[str, str | None, dict[str, Any]]:
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
    request = {"logs": [[name, body.partition]], "settings": body.settings}
    return text, _command("configure", sources, f"{name}-{body.partition}", *pairs), request


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


def _command(name: str, sources: Sources, *words: str) -> str:
    """Return a command for a shell; no word is more than text there."""
    return shlex.join(["timestone", name, str(sources.view.path), *words])

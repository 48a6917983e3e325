"""Explanations of a report in words: each state with its cause and the next step. Pure functions, reports to
sentences."""

import shlex
from collections.abc import Iterator
from importlib.metadata import entry_points

from timestone.fronts import ENTRY_POINT_GROUP
from timestone.reading.retention_hold import Pin
from timestone.recovery.segment_report import State
from timestone.repair.inspection import (
    EXIT_CLEAN,
    EXIT_CORRUPT,
    EXIT_TORN,
    EXIT_UNCLOSED,
    EXIT_UNREADABLE,
)
from timestone.repair.inspection_report import LogReport, SegmentReport, StoreReport

from ..units import format_bytes, format_count, format_duration, format_second

_VERDICTS = {
    EXIT_CLEAN: "clean",
    EXIT_UNCLOSED: "unclosed but consistent",
    EXIT_TORN: "torn tail",
    EXIT_CORRUPT: "corruption",
    EXIT_UNREADABLE: "unreadable",
}
_SHOWN = 8


def verdict(report: StoreReport) -> str:
    """Return the state of the whole store and how thoroughly it was examined."""
    depth = "every record checked" if report.deep else "sealed segments not read; --deep does"
    return f"{_VERDICTS[report.exit_code]} (exit code {report.exit_code}; {depth})"


def explanations(report: StoreReport) -> Iterator[str]:
    """Yield one to three sentences for everything that differs from a clean stop."""
    if report.copied_from_pid is not None:
        yield (
            f"its LOCK names process {report.copied_from_pid}, which runs here but does not hold this directory: that "
            "process has closed the store, or these files are a copy of one in use."
        )
    yield from report.notes
    if report.bucket_error:
        yield (
            f"the last upload failed: {report.bucket_error}. Next: look at the bucket and the credentials; a running "
            "server tries again by itself."
        )
    states = {State(segment.state) for log in report.logs for segment in log.segments}
    if report.owner_pid is not None and State.UNCLOSED in states:
        yield f"unclosed segments are being written by process {report.owner_pid}. Nothing is wrong."
    for log in report.logs:
        name = f"{log.log}-{log.partition}"
        if log.error:
            yield (
                f"{name} cannot be read: {log.error} (a copy of a store in use may lack newer files: then "
                "copy again). Next: restore the file, or save what can be verified with `timestone salvage`; a newer "
                "format needs the Timestone that wrote it."
            )
        if log.unborn:
            yield (
                f"{name} is being created, or its creation was interrupted by a kill; it never held a record. "
                "Next: nothing; opening the store finishes it."
            )
        for segment in log.segments:
            if text := _about_segment(segment, report.owner_pid):
                yield f"{name}, segment {segment.base_offset}: {text}"
        yield from (f"{name}: {text}" for text in _about_folder(log))
        if log.age_unproven:
            yield (
                f"{name}: {format_count(log.age_unproven, 'segment')} older than retention_ms by the timestamps, "
                "but not by the time that the machine has provably been running since: it was off, or its clock was "
                "or is wrong. Retention keeps them. Next: nothing, or a retention_bytes to bound the disk."
            )
    for damage in report.damage[:_SHOWN]:
        found = format_second(damage.found_us)
        yield (
            f"{damage}. The scrubber of the process that owns the store found this on {found}. Next: check again with "
            "--deep; restore the files from a copy, or save all valid records with `timestone salvage`."
        )
    if len(report.damage) > _SHOWN:
        yield f"the scrubber has found {format_count(len(report.damage), 'damaged run')} of records in all."
    yield from about_pins(report)
    for reader in report.readers:
        if reader.missed:
            yield (
                f"reader {reader.name!r} of {reader.log}-{reader.partition}: retention has deleted "
                f"{format_count(reader.missed, 'offset')} that it had not read. Next: keep more "
                "(retention_ms, retention_bytes) or have it read sooner; it continues at the offset it seeks to."
            )


def about_pins(report: StoreReport) -> Iterator[str]:
    """Yield what each pin holds, up to which limit, and how to release it. A server releases those of its own."""
    pinned = [(reader, reader.pin) for reader in report.readers if reader.pin is not None]
    if not pinned:
        return  # Looking for entry points reads the metadata of all installed packages.
    fronts = tuple(f"{entry.name}." for entry in entry_points(group=ENTRY_POINT_GROUP))
    for reader, pin in pinned:
        is_of_front = reader.name.startswith(fronts)
        if is_of_front and not reader.unread_bytes:
            continue
        held = f"{format_bytes(reader.unread_bytes)} from there on, up to {_limits(pin)}"
        where = f"of {reader.log}-{reader.partition}"
        if is_of_front:
            yield (
                f"reader {reader.name!r} {where}, which belongs to the server, pins retention at offset "
                f"{reader.offset}: {held}. Next: nothing; the server moves it."
            )
            continue
        release = shlex.join(["timestone", "readers", report.path, "--release", reader.name])
        yield (
            f"reader {reader.name!r} {where} pins retention at offset {reader.offset}: {held}. "
            f"Next: if nothing uses it any more, release it with `{release}`."
        )


def _limits(pin: Pin) -> str:
    limits = [f"{format_bytes(pin.max_bytes)} more than retention keeps"] if pin.max_bytes else []
    if pin.max_age_ms:
        limits.append(f"records {format_duration(pin.max_age_ms)} old")
    return " or ".join(limits)


def _about_segment(segment: SegmentReport, owner_pid: int | None) -> str:
    match State(segment.state):
        case State.UNCLOSED if owner_pid is not None:
            return ""  # said once for all
        case State.UNCLOSED:
            return (
                "unclosed: its process ended without closing the store, or this is a copy of a store in use. All its "
                "records are valid. Next: open the store (serve or append); that seals the segment."
            )
        case State.TORN if segment.lost_durable and owner_pid is None:
            return _about_lost_records(segment)
        case State.TORN:
            return _about_torn_tail(segment, owner_pid)
        case State.DAMAGED:
            return _about_damage(segment)
        case State.ORPHAN:
            return (
                f"nothing can be served: {segment.reason} (a copy of a store in use lacks files created or deleted "
                "during the copy: then copy again). Next: restore the missing file, or save what can be verified with "
                "`timestone salvage`; opening the store without it renames the other to .lost."
            )
        case _:
            return ""


def _about_torn_tail(segment: SegmentReport, owner_pid: int | None) -> str:
    found = f"torn tail: after offset {segment.next_offset} come {_loss(segment)} that cannot be verified"
    if owner_pid is not None:
        return (
            f"{found}; they were never acknowledged as synced. Process {owner_pid} is writing here, so this may be an "
            "append in progress: check again."
        )
    if not segment.records and segment.reason:
        return (
            f"torn: nothing is left of its index ({segment.reason}), so the records in its "
            f"{format_bytes(segment.lost_bytes)} cannot be found. Either the power failed before the segment was first "
            "flushed: then none of it was acknowledged as synced; or this is a copy of a store in use, and the "
            "index was copied too early: then copy again; or the index was cut. Next: restore the index from a copy "
            "if there is one, before the store is opened; opening it (serve or append) keeps the segment in a .lost "
            "file and continues after every offset that it may have had."
        )
    late, early = ("index", "segment") if segment.missing_bytes else ("segment", "index")
    return (
        f"{found}: an append that was cut short, never acknowledged as synced; or, if this is a copy of a store in "
        f"use, the {early} was copied before the {late}. Next: open the store (serve or append); that keeps them in "
        ".lost files and continues before them."
    )


def _about_lost_records(segment: SegmentReport) -> str:
    first, count = segment.next_offset, segment.lost_durable
    offsets = f"offsets {first} to {first + count - 1}" if count > 1 else f"offset {first}"
    return (
        f"damaged: {offsets} were on the disk, and their index entries are lost: {segment.reason}. "
        "Next: restore the files from a copy, before the store is opened; opening it keeps the rest in .lost files "
        "and continues without these offsets."
    )


def _about_damage(segment: SegmentReport) -> str:
    if segment.missing_bytes:
        return (
            f"damaged: the segment file is {format_bytes(segment.missing_bytes)} shorter than its index states"
            f"{_at_offsets(segment)}: it was cut, or copied from a store in use before the index was. "
            "Next: copy again, each index before its segment, or restore the file; all other records are readable."
        )
    if not segment.damaged_offsets:
        return (
            f"damaged: {segment.reason}. "
            "Next: restore the files from a copy if there is one; all valid records are served."
        )
    count = len(segment.damaged_offsets)
    return (
        f"damaged: the record{'s' * (count > 1)}{_at_offsets(segment)} cannot be verified; "
        "all others are readable, and `timestone read` reports the damaged ones and continues. "
        "Next: restore the files from a copy if there is one; `timestone salvage` saves all valid records."
    )


def _at_offsets(segment: SegmentReport) -> str:
    offsets = segment.damaged_offsets
    return f" at offset{'s' * (len(offsets) > 1)} {_listed(offsets)}" if offsets else ""


def _about_folder(log: LogReport) -> Iterator[str]:
    if log.removed:
        yield (
            f"compacted: of {format_count(log.records + log.removed, 'record')}, {log.removed:,} were superseded by "
            "newer ones of their topics and removed; their offsets are gaps. Nothing is wrong."
        )
    reported = any(segment.lost_durable for segment in log.segments)
    for first, end in () if reported else log.missing[:_SHOWN]:
        yield (
            f"no segment holds offsets {first} to {end - 1}, which were assigned; readers get OffsetsLost. "
            "Next: if a recovery put their segment aside (.lost) and there is an intact copy, restore that."
        )
    if log.topics_reason:
        yield (
            f"{log.topics_reason}; the records are intact (a copy of a store in use may lack it: then copy it, last). "
            "Next: restore it from a copy, or open the store (serve or append), which rewrites what it can."
        )
    if log.topic_names_lost:
        lost = format_count(log.topic_names_lost, "topic")
        yield (
            f"the names of {lost} are lost; their records are readable without a topic. "
            "Next: restore the file `topics` from a copy if there is one."
        )
    if log.put_aside:
        yield (
            f"an earlier recovery put aside {_listed(log.put_aside)}. Nothing reads these files; "
            "delete them after an examination."
        )
    if log.strangers:
        yield f"foreign files, ignored: {_listed(log.strangers)}."


def loss(segment: SegmentReport) -> str:
    """Return what a segment does not serve, for a table cell; empty if it serves all."""
    parts = [_loss(segment)] if segment.lost_records or segment.lost_bytes else []
    if segment.damaged_offsets:
        parts.append(f"{len(segment.damaged_offsets):,} damaged")
    return ", ".join(parts)


def _loss(segment: SegmentReport) -> str:
    records = f"{format_count(segment.lost_records, 'record')}, " if segment.lost_records else ""
    return records + format_bytes(segment.lost_bytes)


def _listed(values: tuple[str, ...] | tuple[int, ...]) -> str:
    shown = ", ".join(str(value) for value in values[:_SHOWN])
    return shown + (f" and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else "")

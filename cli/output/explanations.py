"""What a report means, in words: each state with its cause and the next step. Pure functions, reports to sentences."""

from collections.abc import Iterator

from timestone.reading.retention_hold import Pin
from timestone.recovery.segment_report import State
from timestone.repair.inspection import (
    EXIT_CLEAN,
    EXIT_CORRUPT,
    EXIT_TORN,
    EXIT_UNCLOSED,
    EXIT_UNREADABLE,
)
from timestone.repair.inspection_report import LogReport, ReaderReport, SegmentReport, StoreReport

from ..units import format_bytes, format_count, format_duration, format_timestamp

_VERDICTS = {
    EXIT_CLEAN: "clean",
    EXIT_UNCLOSED: "unclosed but consistent",
    EXIT_TORN: "torn tail",
    EXIT_CORRUPT: "corruption",
    EXIT_UNREADABLE: "unreadable",
}
_SHOWN = 8


def verdict(report: StoreReport) -> str:
    """The state of the whole store and how thoroughly it was looked at."""
    depth = "every record checked" if report.deep else "sealed segments not read; --deep does"
    return f"{_VERDICTS[report.exit_code]} (exit code {report.exit_code}; {depth})"


def explanations(report: StoreReport) -> Iterator[str]:
    """A sentence or three for everything that is not as a clean stop leaves it."""
    if report.copied_from_pid is not None:
        yield (
            f"its LOCK names process {report.copied_from_pid}, which runs here but does not hold this directory: that "
            "process has let go of the store, or these files are a copy of one in use."
        )
    yield from report.notes
    for log in report.logs:
        name = f"{log.log}-{log.partition}"
        if log.error:
            yield (
                f"{name} cannot be read: {log.error} (a copy of a store in use may lack what was made meanwhile: then "
                "copy again). Next: bring the file back, or save what can be proved with `timestone salvage`; a newer "
                "format needs the Timestone that wrote it."
            )
        if log.unborn:
            yield (
                f"{name} is being made, or the process that made it was killed before it had; it never held a record. "
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
        found = format_timestamp(damage.found_us)[:10]
        yield (
            f"{damage}. The scrubber of the process that owns the store found this on {found}. Next: look again with "
            "--deep; bring the files back from a copy, or copy out all that holds with `timestone salvage`."
        )
    if len(report.damage) > _SHOWN:
        yield f"the scrubber has found {format_count(len(report.damage), 'damaged run')} of records in all."
    for reader in report.readers:
        if reader.pin is not None:
            yield about_pin(reader, reader.pin)
        if reader.missed:
            yield (
                f"reader {reader.name!r} of {reader.log}-{reader.partition}: retention has deleted "
                f"{format_count(reader.missed, 'offset')} that it had not read. Next: keep more "
                "(retention_ms, retention_bytes) or have it read sooner; it goes on where it seeks to."
            )


def about_pin(reader: ReaderReport, pin: Pin) -> str:
    """What a pin holds, up to what, and how to let go of it."""
    limits = [f"{format_bytes(pin.max_bytes)} more than retention keeps"] if pin.max_bytes else []
    if pin.max_age_ms:
        limits.append(f"records {format_duration(pin.max_age_ms)} old")
    return (
        f"reader {reader.name!r} of {reader.log}-{reader.partition} pins retention at offset {reader.offset}: "
        f"{format_bytes(reader.unread_bytes)} from there on, up to {' or '.join(limits)}. "
        "Next, when nobody uses it any more: release it with `timestone readers DIR --release`."
    )


def _about_segment(segment: SegmentReport, owner_pid: int | None) -> str:
    match State(segment.state):
        case State.UNCLOSED if owner_pid is not None:
            return f"being written by process {owner_pid}. Nothing is wrong."
        case State.UNCLOSED:
            return (
                "unclosed: its process ended without closing the store, or this is a copy of a store in use. All its "
                "records hold. Next: open the store (serve or append); that seals the segment."
            )
        case State.TORN if segment.lost_durable and owner_pid is None:
            return _about_lost_records(segment)
        case State.TORN:
            return _about_torn_tail(segment, owner_pid)
        case State.DAMAGED:
            return _about_damage(segment)
        case State.ORPHAN:
            return (
                f"nothing can be served: {segment.reason} (a copy of a store in use lacks what was made or deleted "
                "meanwhile: then copy again). Next: bring the missing file back, or save what can be proved with "
                "`timestone salvage`; "
                "opening the store without it renames what is there to .lost."
            )
        case _:
            return ""


def _about_torn_tail(segment: SegmentReport, owner_pid: int | None) -> str:
    found = f"torn tail: behind offset {segment.next_offset} lie {_loss(segment)} that prove nothing"
    if owner_pid is not None:
        return (
            f"{found}; they were never acknowledged as synced. Process {owner_pid} is writing here, so look again "
            "before you worry."
        )
    if not segment.records and segment.reason:
        return (
            f"torn: nothing is left of its index ({segment.reason}), so nothing tells its "
            f"{format_bytes(segment.lost_bytes)} apart. Either the power failed before the segment was flushed for "
            "the first time: then none of it was acknowledged as synced; or this is a copy of a store in use, and the "
            "index was copied too early: then copy again; or the index was cut. Next: bring the index back from a copy "
            "if there is one, before the store is opened; opening it (serve or append) keeps the segment in a .lost "
            "file and goes on behind every offset that it may have had."
        )
    late, early = ("index", "segment") if segment.missing_bytes else ("segment", "index")
    return (
        f"{found}: an append that was cut short, never acknowledged as synced; or, if this is a copy of a store in "
        f"use, the {early} was copied before the {late}. Next: open the store (serve or append); that keeps them in "
        ".lost files and goes on before them."
    )


def _about_lost_records(segment: SegmentReport) -> str:
    first, count = segment.next_offset, segment.lost_durable
    offsets = f"offsets {first} to {first + count - 1}" if count > 1 else f"offset {first}"
    return (
        f"damaged: {offsets} were on the disk, and nothing says any more where their bytes are: {segment.reason}. "
        "Next: bring the files back from a copy, before the store is opened; opening it keeps what is there in .lost "
        "files and goes on without these offsets."
    )


def _about_damage(segment: SegmentReport) -> str:
    if segment.missing_bytes:
        return (
            f"damaged: the segment file is {format_bytes(segment.missing_bytes)} short of what its index knows"
            f"{_at_offsets(segment)}: it was cut, or copied from a store in use before the index was. "
            "Next: copy again, each index before its segment, or bring the file back; all other records are readable."
        )
    if not segment.damaged_offsets:
        return (
            f"damaged: {segment.reason}. "
            "Next: bring the files back from a copy if there is one; what holds is served all the same."
        )
    count = len(segment.damaged_offsets)
    return (
        f"damaged: the record{'s' * (count > 1)}{_at_offsets(segment)} cannot be proved any more; "
        "all others are readable, and `timestone read` names the damaged ones and goes on. "
        "Next: bring the files back from a copy if there is one; `timestone salvage` copies out all that holds."
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
    told = any(segment.lost_durable for segment in log.segments)
    for first, end in () if told else log.missing[:_SHOWN]:
        yield (
            f"no segment holds offsets {first} to {end - 1}, which were given out; readers are told (OffsetsLost). "
            "Next: if a recovery put their segment aside (.lost) and there is a copy that is whole, bring that back."
        )
    if log.topics_reason:
        yield (
            f"{log.topics_reason}; the records are whole (a copy of a store in use may lack it: then copy it, last). "
            "Next: bring it back from a copy, or open the store (serve or append), which writes what it can anew."
        )
    if log.topic_names_lost:
        lost = format_count(log.topic_names_lost, "topic")
        yield (
            f"the names of {lost} are lost; their records are readable without a topic. "
            "Next: bring the file `topics` back from a copy if there is one."
        )
    if log.put_aside:
        yield (
            f"an earlier recovery put aside {_listed(log.put_aside)}. Nothing reads these files; "
            "delete them when you have looked at them."
        )
    if log.strangers:
        yield f"not Timestone's, left alone: {_listed(log.strangers)}."


def loss(segment: SegmentReport) -> str:
    """What a segment does not serve, for a table cell; empty when nothing."""
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

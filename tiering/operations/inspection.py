"""What the newest manifests of a bucket say of its logs, as `timestone inspect` shows a store on the disk."""

from dataclasses import replace

from timestone.errors import UnknownLog, UnsupportedFormat
from timestone.format import names
from timestone.recovery.segment_report import State
from timestone.repair.inspection import EXIT_CLEAN, EXIT_CORRUPT, EXIT_UNREADABLE
from timestone.repair.inspection_report import LogReport, SegmentReport, StoreReport

from ..buckets.bucket import Bucket
from ..errors import DamagedObject, NoHistory, ObjectMissing
from ..objects.history import LogHistory, listed_logs, log_histories
from ..objects.manifest import StoredSegment
from ..uploading.ownership import describe_claim, newest_claim
from .verification import LogVerification, Progress, verify_log


def inspect_bucket(
    bucket: Bucket,
    *,
    deep: bool = False,
    log: str | None = None,
    progress: Progress = lambda log, done, total: None,
) -> StoreReport:
    """Look at the logs of a bucket. deep: read every byte and compare it with its checksums. log: only the partitions
    of this log, or one folder such as `telemetry-0`.

    Raises NoHistory for a bucket without logs, UnknownLog, UnsupportedFormat, BucketError; what is damaged is in the
    report."""
    listed = listed_logs(bucket)
    if not listed:
        raise NoHistory(f"{bucket.url}: no log found there")
    chosen = [one for one in listed if log is None or log in (one[0], names.log_folder(*one))]
    if not chosen:
        raise UnknownLog(str(log), tuple(names.log_folder(*one) for one in listed))
    claim = newest_claim(bucket)
    logs, notes = [], []
    for name, partition in chosen:
        folder = names.log_folder(name, partition)
        try:
            (history,) = log_histories(bucket, [folder])
            found = _log_report(history)
        except (DamagedObject, ObjectMissing, UnsupportedFormat) as error:
            logs.append(_unreadable(name, partition, str(error)))
            continue
        if deep:
            checked = verify_log(history, progress)
            found = _with_damage(found, checked)
            notes += [f"{folder}: {one.object}: {one.reason}." for one in checked.damage]
        logs.append(found)
    code = EXIT_CORRUPT if notes or any(one.missing for one in logs) else EXIT_CLEAN
    return StoreReport(
        path=bucket.url,
        owner_pid=None,
        owner="claimed by no store" if claim is None else describe_claim(bucket, claim.generation),
        deep=deep,
        logs=tuple(logs),
        readers=(),
        notes=tuple(notes),
        exit_code=EXIT_UNREADABLE if any(one.error for one in logs) else code,
    )


def _log_report(history: LogHistory) -> LogReport:
    manifest, place = history.manifest, history.manifest.place
    segments = tuple(map(_segment_report, history.objects.segments(manifest)))
    return LogReport(
        log=place.log,
        partition=place.partition,
        id=place.log_id,
        epoch=max((one.epoch or 0 for one in manifest.segments), default=0),
        start_offset=manifest.start,
        end_offset=manifest.end,
        synced_offset=manifest.end,
        records=sum(one.records for one in segments),
        removed=0,
        bytes=sum(one.bytes for one in segments),
        stored_bytes=sum(one.stored_bytes for one in segments),
        topics=manifest.topic_count,
        topic_names_lost=0,
        segments=segments,
        strangers=(),
        put_aside=(),
        error="",
        missing=manifest.missing,
    )


def _segment_report(stored: StoredSegment) -> SegmentReport:
    trailer = stored.trailer
    return SegmentReport(
        base_offset=stored.base,
        next_offset=stored.end,
        records=trailer.entry_count,
        bytes=trailer.segment_bytes,
        stored_bytes=stored.segment.size_bytes,
        index_bytes=stored.index.size_bytes,
        first_timestamp_us=trailer.first_timestamp_us,
        last_timestamp_us=trailer.last_timestamp_us,
        state=str(State.SEALED),
        checkpoint=trailer.entry_count,
        topics=trailer.summary_count,
        damaged_offsets=(),
        lost_records=0,
        lost_bytes=0,
        reason="",
    )


def _with_damage(report: LogReport, checked: LogVerification) -> LogReport:
    damaged = [
        (one.first_offset, one.end_offset)
        for one in checked.damage
        if one.first_offset is not None and one.end_offset is not None
    ]
    segments = []
    for segment in report.segments:
        within = (
            range(max(first, segment.base_offset), min(end, segment.next_offset)) for first, end in damaged
        )
        found = tuple(sorted(set().union(*within)))
        state = str(State.DAMAGED) if found else segment.state
        segments.append(replace(segment, state=state, damaged_offsets=found))
    return replace(report, segments=tuple(segments))


def _unreadable(name: str, partition: int, error: str) -> LogReport:
    return LogReport(name, partition, *(0,) * 10, segments=(), strangers=(), put_aside=(), error=error)

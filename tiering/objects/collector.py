"""Which objects of a log nothing needs any more: what a killed upload has left, what retention has dropped, and
manifests that newer ones have replaced.

A reader may have planned by any manifest that was the newest within the delay, so what these name is kept. A name that
was dropped never comes back, so a collection that is interrupted, or slow, does no harm."""

from collections.abc import Iterable, Iterator, Sequence

from ..buckets.bucket import Bucket, ObjectFacts
from .layout import Version
from .manifest import Manifest
from .manifests import LogObjects

PROBES = "probe/"
"""Objects of the check that a start makes; a killed one leaves its object behind."""


def unused_objects(objects: LogObjects, *, before_us: int) -> list[ObjectFacts]:
    """Return the objects of a log that were made before this time, and that no manifest names which was the newest at
    this time or later; the manifests among them first.

    Raises DamagedObject, UnsupportedFormat when one of those manifests cannot be read: nothing is known to be unused
    then. BucketError."""
    listed = list(
        objects.bucket.objects(objects.place.prefix)
    )  # before the manifests: what comes later stays
    manifests = sorted(
        (version, facts.modified_us)
        for facts in objects.bucket.objects(objects.place.manifests)
        if (version := objects.place.parse_manifest(facts.name)) is not None
    )
    kept = _kept(manifests, before_us)
    if len(listed) == 1 and kept and kept[-1].is_end and listed[0].modified_us < before_us:
        return listed  # last of all, so that an interrupted deletion does not bring an older manifest back
    kept_names = {objects.place.manifest(version) for version in kept}
    old = [one for one in listed if one.modified_us < before_us and one.name not in kept_names]
    replaced = [one for one in old if objects.place.parse_manifest(one.name) is not None]
    others = {one.name: one for one in old if objects.place.parse_manifest(one.name) is None}
    for version in reversed(kept):
        if not others:
            break
        if version.is_end:
            continue  # it names nothing
        manifest = Manifest.decode(
            objects.bucket.read(objects.place.manifest(version)), objects.place, version
        )
        for name in _named(objects, manifest):
            others.pop(name, None)
    return [*replaced, *others.values()]


def unused_probes(bucket: Bucket, *, before_us: int) -> list[ObjectFacts]:
    """Return the objects that the checks of killed starts have left. Raises BucketError."""
    return [one for one in bucket.objects(PROBES) if one.modified_us < before_us]


def delete_objects(bucket: Bucket, objects: Iterable[ObjectFacts]) -> None:
    """Delete objects in this order. Raises BucketError."""
    bucket.delete([one.name for one in objects])


def _kept(manifests: Sequence[tuple[Version, int]], before_us: int) -> list[Version]:
    """Return the newest manifest, and those that were the newest until this time or later; in order. manifests: with
    the times when they were made."""
    kept = []
    replaced_us: int | None = None
    for version, modified_us in reversed(manifests):
        if replaced_us is None or replaced_us >= before_us:
            kept.append(version)
        replaced_us = modified_us if replaced_us is None else min(replaced_us, modified_us)
    return kept[::-1]


def _named(objects: LogObjects, manifest: Manifest) -> Iterator[str]:
    """Yield the names of all objects that a manifest and its chapters name, without segments that it has dropped."""
    yield from (objects.name_of(one) for one in manifest.objects())
    for segment in objects.segments(manifest):
        yield objects.name_of(segment.segment)
        yield objects.name_of(segment.index)

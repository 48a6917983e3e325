"""Which objects are unused: none that a reader may still need."""

import os
from pathlib import Path

import pytest

from tests.support.buckets import checked_manifest
from tests.tiering.conftest import only_history
from timestone_tiering.buckets.folder_bucket import FolderBucket
from timestone_tiering.errors import DamagedObject
from timestone_tiering.objects.collector import delete_objects, unused_objects, unused_probes
from timestone_tiering.objects.layout import Version

HOUR_US = 3_600_000_000
BEGIN_US = 1_000 * HOUR_US


def set_age(bucket: FolderBucket, name: str, modified_us: int) -> None:
    path = Path(bucket.url.removeprefix("file://"), name)
    os.utime(path, ns=(modified_us * 1000, modified_us * 1000))


@pytest.fixture
def aged(uploaded: FolderBucket) -> FolderBucket:
    """A manifest an hour from the first one on, each made with what it names first."""
    history = only_history(uploaded)
    for facts in uploaded.objects(history.objects.place.prefix):
        set_age(uploaded, facts.name, BEGIN_US)
    for version in history.objects.versions():
        set_age(uploaded, history.objects.place.manifest(version), BEGIN_US + version.number * HOUR_US)
    return uploaded


def unused(bucket: FolderBucket, before_us: int) -> list[str]:
    found = unused_objects(only_history(bucket).objects, before_us=before_us)
    return [one.name.split("/", 2)[2] for one in found]


def test_replaced_manifests_are_unused_after_the_delay(aged: FolderBucket) -> None:
    objects = only_history(aged).objects
    names = [objects.place.manifest(version).split("/", 2)[2] for version in objects.versions()]
    assert len(names) == 3
    # The first was the newest for an hour, the second for another, the third is.
    assert unused(aged, BEGIN_US + HOUR_US) == []
    assert unused(aged, BEGIN_US + HOUR_US + 1) == names[:1]
    assert unused(aged, BEGIN_US + 2 * HOUR_US + 1) == names[:2]
    assert unused(aged, BEGIN_US + 1000 * HOUR_US) == names[:2]


def test_an_object_without_a_manifest_is_unused_after_the_delay(aged: FolderBucket) -> None:
    prefix = only_history(aged).objects.place.prefix
    aged.write(f"{prefix}segments/left-by-a-killed-upload.segment", [b"x"])
    set_age(aged, f"{prefix}segments/left-by-a-killed-upload.segment", BEGIN_US)
    assert unused(aged, BEGIN_US) == []
    assert unused(aged, BEGIN_US + 1) == ["segments/left-by-a-killed-upload.segment"]


def test_what_retention_has_dropped_is_kept_for_readers_of_the_manifest_before(aged: FolderBucket) -> None:
    history = only_history(aged)
    dropped = history.manifest.segments[0]
    shorter = history.manifest.starting_at(dropped.end)
    version = Version(shorter.version.generation, shorter.version.number + 1)
    history.objects.commit(
        type(shorter)(**{name: getattr(shorter, name) for name in shorter.__slots__} | {"version": version})
    )
    set_age(aged, history.objects.place.manifest(version), BEGIN_US + 10 * HOUR_US)
    names = {dropped.segment.name, dropped.index.name}
    assert not names & set(unused(aged, BEGIN_US + 10 * HOUR_US))
    assert names <= set(unused(aged, BEGIN_US + 10 * HOUR_US + 1))
    delete_objects(aged, unused_objects(history.objects, before_us=BEGIN_US + 100 * HOUR_US))
    manifest = checked_manifest(aged, history.objects.place)
    assert manifest is not None and (manifest.start, manifest.end) == (10, 30)
    assert unused(aged, BEGIN_US + 100 * HOUR_US) == []


def test_nothing_is_unused_when_a_manifest_that_counts_is_damaged(aged: FolderBucket) -> None:
    history = only_history(aged)
    prefix = history.objects.place.prefix
    aged.write(f"{prefix}segments/left.segment", [b"x"])
    set_age(aged, f"{prefix}segments/left.segment", BEGIN_US)
    name = history.objects.place.manifest(history.manifest.version)
    aged.write(name, [b"not a manifest"])
    with pytest.raises(DamagedObject):
        unused_objects(history.objects, before_us=BEGIN_US + 100 * HOUR_US)


def test_probes_of_killed_starts_are_unused(bucket: FolderBucket) -> None:
    bucket.write("probe/00", [b"x"])
    set_age(bucket, "probe/00", BEGIN_US)
    bucket.write("probe/01", [b"x"])
    assert [one.name for one in unused_probes(bucket, before_us=BEGIN_US + 1)] == ["probe/00"]

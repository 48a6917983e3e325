"""Names of objects: they sort as numbers do, and are parsed back."""

import pytest

from timestone_tiering.objects.layout import LogPlace, Version, generation_of, owner_name, parse_owner

PLACE = LogPlace(0x0123456789ABCDEF, "telemetry", 3)


def test_names_of_a_log_are_below_its_id_and_folder() -> None:
    assert PLACE.prefix == "0123456789abcdef/telemetry-3/"
    assert LogPlace.parse(PLACE.prefix) == PLACE


@pytest.mark.parametrize("prefix", ["owners/", "0123456789abcdef/", "0123/telemetry-3/", "x" * 16 + "/a-0/"])
def test_parse_returns_none_for_another_prefix(prefix: str) -> None:
    assert LogPlace.parse(prefix) is None


def test_manifests_sort_by_generation_then_number() -> None:
    versions = [Version(1, 0), Version(1, 9), Version(1, 10), Version(2, 0), Version(10, 1)]
    names = [PLACE.manifest(version) for version in versions]
    assert names == sorted(names)
    assert [PLACE.parse_manifest(name) for name in names] == versions == sorted(versions)


@pytest.mark.parametrize(
    "name", ["manifest/1-1.json.zst", "manifest/0000000001-0000000001.json.zst.tmp", "x"]
)
def test_parse_manifest_returns_none_for_another_object(name: str) -> None:
    assert PLACE.parse_manifest(PLACE.prefix + name) is None


def test_generation_is_in_each_name() -> None:
    for name in (
        PLACE.segment_stem(0, 10, 7, "00" * 8) + ".index",
        PLACE.topics(0, 1, 7, b"x"),
        PLACE.dictionary(1, 7, b"x"),
        PLACE.chapter(0, 10, 7, b"x"),
    ):
        assert generation_of(name) == 7
    assert generation_of(PLACE.manifest(Version(7, 0))) is None


def test_owner_names_are_parsed_back() -> None:
    assert parse_owner(owner_name(12)) == 12
    assert parse_owner("owners/12.json") is None

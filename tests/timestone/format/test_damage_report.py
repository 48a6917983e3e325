"""The stored report of damage: written, read back, and never blocking other work."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from timestone.disk.catalog import Catalog
from timestone.format.damage_report import RANGES_MOST, SPACE, Damage, damage_key, encode_damage, known_damage

ONE = Damage("a", 0, 100, 107, 108, "the bytes do not match their checksum", 5)
RUN = Damage("a", 0, 100, 120, 130, "the index entry does not match its checksum", 5)
PAGE = Damage("b.c-d", 3, 0, 0, 0, "the trailer of the index does not match its checksum", 6)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with contextlib.closing(Catalog(tmp_path / "catalog.db")) as opened:
        yield opened


def test_damage_is_read_back_in_order(catalog: Catalog) -> None:
    documents: dict[str, bytes | None] = {
        damage_key("b.c-d", 3, 0): encode_damage([PAGE]),
        damage_key("a", 0, 100): encode_damage([ONE, RUN]),
    }
    catalog.put_many(SPACE, documents)
    assert known_damage(catalog) == [ONE, RUN, PAGE]


def test_damage_is_described_in_words() -> None:
    assert str(ONE) == "a-0, segment 100: offset 107: the bytes do not match their checksum"
    assert str(RUN) == "a-0, segment 100: offsets 120 to 129: the index entry does not match its checksum"
    assert str(PAGE) == "b.c-d-3, segment 0: the trailer of the index does not match its checksum"


def test_description_counts_ranges_when_they_are_many(catalog: Catalog) -> None:
    many = [Damage("a", 0, 0, 2 * number, 2 * number + 1, "gone", 1) for number in range(RANGES_MOST + 5)]
    catalog.put_many(SPACE, {"a-0/0": encode_damage(many)})
    found = known_damage(catalog)
    assert found[:RANGES_MOST] == many[:RANGES_MOST]
    assert found[-1].reason == "and 5 more runs"


def test_invalid_documents_are_skipped(catalog: Catalog) -> None:
    strange: dict[str, bytes | None] = {
        "pass": b"{}",
        "a-0": b"",
        "a-0/x": b"",
        "a-0/0": b"rubbish",
        "a-0/1": b"{}",
        "nothing/1": b"",
    }
    strange["a-0/2"] = json.dumps({"found_us": 1, "ranges": [[1, 2]]}).encode()
    catalog.put_many(SPACE, strange)
    assert known_damage(catalog) == []

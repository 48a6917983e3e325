"""Damage on record: written, read back, and never in the way."""

import json

from timestone.format.damage_report import RANGES_MOST, SPACE, Damage, damage_key, encode_damage, known_damage

ONE = Damage("a", 0, 100, 107, 108, "the bytes do not hold", 5)
RUN = Damage("a", 0, 100, 120, 130, "the index entry does not hold", 5)
PAGE = Damage("b.c-d", 3, 0, 0, 0, "the trailer of the index does not match its checksum", 6)


class Documents:
    def __init__(self, items: dict[str, bytes]) -> None:
        self._items = items

    def items(self, space: str) -> dict[str, bytes]:
        assert space == SPACE
        return self._items


def test_damage_is_read_back_in_order() -> None:
    documents = Documents(
        {damage_key("b.c-d", 3, 0): encode_damage([PAGE]), damage_key("a", 0, 100): encode_damage([ONE, RUN])}
    )
    assert known_damage(documents) == [ONE, RUN, PAGE]


def test_damage_in_words() -> None:
    assert str(ONE) == "a-0, segment 100: offset 107: the bytes do not hold"
    assert str(RUN) == "a-0, segment 100: offsets 120 to 129: the index entry does not hold"
    assert str(PAGE) == "b.c-d-3, segment 0: the trailer of the index does not match its checksum"


def test_much_damage_is_counted() -> None:
    many = [Damage("a", 0, 0, 2 * number, 2 * number + 1, "gone", 1) for number in range(RANGES_MOST + 5)]
    found = known_damage(Documents({"a-0/0": encode_damage(many)}))
    assert found[:RANGES_MOST] == many[:RANGES_MOST]
    assert found[-1].reason == "and 5 more runs"


def test_documents_that_make_no_sense_are_left_out() -> None:
    strange = {"pass": b"{}", "a-0": b"", "a-0/x": b"", "a-0/0": b"rubbish", "a-0/1": b"{}", "nothing/1": b""}
    strange["a-0/2"] = json.dumps({"found_us": 1, "ranges": [[1, 2]]}).encode()
    assert known_damage(Documents(strange)) == []

"""The parameters made up for a name do not reveal whether a user of that name exists."""

from collections import Counter

from timestone_access.passwords.scram_decoys import ScramDecoys
from timestone_access.passwords.scram_hash import ScramSha256, hash_scram

NAMES = [f"nobody-{number}" for number in range(2000)]


def users(*forms: tuple[int, int]) -> list[ScramSha256]:
    """Users with so many iterations, and salts of so many bytes."""
    return [
        ScramSha256(hash_scram(b"x", salt=bytes([number]) * salt_bytes, iterations=iterations))
        for number, (iterations, salt_bytes) in enumerate(forms)
    ]


def forms(decoys: ScramDecoys) -> dict[str, tuple[int, int]]:
    return {name: (iterations, len(salt)) for name in NAMES for salt, iterations in [decoys.of(name)]}


def test_decoys_have_the_distribution_of_real_parameters() -> None:
    found = forms(ScramDecoys(users((4096, 16), (4096, 16), (4096, 16), (5000, 24))))
    counted = Counter(found.values())
    assert set(counted) == {(4096, 16), (5000, 24)}
    assert 1300 < counted[4096, 16] < 1700, "of 2000, three quarters"


def test_decoy_of_a_name_keeps_its_salt() -> None:
    records = users((4096, 16), (5000, 24))
    salts = [ScramDecoys(records).of(name) for name in NAMES]
    assert salts == [ScramDecoys(records).of(name) for name in NAMES]
    assert len({salt for salt, _ in salts}) == len(NAMES)


def test_additional_user_changes_few_decoys() -> None:
    records = users(*[(4096, 16)] * 10, *[(5000, 16)] * 10)
    before, after = forms(ScramDecoys(records[:19])), forms(ScramDecoys(records))
    assert sum(before[name] != after[name] for name in NAMES) < 200

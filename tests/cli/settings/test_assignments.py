import pytest

from timestone_cli.errors import UsageError
from timestone_cli.settings.assignments import given_settings


def test_values_have_the_type_of_their_setting() -> None:
    found = given_settings(["retention_ms=7d", "segment_bytes=1MiB", "compact=yes"])
    assert found == {"retention_ms": 604_800_000, "segment_bytes": 1 << 20, "compact": True}
    assert given_settings([]) == {}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["retention=7d"], "unknown setting 'retention'"),
        (["retention_ms"], "missing value of retention_ms"),
        (["retention_ms=1", "retention_ms=2"], "given twice"),
        (["retention_ms=soon"], "retention_ms: "),
    ],
)
def test_word_that_sets_nothing_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        given_settings(words)

from dataclasses import dataclass

import pytest

from timestone_cli.input.positions import Position, parse_position


@dataclass
class TenRecords:
    """A log with offsets [5, 15), one a second from second 100."""

    start_offset: int = 5
    end_offset: int = 15

    def offset_at(self, timestamp_us: int) -> int:
        return min(15, max(5, 5 + -(-(timestamp_us - 100_000_000) // 1_000_000)))


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("earliest", 5),
        ("latest", 15),
        ("offset:7", 7),
        ("offset:99", 99),
        ("time:1970-01-01T00:01:42Z", 7),
        ("time:1970-01-01T00:01:41.5Z", 7),
        ("time:1970-01-01T02:01:42+02:00", 7),
        ("time:2026-07-01T08:00:00Z", 15),
    ],
)
def test_a_place_becomes_an_offset(text: str, offset: int) -> None:
    assert parse_position(text).resolve(TenRecords()) == offset


def test_microseconds_are_exact() -> None:
    assert parse_position("time:2026-07-01T08:00:00.000001Z") == Position("time", 1_782_892_800_000_001)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected earliest, latest, offset:N or time:RFC3339"),
        ("17", "expected earliest, latest, offset:N or time:RFC3339"),
        ("offset:", "expected earliest, latest, offset:N or time:RFC3339"),
        ("offset:-1", "expected earliest, latest, offset:N or time:RFC3339"),
        ("offset:٣", "expected earliest, latest, offset:N or time:RFC3339"),
        ("earliest:3", "expected earliest, latest, offset:N or time:RFC3339"),
        ("time:", "expected an RFC 3339 time such as"),
        ("time:yesterday", "expected an RFC 3339 time such as"),
        ("time:2026-07-01T08:00:00", "expected a time zone in '2026-07-01T08:00:00'"),
        ("time:2026-07-01", "in '2026-07-01': 2026-07-01T00:00:00Z for UTC"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_position(text)

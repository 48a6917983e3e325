import pytest

from timestone_cli.units import (
    format_bytes,
    format_count,
    format_duration,
    format_timestamp,
    parse_bytes,
    parse_count,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096 bytes", None),
        ("64 MiB", 64 << 20),
        ("64mib", 64 << 20),
        ("1.5 GiB", 3 << 29),
        ("1 kB", 1000),
        ("2m", 2 << 20),
        ("1_000", 1000),
        ("9007199254740993", 9007199254740993),
        ("0.3", None),
        ("-1", -1),
        ("12 parsec", None),
        ("", None),
        ("MiB", None),
        ("1e6", None),
        ("9" * 400 + ".5", None),
    ],
)
def test_sizes(text: str, value: int | None) -> None:
    if value is None:
        with pytest.raises(ValueError):
            parse_bytes(text)
    else:
        assert parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1000", "ms", 1000),
        ("5 s", "ms", 5000),
        ("7d", "ms", 604_800_000),
        ("1.5 s", "ms", 1500),
        ("2 min", "s", 120),
        ("250us", "us", 250),
        ("1 ms", "s", None),
        ("0.5", "ms", None),
        ("5 MiB", "ms", None),
        ("soon", "ms", None),
    ],
)
def test_durations(text: str, unit: str, value: int | None) -> None:
    if value is None:
        with pytest.raises(ValueError):
            parse_duration(text, unit)
    else:
        assert parse_duration(text, unit) == value


@pytest.mark.parametrize(
    ("text", "value"), [("12", 12), ("1_000", 1000), ("1.0", None), ("5 s", None), ("x", None)]
)
def test_counts(text: str, value: int | None) -> None:
    if value is None:
        with pytest.raises(ValueError):
            parse_count(text)
    else:
        assert parse_count(text) == value


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 byte"),
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (1024, "1.0 KiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 50, "5,120.0 TiB"),
    ],
)
def test_sizes_are_shown_in_binary_units(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_counts_are_shown_with_their_noun() -> None:
    assert format_count(1, "record") == "1 record"
    assert format_count(2000, "record") == "2,000 records"


@pytest.mark.parametrize(
    ("timestamp_us", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_782_892_800_000_001, "2026-07-01T08:00:00.000001Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (2**62, f"{2**62} us"),
    ],
)
def test_timestamps_are_shown_in_utc_even_when_no_calendar_has_them(timestamp_us: int, text: str) -> None:
    assert format_timestamp(timestamp_us) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (250, "250 ms"),
        (5000, "5 s"),
        (90_000, "1.5 min"),
        (90_001, "90,001 ms"),
        (30 * 86_400_000, "30 d"),
    ],
)
def test_durations_are_shown_in_the_largest_unit_that_fits(ms: int, text: str) -> None:
    assert format_duration(ms) == text

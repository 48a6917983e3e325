from pathlib import Path

import click
import pytest

from timestone_cli.input.parameters import (
    COUNT,
    DIRECTORY,
    FILE,
    SECONDS,
    Parsed,
    count_from,
    duration_ms,
    size_bytes,
)

CONTEXT = click.Context(click.Command("prog"))


def test_path_is_a_path_and_not_empty() -> None:
    assert DIRECTORY.convert("a/b", None, None) == Path("a/b")
    with pytest.raises(click.BadParameter, match="expected a path, got an empty text"):
        FILE.convert("", None, None)


def test_default_that_is_a_value_already_is_kept() -> None:
    assert DIRECTORY.convert(Path("x"), None, None) == Path("x")


@pytest.mark.parametrize(("kind", "completes"), [(DIRECTORY, "dir"), (FILE, "file")])
def test_shell_completes_paths(kind: Parsed[Path], completes: str) -> None:
    (item,) = kind.shell_complete(CONTEXT, click.Argument(["x"]), "da")
    assert (item.value, item.type) == ("da", completes)
    assert COUNT.shell_complete(CONTEXT, click.Argument(["x"]), "1") == []


def test_count_is_a_whole_number_from_its_least() -> None:
    assert [COUNT.convert(text, None, None) for text in ("0", "12", "1_000")] == [0, 12, 1000]
    assert count_from(1).convert("1", None, None) == 1
    assert count_from(1, 9).convert("9", None, None) == 9
    with pytest.raises(click.BadParameter, match="expected a whole number from 1 to 9, got '10'"):
        count_from(1, 9).convert("10", None, None)


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "1k", ""])
def test_count_refuses_other_texts(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"expected a whole number from 0, got '{text}'"):
        COUNT.convert(text, None, None)


@pytest.mark.parametrize(("text", "value"), [("600", 600_000), ("0.5", 500), ("10min", 600_000), ("5 ms", 5)])
def test_duration_without_a_unit_counts_the_given_one(text: str, value: int) -> None:
    assert duration_ms("s").convert(text, None, None) == value


@pytest.mark.parametrize(("text", "value"), [("64", 64 << 20), ("1KiB", 1024), ("2 GB", 2 * 10**9)])
def test_size_without_a_unit_counts_the_given_one(text: str, value: int) -> None:
    assert size_bytes("MiB").convert(text, None, None) == value


@pytest.mark.parametrize("text", ["-1", "much", "1 weeks", ""])
def test_amounts_refuse_other_texts(text: str) -> None:
    for kind in (duration_ms("s"), size_bytes("MiB")):
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)


def test_amounts_refuse_more_than_a_signed_64_bit_number() -> None:
    assert duration_ms("s").convert("9223372036854775807ms", None, None) == 2**63 - 1
    for kind, text in (
        (duration_ms("s"), f"{2**63}ms"),
        (duration_ms("s"), "1000000000000d"),
        (size_bytes("MiB"), str(2**43)),
    ):
        with pytest.raises(click.BadParameter, match="expected at most 2\\^63 - 1"):
            kind.convert(text, None, None)


def test_empty_amount_is_named_as_given() -> None:
    with pytest.raises(click.BadParameter, match="expected a number, got ''"):
        duration_ms("s").convert("", None, None)


@pytest.mark.parametrize("text", ["0", "-5", "nan", "inf", "soon", ""])
def test_seconds_are_a_number_above_0(text: str) -> None:
    assert SECONDS.convert("0.5", None, None) == 0.5
    with pytest.raises(click.BadParameter, match=f"expected a number of seconds above 0, got '{text}'"):
        SECONDS.convert(text, None, None)

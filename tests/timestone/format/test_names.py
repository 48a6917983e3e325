from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone.errors import InvalidName
from timestone.format.names import (
    DELETED_SUFFIX,
    free_path,
    index_path,
    is_deleted_log,
    log_folder,
    missing_path,
    parse_log_folder,
    parse_missing,
    parse_pair_base,
    parse_segment,
    segment_path,
    store_directory,
    validate_log,
    validate_log_name,
    validate_reader_name,
)


@pytest.mark.parametrize("name", ["a", "telemetry", "A.b_c-9", "_x", "9", "x" * 200, "a-0", "a.index"])
def test_valid_log_name_is_parsed_back_from_its_folder(name: str) -> None:
    validate_log_name(name)
    assert parse_log_folder(log_folder(name, 12)) == (name, 12)


BAD_NAMES = [
    "",
    ".",
    "..",
    ".hidden",
    "-x",
    "a/b",
    "../a",
    "a b",
    "a\0b",
    "a\n",
    "é",
    "x" * 201,
    "a\\b",
    "C:",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_log_name_is_refused_when_it_could_leave_the_store_or_confuse_a_shell(name: str) -> None:
    with pytest.raises(InvalidName):
        validate_log_name(name)


@pytest.mark.parametrize("partition", [-1, 1_000_000_000])
def test_partition_is_refused_when_it_cannot_be_parsed_back_from_a_folder(partition: int) -> None:
    assert parse_log_folder(log_folder("a", partition)) != ("a", partition)
    with pytest.raises(InvalidName, match=f"'a' cannot have a partition {partition}: 0 to 999,999,999"):
        validate_log("a", partition)


@pytest.mark.parametrize("partition", [0, 999_999_999])
def test_valid_partition_is_parsed_back_from_its_folder(partition: int) -> None:
    validate_log("a", partition)
    assert parse_log_folder(log_folder("a", partition)) == ("a", partition)


@pytest.mark.parametrize(
    ("name", "partition"), [(5, 0), (None, 0), (b"a", 0), ("a", True), ("a", 1.5), ("a", "0")]
)
def test_names_of_a_wrong_type_raise_type_error(name: Any, partition: Any) -> None:
    with pytest.raises(
        TypeError, match=r"name of a log: expected text|partition of log 'a': expected a whole number"
    ):
        validate_log(name, partition)


def test_reader_name_is_refused_when_it_is_not_text() -> None:
    with pytest.raises(TypeError, match="invalid name of a reader: expected text, got 5"):
        validate_reader_name(5)  # type: ignore[arg-type]


def test_empty_path_is_refused() -> None:
    with pytest.raises(ValueError, match="the path of the store is empty"):
        store_directory("")
    assert store_directory(".") == Path()


STRANGE_FOLDERS = ["telemetry", "telemetry-", "telemetry-x", "telemetry-01", "-0", ".a-0", "a-0 ", "a-0\n"]


@pytest.mark.parametrize("folder", STRANGE_FOLDERS, ids=ascii)
def test_foreign_folder_is_not_a_log(folder: str) -> None:
    assert parse_log_folder(folder) is None


def test_partition_is_what_follows_the_last_dash() -> None:
    assert parse_log_folder("a-1-2") == ("a-1", 2)


def test_file_names_are_the_base_offset_in_twenty_digits() -> None:
    assert segment_path(Path("f"), 7) == Path("f/00000000000000000007.segment")
    assert index_path(Path("f"), 2**62) == Path("f/04611686018427387904.index")


@given(st.integers(0, 9 * 10**18 - 1))
def test_base_offset_is_parsed_back_from_the_name(base: int) -> None:
    assert parse_segment(segment_path(Path(), base).name) == (base, 0)
    assert parse_segment(segment_path(Path(), base, 12).name) == (base, 12)
    assert parse_pair_base(index_path(Path(), base).name) == base


STRANGE_FILES = [
    "7.index",
    "0000000000000000000x.index",
    "00000000000000000007.index.tmp",
    "00000000000000000007",
    "000000000000000000007.index",
    "-0000000000000000007.index",
    ".index",
    "００００００００００００００００００００.index",
    "0000000000000000000\n.index",
    "09000000000000000000.index",  # the ceiling of such a segment does not fit into 63 bits
    "18446744073709551615.index",
]


@pytest.mark.parametrize("name", STRANGE_FILES, ids=ascii)
def test_foreign_file_is_not_of_a_segment(name: str) -> None:
    assert parse_pair_base(name) is None


def test_lost_offsets_are_encoded_in_a_file_name() -> None:
    path = missing_path(Path("log"), 20, 2**40)
    assert path.name == "00000000000000000020-00000001099511627776.missing"
    assert parse_missing(path.name) == (20, 2**40)


@pytest.mark.parametrize(
    "name", ["", "20-30.missing", f"{20:020d}.missing", f"{20:020d}-{30:020d}.missing.tmp"]
)
def test_foreign_file_gives_no_lost_offsets(name: str) -> None:
    assert parse_missing(name) is None


def test_folder_of_a_deleted_log_has_a_distinct_name() -> None:
    first = free_path(Path("data/telemetry-0"), DELETED_SUFFIX, [])
    second = free_path(Path("data/telemetry-0"), DELETED_SUFFIX, [first.name])
    assert (str(first), str(second)) == ("data/telemetry-0.deleted", "data/telemetry-0.deleted.2")
    assert is_deleted_log(first.name)
    assert is_deleted_log(second.name)
    assert parse_log_folder(first.name) is None


@pytest.mark.parametrize("name", ["telemetry-0", "notes.deleted", "telemetry-0.deleted.x", "a-0.deleted-0"])
def test_other_folders_are_not_taken_for_deleted_logs(name: str) -> None:
    assert not is_deleted_log(name)

"""The class that Spark finds."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader
from pyspark.sql.types import StructType

import pyspark_timestone
from pyspark_timestone import DefaultSource
from pyspark_timestone.errors import InvalidOption
from pyspark_timestone.options.columns import NAMES, source_schema
from pyspark_timestone.reading.admission_control import LimitedStreamReader
from pyspark_timestone.reading.batch_reader import TimestoneReader


def source(**options: str) -> DefaultSource:
    return DefaultSource(CaseInsensitiveDict(options))


def test_the_format_is_called_timestone() -> None:
    assert DefaultSource.name() == "timestone"
    # What Spark looks for: a class of this name in a module that begins with `pyspark_`.
    assert pyspark_timestone.DefaultSource is DefaultSource


LOOK = """
from importlib import import_module
from pkgutil import iter_modules
found = [import_module(one.name) for one in iter_modules() if one.name.startswith("pyspark_")]
print([one.DefaultSource.name() for one in found])
"""


def test_spark_finds_it_from_any_folder(tmp_path: Path) -> None:
    """Spark looks among the modules in folders, which those of an editable install are not: there `make` adds one."""
    looked = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "'timestone'" in looked.stdout


def columns(**options: str) -> list[str]:
    schema = source(path="data", **options).schema()
    assert isinstance(schema, StructType)
    return list(schema.names)


def test_options_choose_the_schema() -> None:
    assert columns() == list(NAMES)
    assert columns(COLUMNS="value,topic") == ["value", "topic"]
    assert "headers" not in columns(includeHeaders="false")


def test_a_schema_of_payloads_is_handed_to_spark_as_it_was_written() -> None:
    written = source(path="data", payload="json", payloadSchema="t double", columns="offset,payload").schema()
    assert written == "struct<`offset` bigint NOT NULL, `payload` struct<t double>>"


def test_each_kind_of_read_has_its_reader(tmp_path: Path) -> None:
    schema = source_schema()
    assert isinstance(source(path=str(tmp_path)).reader(schema), TimestoneReader)
    assert isinstance(source(path=str(tmp_path)).streamReader(schema), LimitedStreamReader)


def test_options_are_checked_before_anything_is_read() -> None:
    with pytest.raises(InvalidOption, match="the folder of the store is missing"):
        source().reader(source_schema())
    with pytest.raises(InvalidOption, match="did you mean"):
        source(path="x", topic="a/b").streamReader(source_schema())


def test_no_filters_are_taken(tmp_path: Path) -> None:
    """Spark 4.3 leaks what one query pushed down into others of the same DataFrame, and refuses readers that have
    this method unless a setting is on."""
    assert TimestoneReader.pushFilters is DataSourceReader.pushFilters

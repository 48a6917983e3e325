"""The tree of errors."""

import pytest

from pyspark_timestone import errors


@pytest.mark.parametrize(
    "leaf",
    [
        errors.MissingRequirement,
        errors.JavaFailed,
        errors.InvalidOption,
        errors.InvalidOffsets,
        errors.SchemaMismatch,
        errors.DataLoss,
    ],
)
def test_every_error_has_the_one_root(leaf: type[Exception]) -> None:
    assert issubclass(leaf, errors.SparkSourceError)

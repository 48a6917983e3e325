"""Errors of tiering are errors of the engine, so that callers of reads need one `except`."""

import timestone_tiering.errors as errors
from timestone.errors import TimestoneError


def test_every_error_is_one_of_the_engine() -> None:
    found = [
        one for one in vars(errors).values() if isinstance(one, type) and one.__module__ == errors.__name__
    ]
    assert len(found) > 5
    assert all(issubclass(one, TimestoneError) for one in found)


def test_damaged_object_names_object_and_reason() -> None:
    error = errors.DamagedObject("manifest/1", "expected 3 bytes, got 2")
    assert (error.name, error.reason) == ("manifest/1", "expected 3 bytes, got 2")
    assert str(error) == "manifest/1: expected 3 bytes, got 2"

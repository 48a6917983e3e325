import sys

import pytest

from mqtt_front.runtime.optional import MissingExtra, load


def test_a_module_whose_library_is_there_is_loaded() -> None:
    assert load("mqtt_front.errors", extra="none", what="this").__name__ == "mqtt_front.errors"


def test_a_missing_library_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mqtt_front.errors", None)
    with pytest.raises(
        ModuleNotFoundError
    ):  # a module of ours is missing: that is our bug, not a missing extra
        load("mqtt_front.errors", extra="some", what="this")
    with pytest.raises(
        MissingExtra, match=r"this needs the library 'no_such_library': install timestone\[some\]"
    ):
        load("no_such_library", extra="some", what="this")

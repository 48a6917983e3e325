import sys

import pytest

from timestone_access.optional import MissingExtra, load


def test_module_is_loaded_when_its_library_is_installed() -> None:
    assert load("mqtt_front.errors", extra="none", what="this").__name__ == "mqtt_front.errors"


def test_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mqtt_front.errors", None)
    with pytest.raises(
        ModuleNotFoundError
    ):  # a module of ours is missing: that is our bug, not a missing extra
        load("mqtt_front.errors", extra="some", what="this")
    with pytest.raises(
        MissingExtra, match=r"this needs the library 'no_such_library': pip install '.\[some\]' in a clone"
    ):
        load("no_such_library", extra="some", what="this")
    with pytest.raises(MissingExtra, match=r"in a clone; for a Debian package with it, see EXTRAS"):
        load("no_such_library", extra="some", what="this", in_package=False)

import logging
from typing import Any, ClassVar

from timestone.fronts import ENTRY_POINT_GROUP, Front, Reloadable
from timestone.store import Store


class Whole:
    """The least that a front has."""

    name: ClassVar[str] = "whole"

    def __init__(self, store: Store, settings: Any, *, log: logging.Logger) -> None: ...

    @classmethod
    def settings(cls) -> type[Any]:
        return object

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def describe(self) -> list[str]:
        return []

    def status(self) -> dict[str, Any]:
        return {}


def test_class_with_the_methods_of_a_front_is_one_without_inheritance() -> None:
    front = Whole.__new__(Whole)
    assert isinstance(front, Front)
    assert not isinstance(front, Reloadable)
    assert not isinstance(object(), Front)


def test_name_of_the_entry_point_group_never_changes() -> None:
    """Plug-ins of others are found by it."""
    assert ENTRY_POINT_GROUP == "timestone.fronts"

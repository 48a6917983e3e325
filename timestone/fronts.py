"""What a front is: a plug-in that turns a network protocol into appends and readers.

Fronts are found through the entry point group `timestone.fronts`; the engine knows none of them. Whoever
composes the process (the command line) makes a front with the open store and the front's own settings, and
starts it on its event loop."""

import logging
from collections.abc import Collection
from typing import Any, ClassVar, Protocol, runtime_checkable

from timestone.config import StoreConfig
from timestone.store import Store

ENTRY_POINT_GROUP = "timestone.fronts"


@runtime_checkable
class Front(Protocol):
    """A network protocol in front of a store."""

    name: ClassVar[str]
    """Short and lower case; also the table of its settings in the configuration file and the prefix of its
    options."""

    def __init__(self, store: Store, settings: Any, *, log: logging.Logger) -> None: ...

    @classmethod
    def settings(cls) -> type[Any]:
        """The frozen dataclass of its settings; field metadata has `help`."""

    async def start(self) -> None:
        """Listen. When it returns, clients can connect."""

    async def stop(self) -> None:
        """Accept nobody any more, release what is owed, close every connection; within seconds."""

    def describe(self) -> list[str]:
        """One line for each thing a user wants to know at start: addresses, ack level, limits that matter."""

    def status(self) -> dict[str, Any]:
        """Counters and gauges by name, ready for JSON."""


@runtime_checkable
class Reloadable(Protocol):
    """What a front offers besides, when it can take changes of the files it uses over without a restart."""

    async def reload(self) -> None:
        """Read them again. Raises OSError or ValueError when one cannot be used; then everything stays as it was."""


@runtime_checkable
class Checking(Protocol):
    """What a front offers besides, when its settings may be wrong in a way that only the disk can tell."""

    @classmethod
    def check(cls, settings: Any, config: StoreConfig, existing: Collection[str]) -> None:
        """Find what is wrong before a store is opened or anything is created.

        config: of the store, with the settings of logs that are created. existing: the names of the logs it has.
        Raises OSError or ValueError with a text that names the setting or the file."""


@runtime_checkable
class Counting(Protocol):
    """What a front offers besides, when the numbers of its status are counters: they begin at 0 and only grow."""

    gauges: ClassVar[frozenset[str]]
    """The names of those that are none: they fall as well."""

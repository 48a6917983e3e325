"""Rights on whole logs, for fronts that hand out logs and not topics. Values only."""

import enum
from dataclasses import dataclass


class Right(enum.Enum):
    """Right on a log. None includes another one."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    """Create, configure and delete."""


@dataclass(frozen=True, slots=True)
class LogRights:
    """Rights of one user. A name that ends in `*` stands for all names that begin with the rest."""

    logs: tuple[tuple[str, Right], ...] = ()
    groups: tuple[str, ...] = ()
    """Names of readers whose committed offsets the user may change."""

    def may(self, right: Right, log: str) -> bool:
        """Return whether the user has the right on a log."""
        return any(granted is right and _matches(name, log) for name, granted in self.logs)

    def may_use(self, group: str) -> bool:
        """Return whether the user may commit offsets under the name of a reader."""
        return any(_matches(name, group) for name in self.groups)


ALL_RIGHTS = LogRights(tuple(("*", right) for right in Right), ("*",))
"""Rights on a listener without any login, which only this machine can reach."""
NO_RIGHTS = LogRights()


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern

"""Access file: sections of users with lines that each front reads in its own way.

    user alice
    topic readwrite home/alice/#       topics, for MQTT: mosquitto's format
    log read telemetry*                logs, for the fronts that serve whole logs
    group dashboards

`log` takes read, write or admin; a trailing `*` stands for any rest of the name. `group` lets a user commit offsets
under that name of a reader. Lines before the first `user` are for clients without a user."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from timestone_access.rights import LogRights, Right

WORDS = ("user", "topic", "pattern", "log", "group")
_RIGHTS = {"read": Right.READ, "write": Right.WRITE, "admin": Right.ADMIN}


class BadAclFile(ValueError):
    """Invalid line. The text names file and line."""


class Line(NamedTuple):
    """Line of an access file, within the section of a user."""

    number: int
    user: str | None
    word: str
    rest: str


@dataclass(frozen=True, slots=True)
class AccessFile:
    """Lines of a file."""

    path: Path
    lines: tuple[Line, ...]

    def bad(self, line: Line, reason: str) -> BadAclFile:
        """Return the error for a line."""
        return BadAclFile(f"{self.path}:{line.number}: {reason}")


def read_access_file(path: Path) -> AccessFile:
    """Return the lines of a file, without checking more than their first word. Raises OSError and BadAclFile."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise BadAclFile(f"{path}: not UTF-8 at byte {error.start}") from None
    lines: list[Line] = []
    file = AccessFile(path, ())
    user: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        word, _, rest = line.strip().partition(" ")
        found = Line(number, user, word, rest.strip())
        if not word or word.startswith("#"):
            continue
        if word not in WORDS:
            raise file.bad(found, f"expected one of {', '.join(WORDS)}, got {word[:40]!r}")
        if word != "user":
            lines.append(found)
        elif found.rest:
            user = found.rest
        else:
            raise file.bad(found, "a user without a name")
    return AccessFile(path, tuple(lines))


def log_rights(file: AccessFile) -> Mapping[str | None, LogRights]:
    """Return the rights on logs by user; those of clients without a user under None. Raises BadAclFile."""
    logs: dict[str | None, list[tuple[str, Right]]] = {}
    groups: dict[str | None, list[str]] = {}
    for line in file.lines:
        if line.word == "log":
            word, _, name = line.rest.partition(" ")
            if word not in _RIGHTS:
                raise file.bad(line, f"expected one of {', '.join(_RIGHTS)}, got {word[:40]!r}")
            logs.setdefault(line.user, []).append((_pattern(file, line, name.strip()), _RIGHTS[word]))
        elif line.word == "group":
            groups.setdefault(line.user, []).append(_pattern(file, line, line.rest))
    users = [*logs, *(user for user in groups if user not in logs)]
    return {user: LogRights(tuple(logs.get(user, ())), tuple(groups.get(user, ()))) for user in users}


def _pattern(file: AccessFile, line: Line, name: str) -> str:
    if not name or "*" in name[:-1] or " " in name:
        raise file.bad(line, f"expected a name, with `*` only at its end, got {name[:40]!r}")
    return name

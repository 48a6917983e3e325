"""Rules of topics in the access file, in mosquitto's format, so that its files work unchanged.

    # clients without a user
    topic read public/#

    user alice
    topic readwrite home/alice/#
    topic deny home/alice/secret

    pattern write devices/%c/#

`topic` and `pattern` take read, write, readwrite (the default) or deny. Topics before the first `user` are for clients
without a user; patterns are for all clients.
Lines about logs are for other fronts; here they are only checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mqtt_front.security.rules import RuleSet
from timestone.errors import InvalidName
from timestone.filters import validate_filter
from timestone_access.access_file import BadAclFile, log_rights, read_access_file
from timestone_access.identity import Access, Rule

_ACCESS = {"read": Access.READ, "write": Access.WRITE, "readwrite": Access.READ_WRITE, "deny": Access.DENY}


@dataclass(frozen=True, slots=True)
class AclFile:
    """Rules of a file."""

    users: Mapping[str | None, RuleSet]
    """By user; those of clients without a user under None."""
    patterns: tuple[Rule, ...]


def read_acl_file(path: Path) -> AclFile:
    """Read the rules of a file. Raises OSError and BadAclFile."""
    file = read_access_file(path)
    log_rights(file)
    users: dict[str | None, list[Rule]] = {}
    patterns: list[Rule] = []
    for line in file.lines:
        if line.word in ("topic", "pattern"):
            try:
                rule = _rule(line.rest)
            except (BadAclFile, InvalidName) as error:
                raise file.bad(line, str(error)) from None
            (patterns if line.word == "pattern" else users.setdefault(line.user, [])).append(rule)
    return AclFile({user: RuleSet(rules) for user, rules in users.items()}, tuple(patterns))


def _rule(text: str) -> Rule:
    """Return the rule of `[access] filter`; a filter that contains blanks needs the access before it."""
    word, blank, rest = text.partition(" ")
    if not blank:
        access, topic_filter = Access.READ_WRITE, word
    elif word in _ACCESS:
        access, topic_filter = _ACCESS[word], rest.strip()
    else:
        raise BadAclFile(f"expected one of {', '.join(_ACCESS)}, got {word[:40]!r}")
    validate_filter(topic_filter)
    return Rule(topic_filter, access)

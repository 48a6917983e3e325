"""Access control file, in mosquitto's format, so that its files work unchanged.

    # clients without a user
    topic read public/#

    user alice
    topic readwrite home/alice/#
    topic deny home/alice/secret

    pattern write devices/%c/#

`topic` and `pattern` take read, write, readwrite (the default) or deny. Topics before the first `user` are for clients
without a user; patterns are for all clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mqtt_front.security.rules import Access, Rule, RuleSet
from timestone.errors import InvalidName
from timestone.filters import validate_filter

_ACCESS = {"read": Access.READ, "write": Access.WRITE, "readwrite": Access.READ_WRITE, "deny": Access.DENY}


class BadAclFile(ValueError):
    """Invalid line. The text names file and line."""


@dataclass(frozen=True, slots=True)
class AclFile:
    """Rules of a file."""

    users: Mapping[str | None, RuleSet]
    """By user; those of clients without a user under None."""
    patterns: tuple[Rule, ...]


def read_acl_file(path: Path) -> AclFile:
    """Read the rules of a file. Raises OSError and BadAclFile."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise BadAclFile(f"{path}: not UTF-8 at byte {error.start}") from None
    users: dict[str | None, list[Rule]] = {}
    patterns: list[Rule] = []
    user: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        try:
            if not word or word.startswith("#"):
                continue
            if word == "user":
                user = _named(rest)
            elif word == "topic":
                users.setdefault(user, []).append(_rule(rest))
            elif word == "pattern":
                patterns.append(_rule(rest))
            else:
                raise BadAclFile(f"expected one of user, topic, pattern, got {word[:40]!r}")
        except (BadAclFile, InvalidName) as error:
            raise BadAclFile(f"{path}:{number}: {error}") from None
    return AclFile({user: RuleSet(rules) for user, rules in users.items()}, tuple(patterns))


def _named(user: str) -> str:
    if not user:
        raise BadAclFile("a user without a name")
    return user


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

"""Access rules: what one client may publish to and receive. Rules are values; where they come from is not known here.

The order in which rules count is mosquitto's: a client's own rules before patterns, and among each of them what denies
before what allows. What no rule allows is forbidden.
"""

import enum
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mqtt_front.topics.filter_relations import covers, overlap
from timestone.filters import FilterTree

_REMEMBERED_TOPICS = 4096
"""Topics of one client that are known to be allowed: a gateway's worth. Beyond it they are looked up again."""
_PLACEHOLDER = re.compile("%[cu]")


class Access(enum.IntFlag):
    """What a rule is about. DENY stands for both directions."""

    DENY = 0
    READ = 1
    WRITE = 2
    READ_WRITE = 3


class Rule(NamedTuple):
    """Topics, and what may be done with them. `%c` and `%u` in a pattern stand for client id and user."""

    topic_filter: str
    access: Access


class RuleSet:
    """Rules that count together. Immutable, shared by all clients with the same ones."""

    __slots__ = ("_denied", "_readable", "_tree")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._tree: FilterTree[Access] = FilterTree()
        self._readable: list[str] = []
        self._denied: list[str] = []
        for rule in rules:
            self._tree.add(rule.topic_filter, rule.access)
            if rule.access is Access.DENY:
                self._denied.append(rule.topic_filter)
            elif rule.access & Access.READ:
                self._readable.append(rule.topic_filter)

    def judge(self, topic: str, wanted: Access) -> bool | None:
        """Is it allowed, denied, or (None) not mentioned?"""
        allowed = None
        for access in self._tree.matches(topic):
            if access is Access.DENY:
                return False
            if access & wanted:
                allowed = True
        return allowed

    def judge_filter(self, topic_filter: str) -> bool | None:
        """May any topic that matches the filter be read? None when nothing is said about such topics."""
        if any(covers(denied, topic_filter) for denied in self._denied):
            return False
        return any(overlap(readable, topic_filter) for readable in self._readable) or None

    def judge_all(self, topic_filter: str) -> bool | None:
        """May every topic that matches the filter be read? None when that is left to the rules behind these."""
        if any(overlap(denied, topic_filter) for denied in self._denied):
            return False
        return any(covers(readable, topic_filter) for readable in self._readable) or None


class Permissions:
    """What one connected client may do. Used by the event loop's thread only."""

    __slots__ = ("_publishable", "_scope", "_sets")

    def __init__(self, sets: Sequence[RuleSet], scope: RuleSet | None = None) -> None:
        """`sets` are asked in order; the first that mentions a topic decides. `scope` has to allow it, too."""
        self._sets = tuple(sets)
        self._scope = scope
        self._publishable: set[bytes] = set()

    def may_write(self, topic: str) -> bool:
        """May the client publish to this topic?"""
        return self._judge(topic, Access.WRITE)

    def may_read(self, topic: str) -> bool:
        """May the client receive what is published to this topic?"""
        return self._judge(topic, Access.READ)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Is there a topic matching the filter that the client may read? Others that match are held back one by
        one."""
        if self._scope is not None and not self._scope.judge_filter(topic_filter):
            return False
        return next(
            (said for each in self._sets if (said := each.judge_filter(topic_filter)) is not None), False
        )

    def may_read_all(self, topic_filter: str) -> bool:
        """May the client read every topic that matches the filter? False as well where only several rules together
        would allow it."""
        if self._scope is not None and not self._scope.judge_all(topic_filter):
            return False
        return next(
            (said for each in self._sets if (said := each.judge_all(topic_filter)) is not None), False
        )

    def forbidden(self, topics: Sequence[bytes]) -> frozenset[bytes]:
        """Those of `topics`, as they came in PUBLISH packets, that the client may not publish to.

        Bytes that are no topic name count as allowed: what is wrong with them is said elsewhere.
        """
        if self._publishable.issuperset(topics):
            return frozenset()
        return self._look_up(topics)

    def _look_up(self, topics: Sequence[bytes]) -> frozenset[bytes]:
        refused = set()
        for topic in set(topics) - self._publishable:
            try:
                allowed = self.may_write(topic.decode())
            except UnicodeDecodeError:
                continue
            if not allowed:
                refused.add(topic)
                continue
            if len(self._publishable) >= _REMEMBERED_TOPICS:
                self._publishable.clear()
            self._publishable.add(topic)
        return frozenset(refused)

    def _judge(self, topic: str, wanted: Access) -> bool:
        if self._scope is not None and not self._scope.judge(topic, wanted):
            return False
        return next((said for each in self._sets if (said := each.judge(topic, wanted)) is not None), False)


def fill_in(patterns: Sequence[Rule], user: str | None, client_id: str) -> list[Rule]:
    """The patterns as rules of one client.

    None at all for a client whose id or user could be taken for a wildcard or for a topic of the server: whoever may
    choose a name must not choose access with it. Patterns with `%u` say nothing about clients without a user.
    """
    if any(_is_dangerous(name) for name in (user or "", client_id)):
        return []
    names = {"%c": client_id, "%u": user or ""}
    return [
        Rule(_PLACEHOLDER.sub(lambda found: names[found[0]], topic_filter), access)
        for topic_filter, access in patterns
        if user or "%u" not in topic_filter
    ]


def _is_dangerous(name: str) -> bool:
    return "+" in name or "#" in name or name.startswith("$")

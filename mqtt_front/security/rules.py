"""Access rules: what one client may publish to and receive. Values only; their sources are not known here.

Precedence follows mosquitto: a client's own rules before patterns, and within each of them deny before allow.
Everything else is forbidden."""

import re
from collections.abc import Callable, Iterable, Sequence

from mqtt_front.topics.filter_relations import covers, overlap
from timestone.filters import FilterTree
from timestone_access.identity import Access, Rule

_REMEMBERED_TOPICS = 4096
"""Cached allowed topics of one client: enough for a gateway. Further ones are looked up each time."""
_PLACEHOLDER = re.compile("%[cu]")


class RuleSet:
    """Rules that apply together. Immutable, shared by all clients with the same ones."""

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
        """Return whether the access is allowed or denied; None if no rule matches."""
        allowed = None
        for access in self._tree.matches(topic):
            if access is Access.DENY:
                return False
            if access & wanted:
                allowed = True
        return allowed

    def judge_filter(self, topic_filter: str) -> bool | None:
        """Return whether any topic that matches the filter may be read; None if no rule concerns such topics."""
        if any(covers(denied, topic_filter) for denied in self._denied):
            return False
        return any(overlap(readable, topic_filter) for readable in self._readable) or None

    def judge_all(self, topic_filter: str) -> bool | None:
        """Return whether every topic that matches the filter may be read; None if the following rules decide."""
        if any(overlap(denied, topic_filter) for denied in self._denied):
            return False
        return any(covers(readable, topic_filter) for readable in self._readable) or None


class Permissions:
    """Permissions of one connected client. Event-loop thread only."""

    __slots__ = ("_publishable", "_scope", "_sets")

    def __init__(self, sets: Sequence[RuleSet], scope: RuleSet | None = None) -> None:
        """sets: asked in order; the first with a matching rule decides. scope: must allow the access as well."""
        self._sets = tuple(sets)
        self._scope = scope
        self._publishable: set[bytes] = set()

    def may_write(self, topic: str) -> bool:
        """Return whether the client may publish to this topic."""
        return self._agreed(lambda rules: rules.judge(topic, Access.WRITE))

    def may_read(self, topic: str) -> bool:
        """Return whether the client may receive messages of this topic."""
        return self._agreed(lambda rules: rules.judge(topic, Access.READ))

    def may_subscribe(self, topic_filter: str) -> bool:
        """Return whether a topic matching the filter may be read. Messages of other matching topics are held back one
        by one."""
        return self._agreed(lambda rules: rules.judge_filter(topic_filter))

    def may_read_all(self, topic_filter: str) -> bool:
        """Return whether the client may read every topic that matches the filter. False also if only several rules
        together allow it."""
        return self._agreed(lambda rules: rules.judge_all(topic_filter))

    def forbidden(self, topics: Sequence[bytes]) -> frozenset[bytes]:
        """Return those of `topics`, as in PUBLISH packets, that the client may not publish to. Invalid topic names
        count as allowed: they are refused elsewhere."""
        if self._publishable.issuperset(topics):
            return frozenset()
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

    def _agreed(self, judge: Callable[[RuleSet], bool | None]) -> bool:
        """Return the verdict of the first rules that have one, if the scope does not object."""
        if self._scope is not None and not judge(self._scope):
            return False
        return next((said for each in self._sets if (said := judge(each)) is not None), False)


def fill_in(patterns: Sequence[Rule], user: str | None, client_id: str) -> list[Rule]:
    """Return the patterns as rules of one client. None at all for a client whose id or user contains a wildcard or
    begins like a topic of the server: a client that chooses its name must not choose its access. Patterns with `%u` do
    not apply to clients without a user."""
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

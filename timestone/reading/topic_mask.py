"""Topic mask: the topics of a log that a reader wants, as a mask over the index's topic column.

Ten thousand readers of one topic each, in a log of ten thousand topics, must not match a hundred million pairs: a
filter without wildcards is looked up in the dictionary, one with wildcards is matched against a topic when a record of
it is read."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from timestone.filters import FilterTree, is_wildcard, topic_matches
from timestone.format.topics import TopicDictionary
from timestone.segment import Segment

_WANTED, _UNWANTED = 1, 2
_FEW = 8
"""Up to so many ids are compared one by one; more are looked up in a sorted column."""


class TopicMask:
    """Topic ids that a set of filters selects: each id is matched at most once, then looked up. For one thread."""

    def __init__(self, topics: TopicDictionary, filters: Sequence[str]) -> None:
        self._topics = topics
        self._patterns: tuple[str, ...] = ()
        self._tree: FilterTree[None] | None = None
        """The filters with wildcards, if there are more than a few. Shared with the masks derived from this one."""
        self._missing: set[str] = set()
        """Filters without wildcards whose topics the log does not have yet."""
        self._topic_count = len(topics)
        """Number of topics in which the missing names were looked up."""
        self._ids = np.zeros(0, dtype=np.uint32)
        self._few_ids: tuple[int, ...] = ()
        self._verdicts = np.zeros(0, dtype=np.uint8)
        """Result by id of matching the filters with wildcards; 0 if not matched yet."""
        if topics.is_cut:
            topics.watch(self)
        self._add(filters)

    def changed(self, added: Collection[str], removed: Collection[str]) -> "TopicMask":
        """Return the mask with some filters added and some removed. A read in another thread may still use this one.
        What the two have in common is copied or shared, not looked up again."""
        other = TopicMask(self._topics, ())
        other._patterns, other._tree = self._patterns, self._tree
        other._missing, other._topic_count = self._missing.copy(), self._topic_count
        other._ids, other._few_ids, other._verdicts = self._ids, self._few_ids, self._verdicts
        if removed:
            other._remove(removed)
        if added:
            other._add(added)
        return other

    def _add(self, filters: Collection[str]) -> None:
        patterns = [one for one in filters if is_wildcard(one)]
        names = filters if not patterns else [one for one in filters if not is_wildcard(one)]
        if names:
            self._missing.update(names)
            self._look_up(names)
        if not patterns:
            return
        self._verdicts = np.where(self._verdicts == _WANTED, self._verdicts, 0)
        if self._tree is None and len(self._patterns) + len(patterns) <= _FEW:
            self._patterns += tuple(patterns)
            return
        if self._tree is None:
            self._tree = FilterTree()
            patterns += self._patterns
            self._patterns = ()
        for one in patterns:
            self._tree.add(one, None)

    def _remove(self, filters: Collection[str]) -> None:
        gone = []
        for one in filters:
            if is_wildcard(one):
                if self._tree is not None:
                    self._tree.remove(one, None)
            elif one in self._missing:
                self._missing.discard(one)
            elif (topic_id := self._topics.find(one)) is not None:
                gone.append(topic_id)
        if gone:
            self._set_ids(self._ids[~np.isin(self._ids, np.array(gone, dtype=np.uint32))])
        left = set(filters)
        self._patterns = tuple(one for one in self._patterns if one not in left)
        self._verdicts = np.where(self._verdicts == _UNWANTED, self._verdicts, 0)

    @property
    def _has_patterns(self) -> bool:
        return bool(self._patterns) or (self._tree is not None and len(self._tree) > 0)

    def mask(self, topic_ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Return for each id whether its topic is wanted. Records without a topic never are."""
        self._find_missing()
        if len(self._ids) <= _FEW:
            mask = np.zeros(len(topic_ids), dtype=np.bool_)
            for topic_id in self._ids:
                mask |= topic_ids == topic_id
        else:
            places = np.minimum(self._ids.searchsorted(topic_ids), len(self._ids) - 1)
            mask = self._ids[places] == topic_ids
        return mask | self._matching(topic_ids) if self._has_patterns else mask

    def wants(self, topic_id: int) -> bool:
        """Return the mask of one id, without the fixed costs of a column: most appends to a log of devices have one
        record."""
        if topic_id in self._few_ids:
            return True
        self._find_missing()
        if topic_id in self._few_ids:
            return True
        if len(self._ids) <= _FEW and not self._has_patterns:
            return False
        verdict = self._verdicts[topic_id] if topic_id < len(self._verdicts) else 0
        if verdict == _WANTED:
            return True
        if (
            verdict == _UNWANTED and len(self._ids) <= _FEW
        ):  # no pattern matches, and the id is not selected by name
            return False
        return bool(self.mask(np.array([topic_id], dtype=np.uint32))[0])

    def in_segment(self, segment: Segment) -> bool:
        """Return whether the segment may hold a wanted topic; a sealed one has a summary."""
        summary = segment.topic_summary()
        return summary is None or bool(self.mask(summary["topic"]).any())

    def names_removed(self, count: int) -> None:
        """Forget the ids from `count` on, whose names are about to be removed. See `TopicDictionary.keep`."""
        gone = self._ids[self._ids >= count]
        self._missing.update(name for one in gone.tolist() if (name := self._topics.name(one)) is not None)
        self._set_ids(self._ids[self._ids < count])
        self._verdicts = self._verdicts[:count]
        self._topic_count = min(self._topic_count, count)

    def _find_missing(self) -> None:
        """Look up the missing topics among those added since the last call."""
        count = len(self._topics)
        before, self._topic_count = self._topic_count, count
        if count == before or not self._missing:
            return
        if count - before >= len(self._missing):
            self._look_up(self._missing)
            return
        # Topics arrive one by one while thousands of names are missing: search the new ones only.
        self._found(
            [
                (name, topic_id)
                for topic_id in range(before, count)
                if (name := self._topics.name(topic_id)) in self._missing
            ]
        )

    def _look_up(self, names: Iterable[str]) -> None:
        topics = self._topics
        self._found([(name, topic_id) for name in names if (topic_id := topics.find(name)) is not None])

    def _found(self, found: Sequence[tuple[str | None, int]]) -> None:
        if found:
            self._missing.difference_update([name for name, _ in found if name is not None])
            ids = np.array(sorted([topic_id for _, topic_id in found]), dtype=np.uint32)
            self._set_ids(np.insert(self._ids, self._ids.searchsorted(ids), ids))

    def _set_ids(self, ids: npt.NDArray[np.uint32]) -> None:
        self._ids = ids
        self._few_ids = tuple(ids[:_FEW].tolist())

    def _matching(self, topic_ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Return for each id whether a filter with wildcards matches its topic."""
        count = len(self._topics)
        if len(self._verdicts) < count:
            self._verdicts = np.append(self._verdicts, np.zeros(count, dtype=np.uint8))
        known = topic_ids < count
        verdicts = (
            self._verdicts[np.where(known, topic_ids, 0)]
            if count
            else np.zeros(len(topic_ids), dtype=np.uint8)
        )
        untried = known & (verdicts == 0)
        if untried.any():
            for topic_id in np.unique(topic_ids[untried]).tolist():
                name = self._topics.name(topic_id)
                wanted = name is not None and self._match(name)
                self._verdicts[topic_id] = _WANTED if wanted else _UNWANTED
            verdicts = self._verdicts[np.where(known, topic_ids, 0)]
        chosen: npt.NDArray[np.bool_] = known & (verdicts == _WANTED)
        return chosen

    def _match(self, name: str) -> bool:
        if self._tree is not None:
            return self._tree.matches_any(name)
        return any(topic_matches(one, name) for one in self._patterns)

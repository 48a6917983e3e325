"""Which topics of a log a reader wants, as a mask over the index's topic column.

Ten thousand readers of one topic each, in a log of ten thousand topics, must not match a hundred million pairs: a
filter without wildcards is found in the dictionary, one with wildcards is tried on a topic when a record of it comes
by.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from timestone.filters import is_wildcard, topic_matches
from timestone.segment import Segment
from timestone.topics import TopicDictionary

_WANTED, _UNWANTED = 1, 2
_FEW = 8
"""Up to so many ids are compared one after the other; more are looked up in a sorted column."""


class TopicChoice:
    """Which topic ids a set of filters wants: each id is matched at most once, then looked up. For one thread."""

    def __init__(self, topics: TopicDictionary, filters: Sequence[str]) -> None:
        self._topics = topics
        self._patterns = tuple(one for one in filters if is_wildcard(one))
        self._missing = {one for one in filters if not is_wildcard(one)}
        self._topic_count = 0
        self._ids = np.zeros(0, dtype=np.uint32)
        self._few_ids: tuple[int, ...] = ()
        self._verdicts = np.zeros(0, dtype=np.uint8)
        """By id: does one of the patterns match? 0 while that has not been looked at."""

    def mask(self, topic_ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """For each id: is its topic wanted? Records without a topic never are."""
        self._find_missing()
        if len(self._ids) <= _FEW:
            mask = np.zeros(len(topic_ids), dtype=np.bool_)
            for topic_id in self._ids:
                mask |= topic_ids == topic_id
        else:
            mask = np.isin(topic_ids, self._ids)
        return mask | self._matching(topic_ids) if self._patterns else mask

    def wants(self, topic_id: int) -> bool:
        """What `mask` says of one id, without the fixed costs of a column: most appends to a log of devices are of one
        record."""
        if topic_id in self._few_ids:
            return True
        self._find_missing()
        if topic_id in self._few_ids:
            return True
        if not self._patterns and len(self._ids) <= _FEW:
            return False
        verdict = self._verdicts[topic_id] if topic_id < len(self._verdicts) else 0
        if verdict == _WANTED:
            return True
        if verdict == _UNWANTED and len(self._ids) <= _FEW:  # no pattern matches, and it is none of the ids
            return False
        return bool(self.mask(np.array([topic_id], dtype=np.uint32))[0])

    def in_segment(self, segment: Segment) -> bool:
        """May the segment hold a wanted topic? A sealed one says so in its summary."""
        summary = segment.topic_summary()
        return summary is None or bool(self.mask(summary["topic"]).any())

    def _find_missing(self) -> None:
        """Look up the topics that no record had so far, if there are new topics since."""
        count = len(self._topics)
        if not self._missing or count == self._topic_count:
            return
        self._topic_count = count
        found = {
            name: topic_id for name in self._missing if (topic_id := self._topics.find(name)) is not None
        }
        if found:
            self._missing -= found.keys()
            self._ids = np.sort(np.append(self._ids, np.array(list(found.values()), dtype=np.uint32)))
            self._few_ids = tuple(self._ids[:_FEW].tolist())

    def _matching(self, topic_ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """For each id: does a filter with wildcards match its topic?"""
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
                wanted = name is not None and any(topic_matches(one, name) for one in self._patterns)
                self._verdicts[topic_id] = _WANTED if wanted else _UNWANTED
            verdicts = self._verdicts[np.where(known, topic_ids, 0)]
        chosen: npt.NDArray[np.bool_] = known & (verdicts == _WANTED)
        return chosen

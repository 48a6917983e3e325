"""Which topics of a log a reader wants, as a mask over the index's topic column."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from timestone.filters import topic_matches
from timestone.segment import Segment
from timestone.topics import TopicDictionary


class TopicChoice:
    """Which topic ids a set of filters wants: each id is matched once, then looked up."""

    def __init__(self, topics: TopicDictionary, filters: Sequence[str]) -> None:
        self._topics = topics
        self._filters = tuple(filters)
        self._wanted = np.zeros(0, dtype=np.bool_)

    def mask(self, topic_ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """For each id: is its topic wanted? Records without a topic never are."""
        self._extend()
        known = topic_ids < len(self._wanted)
        mask = np.zeros(len(topic_ids), dtype=np.bool_)
        mask[known] = self._wanted[topic_ids[known]]
        return mask

    def in_segment(self, segment: Segment) -> bool:
        """May the segment hold a wanted topic? A sealed one says so in its summary."""
        summary = segment.topic_summary()
        return summary is None or bool(self.mask(summary["topic"]).any())

    def _extend(self) -> None:
        new = self._topics.names(len(self._wanted))
        if new:
            filters = self._filters
            fresh = [name is not None and any(topic_matches(one, name) for one in filters) for name in new]
            self._wanted = np.append(self._wanted, np.array(fresh, dtype=np.bool_))

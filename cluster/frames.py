"""What replicas of a shard send each other, as values. Every frame names the generation of its sender."""

import msgspec


class Frame(msgspec.Struct, frozen=True):
    """What all frames have."""

    generation: int


class Fenced(Frame, frozen=True):
    """To a sender of an older generation: there is a newer one."""


class Beat(Frame, frozen=True):
    """In place of the frames of a heartbeat: all that the sender has last said in this generation still holds."""


# Follower to leader.


class Follow(Frame, frozen=True):
    """Where to continue, after a last record of this generation? Answered by Started, Diverged or Reset, each with the
    question: an answer counts only while the question would be the same."""

    log: str
    end: int
    last_generation: int
    """Of the record in front of `end`; 0 without one."""
    names: int


class Held(Frame, frozen=True):
    """My records below `offset` are yours, and are durable; below `clean`, compaction has left none with an older one
    of its topic. A promise until the end of this generation."""

    log: str
    offset: int
    clean: int = 0


class Fetch(Frame, frozen=True):
    """My committed records [first, end) are damaged, or if there are none of them, my topic names from `names_first`
    on: what have you there?"""

    log: str
    first: int
    end: int
    names_first: int


# Leader to follower.


class Started(Frame, frozen=True):
    """Your records are mine up to your end: what follows continues there."""

    question: Follow


class Diverged(Frame, frozen=True):
    """The largest generation that I have and that is not above your last one, and where it ends in my log."""

    question: Follow
    last_generation: int
    end: int
    names: int


class Reset(Frame, frozen=True):
    """Nothing that you have can be compared with what I have: begin again at `start`."""

    question: Follow
    start: int


class Records(Frame, frozen=True):
    """Consecutive records of one generation, and the topic names that they are the first to use."""

    log: str
    first: int
    end: int
    last_generation: int
    names_first: int
    names: tuple[str, ...]
    data: object
    """Entries and bytes, which the protocol does not look at."""
    begins_segment: bool = False
    """Whether a segment of the leader begins with them."""


class Fetched(Records, frozen=True):
    """Some of what `Fetch` has asked for: records from `first` on, names from `names_first` on."""


class Committed(Frame, frozen=True):
    """All in-sync replicas have what is below `offset`; no replica has a record below `stable` that a later one of its
    topic replaces; what is below `start` may be deleted."""

    log: str
    offset: int
    stable: int
    start: int = 0

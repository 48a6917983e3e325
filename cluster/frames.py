"""What replicas of a shard send each other, as values. Every frame names the generation of its sender."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """What all frames have."""

    generation: int


@dataclass(frozen=True, slots=True)
class Fenced(Frame):
    """To a sender of an older generation: there is a newer one."""


@dataclass(frozen=True, slots=True)
class Beat(Frame):
    """In place of the frames of a heartbeat: all that the sender has last said in this generation still holds."""


# Follower to leader.


@dataclass(frozen=True, slots=True)
class Follow(Frame):
    """Where to continue, after a last record of this generation? Answered by Started, Diverged or Reset, each with the
    question: an answer counts only while the question would be the same."""

    log: str
    end: int
    last_generation: int
    """Of the record in front of `end`; 0 without one."""
    names: int


@dataclass(frozen=True, slots=True)
class Held(Frame):
    """My records below `offset` are yours, and are durable; below `clean`, compaction has left none with an older one
    of its topic. A promise until the end of this generation."""

    log: str
    offset: int
    clean: int = 0


@dataclass(frozen=True, slots=True)
class Fetch(Frame):
    """My committed records [first, end) are damaged, or if there are none of them, my topic names from `names_first`
    on: what have you there?"""

    log: str
    first: int
    end: int
    names_first: int


# Leader to follower.


@dataclass(frozen=True, slots=True)
class Started(Frame):
    """Your records are mine up to your end: what follows continues there."""

    question: Follow


@dataclass(frozen=True, slots=True)
class Diverged(Frame):
    """The largest generation that I have and that is not above your last one, and where it ends in my log."""

    question: Follow
    last_generation: int
    end: int
    names: int


@dataclass(frozen=True, slots=True)
class Reset(Frame):
    """Nothing that you have can be compared with what I have: begin again at `start`."""

    question: Follow
    start: int


@dataclass(frozen=True, slots=True)
class Records(Frame):
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


@dataclass(frozen=True, slots=True)
class Fetched(Records):
    """Some of what `Fetch` has asked for: records from `first` on, names from `names_first` on."""


@dataclass(frozen=True, slots=True)
class Committed(Frame):
    """All in-sync replicas have what is below `offset`; no replica has a record below `stable` that a later one of its
    topic replaces; what is below `start` may be deleted."""

    log: str
    offset: int
    stable: int
    start: int = 0

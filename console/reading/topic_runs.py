"""Topics as sorted keys, in which a subtree is one run: a filter selects runs and is not matched with each topic."""

import bisect
from collections.abc import Iterator, Sequence

SEPARATOR, AFTER = "\0", "\1"
"""In place of the slash, which sorts behind other characters; and what sorts behind all topics of a subtree."""


def key_of(topic: str) -> str:
    """Return the key of a topic, or of a level."""
    return topic.replace("/", SEPARATOR)


def matching_runs(keys: Sequence[str], topic_filter: str) -> Iterator[tuple[int, int]]:
    """Yield the runs [first, end) of sorted keys whose topics match a valid filter, in order."""
    levels = topic_filter.split("/")
    if levels[0] not in ("+", "#"):
        yield from _below(keys, "", 0, len(keys), levels)
        return
    # A wildcard at the front matches no topic that begins with a dollar sign.
    first, end = bisect.bisect_left(keys, "$"), bisect.bisect_left(keys, "%")
    yield from _below(keys, "", 0, first, levels)
    yield from _below(keys, "", end, len(keys), levels)


def _below(
    keys: Sequence[str], prefix: str, first: int, end: int, levels: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Yield the runs of [first, end), whose keys begin with `prefix`, that match the levels behind it."""
    level, *rest = levels
    if level == "#":
        # The level above matches, too: its key is just in front of those below it.
        has_parent = first > 0 and bool(prefix) and keys[first - 1] == prefix[:-1]
        if first - has_parent < end:
            yield first - has_parent, end
        return
    for name, at, following in _named(keys, prefix, first, end, level):
        is_topic = at < end and keys[at] == prefix + name
        if rest:
            yield from _below(keys, prefix + name + SEPARATOR, at + is_topic, following, rest)
        elif is_topic:
            yield at, at + 1


def _named(
    keys: Sequence[str], prefix: str, first: int, end: int, level: str
) -> Iterator[tuple[str, int, int]]:
    """Yield the children that one level of a filter names."""
    if level == "+":
        yield from children(keys, prefix, first, end)
    else:
        at = bisect.bisect_left(keys, prefix + level, first, end)
        yield level, at, _end_of(keys, prefix + level, at, end)


def children(keys: Sequence[str], prefix: str, first: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Yield the levels below a prefix, whose run is [first, end): the name of each and its run."""
    while first < end:
        name = keys[first][len(prefix) :].split(SEPARATOR, 1)[0]
        following = _end_of(keys, prefix + name, first, end)
        yield name, first, following
        first = following


def _end_of(keys: Sequence[str], path: str, first: int, end: int) -> int:
    """Return where the run of a level ends: it begins at `first` with the topic of that name, if there is one."""
    below = first + (first < end and keys[first] == path)
    # Mostly the next key is the next level; else it is found by bisection.
    if below < end and keys[below].startswith(path + SEPARATOR):
        return bisect.bisect_left(keys, path + AFTER, below, end)
    return below

"""Relations of two topic filters: overlap and containment. A leading wildcard matches no topic that begins with `$`."""


def overlap(one: str, other: str) -> bool:
    """Return whether a topic exists that matches both filters."""
    if _guarded(one, other) or _guarded(other, one):
        return False
    ones, others = one.split("/"), other.split("/")
    for a, b in zip(ones, others, strict=False):
        if a == "#" or b == "#":
            return True
        if a != b and a != "+" and b != "+":
            return False
    longer, shorter = (ones, others) if len(ones) > len(others) else (others, ones)
    return len(longer) == len(shorter) or longer[len(shorter)] == "#"


def covers(outer: str, inner: str) -> bool:
    """Return whether every topic that matches `inner` matches `outer`."""
    if _guarded(outer, inner):
        return False
    if inner == "#":
        inner = "+/#"  # the same topics: every topic has a first level
    outers, inners = outer.split("/"), inner.split("/")
    for number, level in enumerate(outers):
        if level == "#":
            return True
        if number == len(inners) or inners[number] == "#":
            return False
        if level != "+" and level != inners[number]:
            return False
    return len(outers) == len(inners)


def _guarded(wild: str, other: str) -> bool:
    return other.startswith("$") and wild[:1] in ("+", "#")

"""Packet ids of deliveries: 1 to 65,535, one space a session for all its logs, never reused while in flight."""

from collections.abc import Container

PACKET_ID_MAX = 65_535


class PacketIds:
    """Assigns ids in a circle, so that an id is unused as long as possible before it is assigned again."""

    __slots__ = ("last",)

    def __init__(self, last: int = 0) -> None:
        self.last = last
        """The id assigned last."""

    def take(self, count: int, in_use: Container[int]) -> list[int]:
        """Return `count` ids that are not `in_use`. The caller ensures that there are that many."""
        ids = self.next(count, in_use)
        if ids:
            self.last = ids[-1]
        return ids

    def next(self, count: int, in_use: Container[int]) -> list[int]:
        """Return what `take` would. A caller that uses only the first of them sets `last` to the last one used."""
        last = self.last
        if last + count <= PACKET_ID_MAX:
            ids = [one for one in range(last + 1, last + count + 1) if one not in in_use]
            if len(ids) == count:  # nearly always
                return ids
        ids = []
        while len(ids) < count:
            last = last % PACKET_ID_MAX + 1
            if last not in in_use:
                ids.append(last)
        return ids

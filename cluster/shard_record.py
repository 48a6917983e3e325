"""What etcd holds of a shard, as a value, and every legal change of it.

A change is a method that returns the new record, or None where the rules forbid it. It counts once a transaction has
put it in the place of the revision that it was made from: that is PacificA's configuration manager (§2.2), and the
only agreement that the cluster needs. Between two such changes the leader decides everything alone.

`isr`, the in-sync replicas, are the members of which each has every committed record. None of the changes below makes
it smaller than `min_isr`, so a member of it that is alive may always lead (KIP-966 had to mend what follows
otherwise: a last replica that alone is in sync, and then loses its disk).
"""

import functools
import json
from dataclasses import dataclass, replace
from typing import Any, Self

from timestone.disk.json_document import integer, json_object, unknown_fields

from .errors import UndecodableShardRecord

MOST_REPLICAS = 15
MOST_LEFT = 1000
"""Nodes that are lost never say that they have deleted what they had."""
MOST_GENERATION = 2**32 - 1
OLDER_ETCD = "etcd was restored from the past"
"""Beginning of each message that etcd has less than it had."""
_VERSION = 1


def node_of(member: str) -> str:
    """Return the node of a member. A member is `node`, or `node@boot` where what is acknowledged may be in memory only:
    a node that was booted again is another member, and has to catch up like one (KIP-903)."""
    return member.partition("@")[0]


def member_of(node: str, boot: str) -> str:
    """Return the member that a node is. boot: empty where what is acknowledged is on the disk."""
    return f"{node}@{boot}" if boot else node


@dataclass(frozen=True, slots=True)
class Unclean:
    """An election by command, of a replica that may lack committed records: those of `log` from `offset` on are given
    up, and `generation` begins."""

    generation: int
    log: str
    """Name, with `@` and a number if logs that had it were deleted before: it is about no later one."""
    offset: int
    resumes: int = 0
    """Where new records begin: no predecessor has shown one there or later. 0 where nothing is known of that: new
    ones have the offsets of those that are given up."""

    def is_of(self, known: str) -> bool:
        """Return whether it is about a log, by its name between replicas: the name of the log and the number of the
        shard, and after `@` how many logs of this name were deleted, if any."""
        folder, mark, deletions = known.partition("@")
        return folder.rpartition("-")[0] + mark + deletions == self.log

    @property
    def shown_log(self) -> str:
        """Return the name of the log for people."""
        name, mark, deletions = self.log.partition("@")
        return f"{name} (the one after deletion {deletions})" if mark else name

    @property
    def fields(self) -> tuple[int, str, int] | tuple[int, str, int, int]:
        """Return what etcd has: the last field only where a node of an older level need not read it."""
        given = self.generation, self.log, self.offset
        return (*given, self.resumes) if self.resumes else given


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """The value of `shards/<k>`. Immutable; its revision in etcd is not a part of it."""

    generation: int
    """Rises with each change of the leader; 0 before the first one."""
    leader: str | None
    """The member that leads, or None while none does."""
    run: int
    """Create revision of the leader's key in `nodes/`: which of its lives was elected. 0 without a leader."""
    isr: frozenset[str]
    replicas: tuple[str, ...]
    """Nodes that shall have the shard, the preferred leader first."""
    adding: tuple[str, ...] = ()
    """Nodes that copy it in order to become replicas."""
    unclean: tuple[Unclean, ...] = ()
    left: tuple[tuple[str, int], ...] = ()
    """Nodes that have lost their place, each with the generation, and that may have files of the shard still. None is
    back before it has deleted them and another generation has begun: what a node has promised counts until then."""
    others: str = ""
    """JSON of the fields of later versions, which every change keeps; empty without one."""

    @classmethod
    def first(cls, members: tuple[str, ...]) -> Self:
        """Return the record of a new, empty shard: all its replicas are in sync, and none leads."""
        return cls(0, None, 0, frozenset(members), tuple(node_of(member) for member in members))

    # Who leads.

    def elected(self, member: str, run: int, min_isr: int) -> Self | None:
        """Return the record with a new leader, which must be in sync. The old one leaves the in-sync set, if it may."""
        if not self.may_elect(member):
            return None
        isr = self.isr - {node_of(member)} | {member}
        if self.leader not in (None, member) and len(isr) > min_isr:
            isr -= {self.leader}
        return self._led_by(member, run, isr)

    def may_elect(self, member: str) -> bool:
        """Return whether a member is in sync; or its node is, with whichever boot: after a restore, all that it has
        promised is on its disk."""
        return member in self.isr or node_of(member) in self.isr

    def handed_over(self, member: str, run: int) -> Self | None:
        """Return the record with a leader that the present one has chosen. The in-sync set stays."""
        return self._led_by(member, run, self.isr) if member in self.isr and member != self.leader else None

    def resigned(self) -> Self | None:
        """Return the record without a leader."""
        return replace(self, leader=None, run=0) if self.leader is not None else None

    def renewed(self, run: int) -> Self | None:
        """Return the record of a leader that had to register again and has led throughout: the generation stays."""
        return replace(self, run=run) if self.leader is not None and run != self.run else None

    def recovered(self, member: str, run: int, unclean: tuple[Unclean, ...]) -> Self | None:
        """Return the record of an election by command, for a shard whose in-sync members are lost. The member is the
        only one in sync, below `min_isr`: nothing is committed until others have caught up."""
        if node_of(member) not in self.replicas or not unclean:
            return None
        found = self._led_by(member, run, frozenset([member]))
        return found and replace(found, unclean=self.unclean + unclean)

    def _led_by(self, member: str, run: int, isr: frozenset[str]) -> Self | None:
        if self.generation == MOST_GENERATION:
            return None
        return replace(self, generation=self.generation + 1, leader=member, run=run, isr=isr)

    # Who is in sync.

    def admitted(self, member: str) -> Self | None:
        """Return the record with one more in-sync member. The leader proves that it has every committed record. What
        its node was before another boot does not come back, and leaves."""
        node = node_of(member)
        if member in self.isr or node not in self.nodes:
            return None
        before = {one for one in self.isr if node_of(one) == node and one != self.leader}
        return replace(self, isr=self.isr - before | {member})

    def dismissed(self, member: str, min_isr: int) -> Self | None:
        """Return the record without an in-sync member, never with fewer than `min_isr`, never without the leader. To
        swap the last ones, another is admitted first."""
        if member not in self.isr or member == self.leader or len(self.isr) <= min_isr:
            return None
        return replace(self, isr=self.isr - {member})

    # Who has a replica. The balancer and the operator propose these: a leader that has not seen them yet counts more
    # members, not fewer.

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that have a replica, or copy one."""
        return self.replicas + self.adding

    def adds(self, node: str) -> Self | None:
        """Return the record with a node that begins to copy the shard; not one of `left`."""
        if node in (*self.nodes, *dict(self.left)) or len(self.nodes) == MOST_REPLICAS:
            return None
        return replace(self, adding=(*self.adding, node))

    def spared(self, node: str, min_isr: int) -> Self | None:
        """Return the record without a node that copies the shard. One that is in sync by now leaves the in-sync set as
        well; not while it leads."""
        isr = self._isr_without(node)
        if node not in self.adding or (isr != self.isr and len(isr) < min_isr):
            return None
        if self.leader not in (None, *isr):
            return None
        adding = tuple(one for one in self.adding if one != node)
        return replace(self, isr=isr, adding=adding, left=self._left_by(node))

    def dropped(self, node: str, min_isr: int) -> Self | None:
        """Return the record without a replica that is beyond repair, where a leader and the minimum in sync have all
        without it. It comes back as one of `left` does."""
        isr = self._isr_without(node)
        if node not in self.replicas or len(isr) < min_isr or self.leader not in isr:
            return None
        replicas = tuple(one for one in self.replicas if one != node)
        return replace(self, isr=isr, replicas=replicas, left=self._left_by(node)) if replicas else None

    def cleared(self, node: str) -> Self | None:
        """Return the record for a node that has deleted what it had, in a later generation than the one it left in."""
        if dict(self.left).get(node, self.generation) >= self.generation:
            return None
        return replace(self, left=tuple(one for one in self.left if one[0] != node))

    def ordered(self, nodes: tuple[str, ...]) -> Self | None:
        """Return the record with its replicas in another order: the preferred leader is the first one."""
        if nodes == self.replicas or sorted(nodes) != sorted(self.replicas):
            return None
        return replace(self, replicas=nodes)

    def grown(self, node: str) -> Self | None:
        """Return the record with a node as one more replica, once it is in sync: a shard that was restored has one."""
        if node not in self.adding or node not in map(node_of, self.isr):
            return None
        adding = tuple(one for one in self.adding if one != node)
        return replace(self, replicas=(*self.replicas, node), adding=adding)

    def moved(self, node: str, away: str, min_isr: int) -> Self | None:
        """Return the record with a node in the place of another one, once the new one is in sync. The old one leaves
        the in-sync set as well; not while it leads."""
        isr = self._isr_without(away)
        if node not in self.adding or away not in self.replicas or node not in map(node_of, isr):
            return None
        if len(isr) < min_isr or self.leader not in (None, *isr):
            return None
        return replace(
            self,
            isr=isr,
            replicas=tuple(node if one == away else one for one in self.replicas),
            adding=tuple(one for one in self.adding if one != node),
            left=self._left_by(away),
        )

    def _isr_without(self, node: str) -> frozenset[str]:
        return frozenset(member for member in self.isr if node_of(member) != node)

    def _left_by(self, node: str) -> tuple[tuple[str, int], ...]:
        return (*self.left, (node, self.generation))[-MOST_LEFT:]

    # Bytes.

    def encode(self) -> bytes:
        """Return the value as etcd has it: JSON, keys sorted, so that equal records are equal bytes."""
        fields = {
            **json.loads(self.others or "{}"),
            "version": _VERSION,
            "generation": self.generation,
            "leader": self.leader,
            "run": self.run,
            "isr": sorted(self.isr),
            "replicas": self.replicas,
            "adding": self.adding,
            "left": self.left,
            "unclean": [one.fields for one in self.unclean],
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    @functools.lru_cache(2048)
    def decode(cls, value: bytes) -> Self:
        """Return the record of such a value. Raises UndecodableShardRecord for anything that `encode` cannot have
        made."""
        try:
            return cls._of(json_object(value))
        except (ValueError, TypeError, KeyError) as error:
            raise UndecodableShardRecord(f"invalid shard record: {error!r} in {value[:200]!r}") from None

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> Self:
        if fields["version"] != _VERSION:
            raise ValueError(f"expected version {_VERSION}, got {fields['version']!r}")
        leader = fields["leader"]
        others = unknown_fields(fields, cls)
        found = cls(
            integer(fields["generation"], most=MOST_GENERATION),
            None if leader is None else _name(leader),
            integer(fields["run"]),
            frozenset(_names(fields["isr"])),
            _names(fields["replicas"]),
            _names(fields["adding"]),
            tuple(
                Unclean(integer(g, most=MOST_GENERATION), _name(log), *(integer(one) for one in offsets))
                for g, log, *offsets in fields["unclean"]
            ),
            tuple((_name(node), integer(g, most=MOST_GENERATION)) for node, g in fields.get("left", [])),
            json.dumps(others, sort_keys=True) if others else "",
        )
        if not found.isr or not found.replicas or (leader is None) != (found.run == 0):
            raise ValueError("expected in-sync members, replicas, and a run of the leader if there is one")
        if leader is not None and leader not in found.isr:
            raise ValueError("expected the leader among the in-sync members")
        return found


def _name(value: object) -> str:
    if type(value) is not str or not 0 < len(value) <= 255:
        raise ValueError(f"expected a name, got {value!r}")
    return value


def _names(values: object) -> tuple[str, ...]:
    if type(values) is not list or len(values) > MOST_REPLICAS:
        raise ValueError(f"expected up to {MOST_REPLICAS} names, got {values!r}")
    names = tuple(_name(value) for value in values)
    if len(set(names)) != len(names):
        raise ValueError(f"expected different names, got {values!r}")
    return names

"""The leader of one generation: who has which records, and what is committed.

Two rules carry its safety. It counts every member that may be in sync by any outcome of its own proposals, so none of
them can be elected without having what it commits. And it counts only what members have said in its generation, so
one that follows another leader since then cannot be counted: the members fence the leader, no clock does.
"""

from dataclasses import dataclass

from .actions import Action, Send, Serve, Ship, Show
from .frames import Committed, Diverged, Follow, Held, Reset, Started
from .replica_log import ReplicaLog
from .shard_record import ShardRecord, node_of


@dataclass(slots=True)
class Progress:
    """A follower's place in one log, as its leader sees it."""

    sent: int | None = None
    """Shipped up to here; None until the follower's records are known to be the leader's."""
    names: int = 0
    held: int = 0
    clean: int = 0


class Leader:
    """Role of a replica in one generation."""

    def __init__(
        self,
        member: str,
        record: ShardRecord,
        min_isr: int,
        logs: dict[str, ReplicaLog],
        actions: list[Action],
    ) -> None:
        self.member = member
        self.min_isr = min_isr
        self.generation = record.generation
        self.replicas, self.nodes = record.replicas, record.nodes
        self.isr = record.isr
        self.proposals: set[ShardRecord] = set()
        """What may be in etcd by now, or soon, as far as this leader knows."""
        self.begin = {name: log.end for name, log in logs.items()}
        """Where the generation began."""
        self.waiting = set(logs)
        """Logs of which not all counted members follow, or have what the generation began with."""
        self.followers: dict[str, dict[str, Progress]] = {}
        """Members that are sent records, observers among them."""
        self.is_serving = False
        self.logs = logs
        self.actions = actions
        self.advance()

    @property
    def counted(self) -> frozenset[str]:
        """Return the members that have to have a record before it is committed: those in sync by any outcome."""
        return self.isr.union(*[record.isr for record in self.proposals]) if self.proposals else self.isr

    @property
    def observers(self) -> list[str]:
        """Return the followers that have no place in the shard."""
        return [member for member in self.followers if node_of(member) not in self.nodes]

    def forget(self, member: str) -> None:
        """Send a follower nothing more until it asks again."""
        self.followers.pop(member, None)

    # What followers send.

    def follow(self, member: str, frame: Follow) -> None:
        """Compare a follower's last record with the own one at its place. Equal offset and generation means equal
        records up to there (Raft §5.3, log matching), so the answer is a place to start, or one to cut to (KIP-279)."""
        log = self.logs.get(frame.log)
        if log is None:
            return
        for other in [one for one in self.followers if node_of(one) == node_of(member) and one != member]:
            del self.followers[other]
        progress = self.followers.setdefault(member, {}).setdefault(frame.log, Progress())
        progress.sent = None
        place = log.end_of(frame.last_generation)
        is_empty = frame.last_generation == 0
        if log.start <= frame.end <= log.end and (
            is_empty or log.generation_at(frame.end - 1) == frame.last_generation
        ):
            progress.sent, progress.names = frame.end, frame.names
            self._send(member, Started(self.generation, frame))
            self._send(member, _committed(self.generation, frame.log, log))
            self._ship(member, frame.log)
            self.advance(frame.log)
        elif frame.end <= log.start or is_empty or not place.generation:
            self._send(member, Reset(self.generation, frame, log.start))
        else:
            self._send(member, Diverged(self.generation, frame, *place))

    def held(self, member: str, frame: Held) -> None:
        """Count what a follower has. What it has said in this generation stays true until it ends. What an observer
        says counts for nothing."""
        progress, end = self.followers.get(member, {}).get(frame.log), self.logs[frame.log].end
        if progress is None or frame.offset > end or node_of(member) not in self.nodes:
            return
        if progress.held < frame.offset or progress.clean < frame.clean:
            progress.held = max(progress.held, frame.offset)
            progress.clean = max(progress.clean, frame.clean)
            self.advance(frame.log)

    # What its own log does.

    def appended(self, name: str) -> None:
        """Ship what was written; the own flush runs at the same time."""
        for member in self.followers:
            self._ship(member, name)

    def log_removed(self, name: str) -> None:
        """Wait for no follower in a log that is deleted."""
        for progress in self.followers.values():
            progress.pop(name, None)
        self.waiting.discard(name)
        self.advance()

    def advance(self, only: str | None = None) -> None:
        """Commit what all counted members have, and serve once all of them follow and have what the generation began
        with: what an earlier leader has shown is in there (Raft §8 has a leader commit an entry of its own before it
        answers reads). That all was committed before is not enough: after etcd was restored from the past this
        generation may have been another leader's, and those that have records of that one do not follow. only: the
        log of which something has changed; all by default."""
        counted = self.counted
        if len(counted) < self.min_isr:
            return  # after an election by command, until others have caught up
        for name in self.logs if only is None else (only,):
            log = self.logs[name]
            committed, stable = log.committed, log.stable
            if committed < log.end:
                committed = max(committed, min([self.held_by(member, name) for member in counted]))
            if stable < min(committed, log.clean):
                stable = max(stable, min(committed, *(self._clean_at(node, name) for node in self.nodes)))
            if (committed, stable) != (log.committed, log.stable):
                log.committed, log.stable = committed, stable
                self.actions.append(Show(name, log.committed))
                said = _committed(self.generation, name, log)
                for member, progress in self.followers.items():
                    if name in progress and progress[name].sent is not None:
                        self._send(member, said)
            if name in self.waiting and all(self._has_begun(member, name) for member in counted):
                self.waiting.discard(name)
        if not (self.is_serving or self.waiting or self._is_handing_over):
            self.is_serving = True
            self.actions.append(Serve(self.generation))

    @property
    def _is_handing_over(self) -> bool:
        return any(record.generation > self.generation for record in self.proposals)

    # What etcd says.

    def proposed(self, record: ShardRecord) -> None:
        """Count the in-sync members of a proposal as well: it may have taken place before this is known. After a
        hand-over nothing more is taken until its outcome is known."""
        self.proposals.add(record)
        self.is_serving = self.is_serving and not self._is_handing_over

    def refused(self, record: ShardRecord) -> None:
        """Forget a proposal that cannot take place: a run that has ended does not come back."""
        self.proposals.discard(record)
        self.advance()

    def settled(self, record: ShardRecord) -> None:
        """Take the in-sync members that etcd has. Proposals for an earlier revision cannot take place any more."""
        self.isr, self.replicas, self.nodes = record.isr, record.replicas, record.nodes
        for member in self.observers:
            for progress in self.followers[member].values():
                progress.held = progress.clean = 0
        self.proposals.clear()
        self.advance()

    def may_admit(self, member: str) -> bool:
        """Return whether a follower has everything committed, and everything that the generation began with, so that
        it may be counted from now on."""
        return all(self._has_begun(member, name) for name in self.logs)

    def may_hand_over(self, member: str) -> bool:
        """Return whether nothing waits, so that another member can lead without a record of unknown outcome."""
        return member in self.followers and all(log.committed == log.end for log in self.logs.values())

    def beat(self) -> None:
        """Say to all followers what is committed: the leader's heartbeat."""
        for member, progress in self.followers.items():
            for name, one in progress.items():
                if one.sent is not None:
                    self._send(member, _committed(self.generation, name, self.logs[name]))

    def held_by(self, member: str, name: str) -> int:
        """Return below which offset a member has the records of a log, as far as it has said in this generation."""
        if member == self.member:
            return self.logs[name].durable
        progress = self.followers.get(member, {}).get(name)
        return progress.held if progress else 0

    # Helpers.

    def _has_begun(self, member: str, name: str) -> bool:
        """Return whether a member follows in a log, and has what is committed and what the generation began with."""
        if member == self.member:
            return self.logs[name].durable >= self.begin.get(name, 0)
        one = self.followers.get(member, {}).get(name)
        least = max(self.logs[name].committed, self.begin.get(name, 0))
        return one is not None and one.sent is not None and one.held >= least

    def _clean_at(self, node: str, name: str) -> int:
        if node == node_of(self.member):
            return self.logs[name].clean
        found = [
            logs[name].clean
            for member, logs in self.followers.items()
            if node_of(member) == node and name in logs
        ]
        return max(found, default=0)

    def _ship(self, member: str, name: str) -> None:
        progress, log = self.followers[member].get(name), self.logs[name]
        if progress is not None and progress.sent is not None and progress.sent < log.end:
            self.actions.append(Ship(member, name, progress.sent, log.end, progress.names))
            progress.sent, progress.names = log.end, log.names

    def _send(self, member: str, frame: Started | Diverged | Reset | Committed) -> None:
        self.actions.append(Send(member, frame))


def _committed(generation: int, name: str, log: ReplicaLog) -> Committed:
    return Committed(generation, name, log.committed, log.stable, log.start)

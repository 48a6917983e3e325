"""When a replica does what it may do at any time: stand, admit, dismiss, resign, repeat itself.

Nothing here matters for safety. Times are seconds of a clock that never goes back and counts a suspended machine's time
as well (CLOCK_BOOTTIME); the caller passes them.
"""

from collections import deque
from collections.abc import Collection, Mapping

from .follower import Follower
from .frames import Committed, Frame
from .leader import Leader
from .replica import Replica
from .shard_record import ShardRecord, node_of

TICK_S = 0.2
"""How often `tick` is to be called; also the heartbeat in both directions."""
SILENT_S = 1.0
"""A leader that is not registered and was not heard for this long is dead."""
PLACE_S = 0.1
"""Candidates stand one after another, the preferred replica first."""
LATE_S = 2.0
"""A member that has not held what the leader's end was so long ago leaves the in-sync set."""
STUCK_S = 4.0
"""A leader that has committed nothing for this long, though others are there, resigns. Longer than a lease and the half
second in which etcd ends it: a member that is dead does not count as one that is there."""
AWAY_S = 10.0
"""A leader that has resigned does not stand for this long, while another member may."""
BEHIND_S = 10.0
"""A member whose node could not serve yet as a leader leaves an election to others for so long."""
ASLEEP_S = 2.0
"""A leader that has not ticked for this long was suspended, and may have a successor: a lease of three seconds that is
renewed each second does not end earlier."""
WAKING_S = 1.0
"""Within this time after it wakes, it hears of its successor."""
AGAIN_S = 1.0
"""What etcd or a peer has not answered is repeated after this time."""


class Deadlines:
    """Deadlines of one replica. Call `heard` for each frame of a member, and `tick` five times a second."""

    def __init__(self, replica: Replica, now_s: float) -> None:
        self._replica = replica
        self._heard_s: dict[str, float] = {}
        self._current: set[str] = set()
        """Logs of which all that was committed was here."""
        self._ends: deque[tuple[float, dict[str, int]]] = deque()
        """The leader's ends in the last LATE_S, oldest first."""
        self._generation = 0
        self._committed: dict[str, int] = {}
        self._moved_s = self._began_s = self._ticked_s = self._born_s = now_s
        self._stand_s: float | None = None
        self._again_s = self._ask_s = self._away_s = now_s
        self._awake_s = 0.0
        self._gave_way_s = now_s
        """When an election was not needed, for `_give_way`."""

    def heard(self, member: str, now_s: float) -> None:
        """Note that a frame came from a member."""
        self._heard_s[member] = now_s

    def received(self, frame: Frame) -> None:
        """Note what a leader says, once its follower has taken it."""
        role = self._replica.role
        if not isinstance(frame, Committed) or not isinstance(role, Follower):
            return
        if frame.log in role.started and frame.offset <= role.logs[frame.log].end:
            self._current.add(frame.log)

    @property
    def has_caught_up(self) -> bool:
        """Return whether this replica has had all that was committed, once in its life."""
        return self._replica.is_serving or self._current >= self._replica.logs.keys()

    def stay_away(self, now_s: float) -> None:
        """Do not stand for a while, as long as another member may."""
        self._away_s = max(self._away_s, now_s + AGAIN_S)

    def is_waking(self, now_s: float) -> bool:
        """Return whether this replica leads and was suspended until a moment ago: another one may have acknowledged
        records since then, so this one waits with that until it would know."""
        self._note_sleep(now_s)
        return isinstance(self._replica.role, Leader) and now_s < self._awake_s

    def tick(self, now_s: float, runs: Mapping[str, int], unable: Collection[str] = ()) -> None:
        """Do what is due. `runs` are the members that are registered in etcd, as far as this one knows; `unable` the
        nodes that could not serve at once if they led."""
        self._give_way(now_s, runs, unable)
        self._note_sleep(now_s)
        if now_s - self._ticked_s >= SILENT_S:  # suspended: that others were not heard is not their fault
            self._moved_s = self._began_s = now_s
        self._ticked_s = now_s
        if isinstance(self._replica.role, Leader):
            self._lead(self._replica.role, now_s, runs)
        else:
            self._follow(now_s, runs)

    # A leader.

    def _lead(self, role: Leader, now_s: float, runs: Mapping[str, int]) -> None:
        if self._generation != role.generation:
            self._generation, self._began_s, self._moved_s = role.generation, now_s, now_s
            self._ends.clear()
        self._stand_s = None
        self._ends.append((now_s, {name: log.end for name, log in role.logs.items()}))
        while len(self._ends) > 1 and self._ends[1][0] <= now_s - LATE_S:
            self._ends.popleft()
        for member in role.observers:
            if now_s - max(self._heard_s.get(member, 0.0), self._began_s) >= LATE_S:
                role.forget(member)
        self._replica.beat()
        if now_s >= self._again_s and self._change(role, now_s, runs):
            self._again_s = now_s + AGAIN_S
        if self._is_stuck(role, now_s, runs):
            self._away_s = now_s + AWAY_S
            self._replica.resign(
                f"resigns: nothing was committed for {STUCK_S:g} s, though enough nodes are registered"
            )

    def _change(self, role: Leader, now_s: float, runs: Mapping[str, int]) -> bool:
        """Propose one change, if one is due: the own run is noted again if another change came in between; who has
        caught up is admitted before others leave, so that the last ones can be swapped."""
        before = len(self._replica.actions)
        self._replica.renew()
        for member in sorted(role.followers.keys() - role.isr):
            run = runs.get(member)
            if (
                run is not None
                and len(self._replica.actions) == before
                and self._is_current(role, member, now_s)
            ):
                self._replica.admit(
                    member, run, f"takes {node_of(member)} into the in-sync set: it has caught up"
                )
        for member in sorted(role.isr - {role.member}):
            is_gone = member not in runs
            if len(self._replica.actions) == before and (
                is_gone or (now_s - self._began_s >= LATE_S and not self._is_current(role, member, now_s))
            ):
                late = f"it has lacked records of the leader for {LATE_S:g} s"
                booted = node_of(member) in map(node_of, runs)
                gone = "its machine was booted again" if booted else "it is not registered in etcd"
                reason = gone if is_gone else late
                self._replica.dismiss(member, f"takes {node_of(member)} out of the in-sync set: {reason}")
        return len(self._replica.actions) > before

    def _note_sleep(self, now_s: float) -> None:
        """Note that the replica has just woken, if it was suspended."""
        if now_s - self._ticked_s >= ASLEEP_S:
            self._awake_s = now_s + WAKING_S

    def _is_current(self, role: Leader, member: str, now_s: float) -> bool:
        # Where the shard has no log, its followers send nothing.
        if role.logs and now_s - self._heard_s.get(member, -LATE_S) >= LATE_S:
            return False
        ends = self._ends[0][1].items()
        return all(role.held_by(member, name) >= end for name, end in ends if name in role.logs)

    def _is_stuck(self, role: Leader, now_s: float, runs: Mapping[str, int]) -> bool:
        committed = {name: log.committed for name, log in role.logs.items()}
        waits = not role.is_serving or any(log.committed < log.end for log in role.logs.values())
        if committed != self._committed or not waits:
            self._committed, self._moved_s = committed, now_s
        others = len(set(map(node_of, runs)) & set(role.replicas) - {node_of(role.member)})
        may_follow = any(member in runs for member in role.isr if member != role.member)
        return now_s - self._moved_s >= STUCK_S and others >= self._replica.min_isr and may_follow

    # A follower, or none.

    def _give_way(self, now_s: float, runs: Mapping[str, int], unable: Collection[str]) -> None:
        """Leave an election to another member for some seconds, if this node could not serve at once, and that one
        could."""
        record = self._replica.record
        if record is None or (record.leader is not None and runs.get(record.leader) == record.run):
            self._gave_way_s = now_s
            return
        others = any(member in runs and node_of(member) not in unable for member in record.isr)
        if others and node_of(self._replica.member) in unable and now_s < self._gave_way_s + BEHIND_S:
            self.stay_away(now_s)

    def _follow(self, now_s: float, runs: Mapping[str, int]) -> None:
        replica, record = self._replica, self._replica.record
        if record is None:
            return
        if record.leader == replica.member and record.run == replica.run:
            if now_s >= self._again_s:  # has given up: until etcd knows it, no other can be elected
                self._again_s = now_s + AGAIN_S
                replica.resign()
            return
        if now_s >= self._ask_s:
            self._ask_s = now_s + AGAIN_S
            replica.follow_again()
            role, heard_s = replica.role, self._heard_s.get(record.leader or "", self._born_s)
            if isinstance(role, Follower) and role.observes and now_s - heard_s >= LATE_S:
                role.ask()  # the leader sends nothing to an observer that it has not heard
        replica.beat()
        leader = record.leader
        is_gone = leader in (None, replica.member) or runs.get(leader) != record.run
        is_silent = leader is None or now_s - self._heard_s.get(leader, -SILENT_S) >= SILENT_S
        others = any(member in runs for member in record.isr if member != replica.member)
        is_away = now_s < (self._away_s if others else self._born_s)
        if is_away or not (is_gone and is_silent and replica.may_stand):
            self._stand_s = None
        elif self._stand_s is None:
            node = node_of(replica.member)
            place = record.replicas.index(node) if node in record.replicas else len(record.replicas)
            self._stand_s = now_s + place * PLACE_S
        elif now_s >= self._stand_s:
            self._stand_s = now_s + AGAIN_S
            replica.stand(f"stands for election: {self._why_to_stand(record, now_s, runs)}")

    def _why_to_stand(self, record: ShardRecord, now_s: float, runs: Mapping[str, int]) -> str:
        """Return why no leader is there, for people."""
        leader = record.leader
        if leader is None:
            return "no node leads" if record.generation else "the shard is new"
        if leader == self._replica.member:
            return "this node led, and was started again"
        what = f"{node_of(leader)}, which led, " + (
            "was started again" if leader in runs else "is not registered in etcd"
        )
        heard_s = self._heard_s.get(leader)
        return f"{what}, and was not heard" + ("" if heard_s is None else f" for {now_s - heard_s:.1f} s")

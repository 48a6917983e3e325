"""One replica of one shard at work: does what the protocol asks for, and reports what has happened. Event-loop thread
only; flushes and reads of the disk run in threads."""

import asyncio
import functools
import logging
import threading
from collections.abc import Collection, Mapping

from timestone.config import Ack
from timestone.errors import LogFailed, TimestoneError
from timestone.replication.replica_repair import BeyondRepair
from timestone.replication.replicated_log import ReplicatedLog
from timestone_cluster.actions import (
    Action,
    Alarm,
    Append,
    Clear,
    Cut,
    Expire,
    Propose,
    Refresh,
    Send,
    Serve,
    Ship,
    Show,
    StepDown,
)
from timestone_cluster.deadlines import Deadlines
from timestone_cluster.follower import Follower
from timestone_cluster.frames import Beat, Committed, Fetch, Fetched, Frame
from timestone_cluster.leader import Leader
from timestone_cluster.replica import Replica
from timestone_cluster.replica_log import ReplicaLog, Run
from timestone_cluster.shard.election_log import ElectionLog
from timestone_cluster.shard.flushes import Flushes
from timestone_cluster.shard.repair import Repair, answer, opened
from timestone_cluster.shard.shipping import Said, Shared, Shipping, Surroundings, append, now_s
from timestone_cluster.shard_record import OLDER_ETCD, ShardRecord, node_of
from timestone_cluster.transport.wire import encoded

_LOGGER = logging.getLogger("timestone.cluster")
_REOPEN_S = 5.0
_HOLD_S = 0.5
"""Longest time for which appends are refused so that another member may lead without one of unknown outcome."""


class Shard:
    """A replica with its logs."""

    def __init__(
        self,
        number: int,
        member: str,
        run: int,
        min_isr: int,
        logs: Mapping[str, ReplicatedLog],
        damaged: frozenset[str],
        around: Surroundings,
    ) -> None:
        """member: what this node is in the records. logs: by `replica_name`. damaged: folders."""
        self.number = number
        self.alarm = ""
        self._member, self._min_isr, self._around = member, min_isr, around
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._logs: dict[str, ReplicatedLog] = {}
        self._damaged = damaged
        self._repairs: dict[str, Repair] = {}
        self._repair_s = 0.0  # before it, no repair begins
        self.is_beyond_repair = False
        self._flushing: set[str] = set()
        self._cuts = 0
        self._is_closed = self._has_failed = False
        self._held_s = 0.0
        """When appends were last held to hand over."""
        self._changed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._said, self._shared, self._flushes = Said(number, around), Shared(), Flushes()
        self._is_beating = False
        self._election_log = ElectionLog(number, around)
        self._replica = Replica(member, run, min_isr, {})
        self._deadlines = Deadlines(self._replica, now_s())
        for name, log in logs.items():
            self._take(name, log)
            self._replica.logs[name] = self._state(log)

    @property
    def replica(self) -> Replica:
        """Return the state of the protocol. Read only."""
        return self._replica

    def log(self, name: str) -> ReplicatedLog | None:
        """Return a log by the name of its folder; None if it has none."""
        return next((log for log in self._logs.values() if log.folder.name == name), None)

    # Events.

    def add_log(self, name: str, log: ReplicatedLog) -> None:
        """Begin to replicate a new log. name: as `replica_name` returns it."""
        if name in self._logs:
            return
        self._take(name, log)
        self._replica.log_added(name, self._state(log))
        if self._replica.is_serving and isinstance(self._replica.role, Leader):
            self._lead(name, log, self._replica.role.generation)
        self._perform()

    def remove_log(self, folder: str) -> None:
        """Replicate a log no more, which the cluster has deleted."""
        for name, log in list(self._logs.items()):
            if log.folder.name == folder:
                del self._logs[name]
                log.on_written = lambda: None
                self._replica.log_removed(name)
                self._healed(name, log)
        self._perform()

    def record_seen(self, record: ShardRecord, revision: int) -> None:
        """Take the record of etcd."""
        before = self._replica.record
        self._replica.record_seen(record, revision)
        if self._replica.record is record:  # neither late nor of an older etcd
            self._election_log.seen(before, record)
            self.alarm = "" if self.alarm.startswith(OLDER_ETCD) else self.alarm  # repaired by command
        self._perform()

    def refused(self, proposal: Propose) -> None:
        """Take the answer that a proposal did not take place."""
        self._replica.refused(proposal)
        self._perform()

    def registered(self, run: int) -> None:
        """Take a new registration of this node."""
        self._replica.registered(run)
        self._perform()

    def linked(self, member: str) -> None:
        """Note a new connection with a node, or a member."""
        self._said.forget(node_of(member))
        self._replica.linked(member)
        self._perform()

    def received(self, member: str, frame: Frame) -> None:
        """Take a frame."""
        self._deadlines.heard(member, now_s())
        if isinstance(frame, Fetch):
            return self._start(self._answer(node_of(member), frame))
        if isinstance(frame, Fetched):
            return self._fetched(member, frame)
        self._replica.received(member, frame)
        self._deadlines.received(frame)
        self._perform()

    def beat(self, member: str, generation: int) -> None:
        """Note that a member repeats what it has said."""
        self._deadlines.heard(member, now_s())
        if generation != self._replica.generation:
            self._replica.received(member, Beat(generation))
            self._perform()

    def damaged(self, logs: frozenset[str]) -> None:
        """Take note of folders of damaged logs: this replica leads and acknowledges no more."""
        for name, log in list(self._logs.items()):
            if log.folder.name in logs - self._damaged:
                self._found_damage(name)

    def tick(self, runs: Mapping[str, int], draining: Collection[str], behind: Collection[str]) -> bool:
        """Do what is due; five times a second. Return whether this replica has had all that was committed, once since
        its start. runs: by member. draining, behind: nodes that are to lead nothing while others may."""
        self._hold()
        if node_of(self._member) in draining:
            self._deadlines.stay_away(now_s())
            others = {member: run for member, run in runs.items() if node_of(member) not in draining}
            self.hand_over(others, "this node is drained, removed, full or stops")
        shows = isinstance(self._replica.role, Leader) and not self._deadlines.is_waking(now_s())
        for name, log in self._logs.items():
            state = self._replica.logs[name]
            if shows:
                log.show(state.committed)
            self._replica.begins(name, log.local_start_offset)
            if state.clean < (clean := min(log.clean_offset, log.synced_offset, state.durable)):
                self._replica.compacted(name, clean)
            log.drop_tombstones(state.stable)
            if log.failure is not None and not self._has_failed:  # of a flush that nothing waited for
                self._has_failed = True
                self._around.failed(log.failure)
        self._deadlines.tick(now_s(), runs, {*draining, *behind})
        self._is_beating = True
        self._perform()
        self._is_beating = False
        self._repair()
        return self._deadlines.has_caught_up

    def hand_over(self, runs: Mapping[str, int], why: str) -> bool:
        """Propose another one of these members as the leader, if this one leads. Return whether it leads and one of
        them has a place in the shard, so that it may lead later. why: for the log."""
        role = self._replica.role
        if not isinstance(role, Leader) or not {*map(node_of, {*runs} - {role.member})} & {*role.nodes}:
            return False
        members = [one for one in sorted(role.isr - {role.member}) if one in runs]
        if not role.is_serving or not members or not self._around.has_left(self.number):
            return True
        if now_s() >= self._held_s + 2 * _HOLD_S:  # after one in vain, appends are taken for as long
            self._held_s = now_s()
        self._hold()
        is_told = all(
            not log.queued_bytes and log.extent[0] == self._replica.logs[name].end
            for name, log in self._logs.items()
        )
        ready = [member for member in members if self._is_holding and is_told and role.may_hand_over(member)]
        if ready:
            for log in self._logs.values():
                log.follow()
            self._replica.hand_over(ready[0], runs[ready[0]], f"hands over to {node_of(ready[0])}: {why}")
            self._perform()
        return True

    def resign(self, why: str) -> None:
        """Lead no more, if this replica leads: the next election begins another generation."""
        self._replica.resign(f"resigns: {why}")
        self._perform()

    @property
    def _is_holding(self) -> bool:
        return now_s() < self._held_s + _HOLD_S

    def _hold(self) -> None:
        for log in self._logs.values():
            log.is_held = self._is_holding

    async def close(self) -> None:
        """Stop to lead, and end what runs."""
        self._is_closed = True
        self._around.lost(self.number)
        for log in self._logs.values():
            log.on_written = lambda: None
            log.follow()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._flushes.close()

    # Logs.

    def _found_damage(self, name: str) -> None:
        self._damaged |= {self._logs[name].folder.name}
        self._alarmed(f"{name} has a damaged record")
        self._replica.damaged(name)
        self._perform()

    def _take(self, name: str, log: ReplicatedLog) -> None:
        log.follow()
        self._logs[name] = log

        def changed() -> None:
            if threading.get_ident() == self._thread:  # no wake-up: the loop runs
                self._log_changed(name)
            else:
                self._loop.call_soon_threadsafe(self._log_changed, name)

        log.on_written = changed

    def _state(self, log: ReplicatedLog) -> ReplicaLog:
        if not log.is_whole:  # noted, because a cut may remove what is damaged before it is repaired
            self._damaged |= {log.folder.name}
        return opened(log, is_damaged=log.folder.name in self._damaged)

    def _log_changed(self, name: str) -> None:
        """Handle appends of clients, once for all since the last call."""
        if not self._changed:
            self._loop.call_soon(self._logs_changed)
        self._changed.add(name)

    def _logs_changed(self) -> None:
        changed, self._changed = self._changed, set()
        for name in changed & self._logs.keys() if self._replica.is_serving else ():
            log, state = self._logs[name], self._replica.logs[name]
            durable = log.acknowledged_offset
            written, names = log.extent
            if written > state.end:
                self._replica.appended(name, written, names)
            if durable > state.durable:
                self._replica.durable(name, durable)
        self._perform()  # first: other replicas take longer
        for name in changed & self._logs.keys() if self._replica.is_serving else ():
            if self._replica.logs[name].durable < self._replica.logs[name].end:
                self._hold_written(name)

    def _hold_written(self, name: str) -> None:
        """Report what was written as held: now, or once it is flushed, as the level asks or a slow disk."""
        log = self._logs[name]
        if log.level is Ack.WRITTEN and log.flush_later():
            self._replica.durable(name, log.extent[0])
        else:
            self._flush(name)

    def _flush(self, name: str) -> None:
        if name not in self._flushing and not self._is_closed:
            self._flushes.begin(self._logs[name], functools.partial(self._flushed, name, self._cuts))
            self._flushing.add(name)  # last: what has failed to begin never ends

    def _flushed(self, name: str, cuts: int, outcome: int | Exception) -> None:
        if self._is_closed or name not in self._logs:
            return None
        if isinstance(outcome, LogFailed):
            return self._around.failed(outcome)
        if isinstance(outcome, Exception):
            _LOGGER.error("shard %d: %s: %s", self.number, name, outcome)
            self._loop.call_later(_REOPEN_S, self._flush_rest, name)
            return None
        if cuts == self._cuts:  # otherwise it began in front of a cut
            self._replica.durable(name, outcome)
        return self._flush_rest(name)

    def _flush_rest(self, name: str) -> None:
        self._perform()
        self._flushing.discard(name)
        if (state := self._replica.logs.get(name)) is not None and state.durable < state.end:
            self._flush(name)

    def _start(self, coroutine: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Repair.

    def _repair(self) -> None:
        """Begin to repair damaged logs, as long as another replica leads."""
        may = isinstance(self._replica.role, Follower) and now_s() >= self._repair_s
        for name in [one for one, state in self._replica.logs.items() if may and state.damaged]:
            log = self._logs[name]
            if name not in self._repairs and log.folder.name in self._damaged:
                self._repairs[name] = Repair(log, functools.partial(self._fetch, name))
                self._start(self._repaired(name, self._repairs[name]))

    async def _repaired(self, name: str, repair: Repair) -> None:
        log = self._logs[name]
        try:
            await repair.run()
            runs = log.generations()
        except (TimestoneError, ValueError, OSError, TimeoutError) as error:
            if name in self._logs:  # else it was deleted
                self._repair_s = now_s() + _REOPEN_S
                self.is_beyond_repair |= isinstance(error, BeyondRepair)
                reason = f"{error}" or "the leader does not answer"
                self._alarmed(f"{name} has a damaged record, and is not repaired yet: {reason}")
        else:
            if name not in self._logs:
                return
            self._replica.logs[name].runs = tuple(Run(*run) for run in runs)
            self._healed(name, log)
            _LOGGER.warning("shard %d: %s is repaired with records of the leader", self.number, name)
            self._replica.repaired(name)
            self._perform()
        finally:
            del self._repairs[name]

    def _healed(self, name: str, log: ReplicatedLog) -> None:
        self._damaged -= {log.folder.name}
        if self.alarm.startswith(name):
            self.alarm = ""

    def _fetch(self, name: str, first: int, end: int, names_first: int) -> None:
        role = self._replica.role
        if isinstance(role, Follower):
            frame = Fetch(role.generation, name, first, end, names_first)
            self._around.send(node_of(role.leader), encoded(frame, self.number))

    def _fetched(self, member: str, frame: Fetched) -> None:
        role, repair = self._replica.role, self._repairs.get(frame.log)
        if repair and isinstance(role, Follower) and member == role.leader:
            repair.received(frame)

    async def _answer(self, node: str, fetch: Fetch) -> None:
        """Send what another replica has lost; nothing if it is not here, or not committed."""
        role, log = self._replica.role, self._logs.get(fetch.log)
        if log is None or not self._replica.is_serving or fetch.generation != self._replica.generation:
            return
        generation = self._replica.logs[fetch.log].generation_at(fetch.first)
        found = await asyncio.to_thread(answer, log, generation, fetch)
        if found is not None and self._replica.role is role:
            self._around.send(node, encoded(found, self.number))

    # Actions.

    def _perform(self) -> None:
        while actions := self._replica.take_actions():
            for action in actions:
                try:
                    self._do(action)
                except LogFailed as error:
                    return self._around.failed(error)
                except Exception as error:  # a frame may ask for anything, and the rest is not done then
                    return self._begin_again(error)
        return None

    def _do(self, action: Action) -> None:
        match action:
            case Send(member, Committed() as frame) if not self._is_beating:
                self._said.say_soon(node_of(member), frame)
            case Send(member, frame):
                self._said.say(node_of(member), frame, is_beating=self._is_beating)
            case Ship():
                self._ship(action)
            case Append(records):
                append(self._logs[records.log], records)
                self._hold_written(records.log)
            case Show(name, committed):
                if not self._deadlines.is_waking(now_s()):  # else `tick` does it
                    log = self._logs[name]
                    if log.acknowledge(committed):
                        self._said.soon(name, log.note_committed)
                if self._is_holding:
                    self._around.hurry()
            case Expire(name, start):
                self._logs[name].expire(start)
            case Cut(name, offset, names, is_given_up):
                _LOGGER.warning("shard %d: %s is cut to offset %d", self.number, name, offset)
                self._cuts += 1
                self._logs[name].cut(offset, names, is_given_up=is_given_up)
            case Clear(name, start):
                _LOGGER.warning("shard %d: %s begins again at offset %d", self.number, name, start)
                self._cuts += 1
                self._logs[name].reset(start)
            case Serve(generation):
                _LOGGER.info("shard %d: serves in generation %d", self.number, generation)
                for name, log in self._logs.items():
                    self._lead(name, log, generation)
                self._around.served(self.number)
            case StepDown(generation):
                _LOGGER.info("shard %d: leads generation %d no more", self.number, generation)
                self._step_down(generation)
            case Propose():
                self._election_log.proposed(action)
                self._around.propose(self.number, action)
            case Refresh():
                self._around.refresh()
            case Alarm(reason):
                self._alarmed(reason)

    def _lead(self, name: str, log: ReplicatedLog, generation: int) -> None:
        """Take appends of clients, behind all offsets that were given up."""
        if log.extent[0] != (end := self._replica.logs[name].end):
            raise ValueError(f"invalid end of {name}: expected {end}, got {log.extent[0]}")
        unclean = self._replica.record.unclean if self._replica.record is not None else ()
        log.lead(generation, max((one.resumes for one in unclean if one.is_of(name)), default=0))
        if log.extent[0] != end:
            self._flush(name)

    def _step_down(self, generation: int) -> None:
        self._around.lost(self.number)
        for name, log in self._logs.items():
            log.follow()
            state, (written, names) = self._replica.logs[name], log.extent
            log.show(state.committed)
            if written > state.end:  # appended since the last report
                state.extend(generation, written, names)
                self._hold_written(name)

    def _alarmed(self, reason: str) -> None:
        if reason != self.alarm:
            _LOGGER.error("shard %d: this replica stays out: %s", self.number, reason)
        self.alarm = reason

    def _ship(self, ship: Ship) -> None:
        if isinstance(role := self._replica.role, Leader):
            place = self.number, role.generation, self._logs[ship.log], self._replica.logs[ship.log]

            def leads() -> bool:
                return self._replica.role is role and ship.log in self._logs

            shipping = Shipping(ship, *place, self._shared, leads=leads, damaged=self._found_damage)
            self._around.send(node_of(ship.member), shipping)

    def _begin_again(self, error: Exception) -> None:
        """Begin again from what the disk has, after an error in the middle of an action: what the protocol believes of
        the logs may be wrong. A generation that was led is not led on."""
        _LOGGER.error("shard %d: begins again: %s", self.number, error)
        old = self._replica
        self._around.lost(self.number)
        for log in self._logs.values():
            log.follow()
        if isinstance(old.role, Leader):  # at once: no other is elected before etcd knows it
            old.resign()
            for action in old.take_actions():
                if isinstance(action, Propose):
                    self._around.propose(self.number, action)
        self._cuts += 1
        try:
            states = {name: self._state(log) for name, log in self._logs.items()}
        except (TimestoneError, OSError) as failure:
            return self._around.failed(failure)
        fresh = Replica(self._member, old.run, self._min_isr, states)
        fresh.ended = old.generation
        self._replica = fresh
        self._deadlines = Deadlines(fresh, now_s() + _REOPEN_S)
        self._loop.call_later(_REOPEN_S, self._around.refresh)
        return None

"""A follower in one generation: makes its logs equal to the leader's, and promises what it has.

It cuts by generation and never by committed offset: what it knows to be committed lags behind what is (KIP-101). It
believes nothing about a log before the leader has compared it.

An observer is a follower without a place in the shard. It does the same, and promises nothing.
"""

from .actions import Action, Alarm, Append, Clear, Cut, Expire, Send, Show
from .frames import Committed, Diverged, Follow, Held, Records, Reset, Started
from .replica_log import ReplicaLog
from .shard_record import Unclean


class Follower:
    """Role of a replica in one generation."""

    def __init__(
        self, generation: int, leader: str, logs: dict[str, ReplicaLog], actions: list[Action]
    ) -> None:
        self.generation = generation
        self.leader = leader
        self.observes = False
        """Whether the record of the shard does not name this node: nothing may depend on what is here."""
        self.unclean: tuple[Unclean, ...] = ()
        """What was given up by command, as the record of the shard has it."""
        self.started: set[str] = set()
        """Logs whose records are known to be a beginning of the leader's."""
        self.lacking: set[str] = set()
        """Logs of which the leader lacks records that were shown: they are left alone in this generation."""
        self.logs = logs
        self.actions = actions

    def ask(self) -> None:
        """Ask the leader where to continue: at the beginning, on each new link, and for what was lost."""
        for name in self.logs:
            self.ask_for(name)

    def ask_for(self, name: str) -> None:
        """Ask about one log. Not after its leader has lacked records: what it appends may have their offsets, and after
        etcd was restored from the past even their generation."""
        self.started.discard(name)
        if name not in self.lacking:
            self._send(self.question(name))

    def log_removed(self, name: str) -> None:
        """Promise nothing of a log that is deleted."""
        self.started.discard(name)

    def question(self, name: str) -> Follow:
        """Return what there is to ask about a log as it is now."""
        log = self.logs[name]
        return Follow(self.generation, name, log.end, log.last_generation, log.names)

    def answered(self, frame: Started | Diverged | Reset) -> None:
        """Do what the leader answers. A late answer to an earlier question is about other records than are here now."""
        name = frame.question.log
        if name in self.started or name in self.lacking or frame.question != self.question(name):
            return
        match frame:
            case Started():
                self.started.add(name)
                self.hold(name)
            case Diverged():
                self._diverge(name, frame)
            case Reset():
                self._reset(name, frame.start)

    def _diverge(self, name: str, frame: Diverged) -> None:
        """Cut what the leader does not have, and ask again: to the end of the leader's generation, or of the own one
        where that is shorter (KIP-279)."""
        log = self.logs[name]
        own = log.end_of(frame.last_generation)
        offset, names = (own.end, own.names) if own.end < frame.end else (frame.end, frame.names)
        if offset < log.end and ((given_up := self._is_given_up(name, offset)) or self._keeps(name, offset)):
            log.cut(offset, names)
            self.actions.append(Cut(name, offset, names, given_up))
            self.ask_for(name)

    def _reset(self, name: str, start: int) -> None:
        """Begin again at the leader's first record, and ask again."""
        if self._keeps(name, start):
            self.logs[name].reset(start)
            self.actions.append(Clear(name, start))
            self.ask_for(name)

    def records(self, frame: Records) -> None:
        """Write what comes next. After a gap the leader is asked again; what is there already is left alone."""
        log = self.logs[frame.log]
        if frame.log not in self.started or frame.end <= log.end:
            return
        if frame.first != log.end or frame.names_first != log.names:
            return self.ask_for(frame.log)
        log.extend(frame.last_generation, frame.end, log.names + len(frame.names))
        self.actions.append(Append(frame))

    def commit(self, frame: Committed) -> None:
        """Show what is committed, as far as it is here, and release what the leader has deleted."""
        log = self.logs[frame.log]
        if frame.log not in self.started:
            return
        log.stable = max(log.stable, min(frame.stable, log.end))
        committed = min(frame.offset, log.end)
        if committed > log.committed:
            log.committed = committed
            self.actions.append(Show(frame.log, committed))
        if log.start < (start := min(frame.start, log.committed)):
            self.actions.append(Expire(frame.log, start))

    def hold(self, name: str) -> None:
        """Promise what is durable. Not while a record of it cannot be read."""
        log = self.logs[name]
        if name in self.started and not log.damaged and not self.observes:
            self._send(Held(self.generation, name, log.durable, min(log.clean, log.durable)))

    def beat(self) -> None:
        """Promise again what is durable, and ask again what was not answered: the follower's heartbeat."""
        for name in self.logs:
            if name in self.started:
                self.hold(name)
            else:
                self.ask_for(name)
        if self.observes and self.started:  # a sign of life, else the leader sends nothing more
            self._send(Held(self.generation, min(self.started), 0))

    def _is_given_up(self, name: str, offset: int) -> bool:
        """Return whether a cut removes shown records, all of which a command has given up, and whose offsets no other
        record gets."""
        log = self.logs[name]
        return log.start <= offset < log.committed and any(
            one.is_of(name)
            and one.generation > log.last_generation
            and one.offset <= offset
            and log.committed <= one.resumes
            for one in self.unclean
        )

    def _keeps(self, name: str, offset: int) -> bool:
        """Return whether a cut removes nothing that was shown. If it would, a promise was broken somewhere, or etcd was
        restored from the past: this replica does not follow such a leader, and may be elected if it is in sync."""
        log = self.logs[name]
        if offset >= log.committed:
            return True
        self.lacking.add(name)
        shown = f"records {offset} to {log.committed - 1}, which were shown"
        self.actions.append(Alarm(f"log {name}: the leader of generation {self.generation} lacks {shown}"))
        return False

    def _send(self, frame: Follow | Held) -> None:
        self.actions.append(Send(self.leader, frame))

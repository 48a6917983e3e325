"""`timestone serve` that kills itself by SIGKILL at a step of the protocol, once a file names it.

    python -m tests.cluster.dying_node FILE serve ...

The product has no hooks for this: its functions are wrapped here. `STEPS` has the names. The file is taken by the first
process that reaches the step, so several nodes may share one."""

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from timestone.commit.log_commit import LogCommit
from timestone.disk.files import Files
from timestone_cli.main import main
from timestone_cluster.actions import Action, Propose, Send
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.etcd.registry import Registration
from timestone_cluster.leader import Leader
from timestone_cluster.node import requests
from timestone_cluster.node.node import Node
from timestone_cluster.replica import Replica
from timestone_cluster.shard.shard import Shard
from timestone_cluster.shard.shipping import Shipping
from timestone_cluster.shard_record import ShardRecord
from timestone_cluster.transport.wire import Appended

APPEND_STEPS = (
    "before append is taken",
    "after append is taken",
    "before written is noted",
    "before leader ship",
    "before leader records",
    "after leader records",
    "before leader flush",
    "after leader flush",
    "before held counts",
    "after held counts",
    "before leader show",
    "after leader show",
    "before answer",
    "after answer",
    "before leader committed",
    "after leader committed",
    "before leader beat",
)
"""Of a leader with clients that append and followers that are in sync."""
FOLLOWER_STEPS = (
    "before follower append",
    "after follower append",
    "before follower flush",
    "after follower flush",
    "before follower held",
    "after follower held",
    "before follower show",
)
ELECTION_STEPS = (
    "before etcd stand",
    "after etcd stand",
    "before it leads",
    "after it leads",
    "before follow counts",
    "before leader started",
    "after leader started",
    "before leader serve",
    "after leader serve",
)
"""Of a replica that is elected because the leader has died."""
DIVERGENCE_STEPS = (
    "before leader diverged",
    "after leader diverged",
    "before follower cut",
    "after follower cut",
)
"""Of the next leader, or of the former one, which has records that no other has."""
MEMBER_STEPS = (
    "before etcd dismiss",
    "after etcd dismiss",
    "before etcd admit",
    "after etcd admit",
    "before etcd hand over",
    "after etcd hand over",
    "before leader stepdown",
    "after leader stepdown",
    "before etcd renew",
    "after etcd renew",
    "before it registers",
    "after it registers",
)
STEPS = APPEND_STEPS + FOLLOWER_STEPS + ELECTION_STEPS + DIVERGENCE_STEPS + MEMBER_STEPS


class DyingNode:
    """The wraps of one process, and the file that says when to die."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known, self._left = "", 0
        self._shards: list[Shard] = []
        self._proposed: ContextVar[str] = ContextVar("proposed", default="")

    @property
    def _role(self) -> str:
        return "leader" if any(isinstance(one.replica.role, Leader) for one in self._shards) else "follower"

    def at(self, step: str) -> None:
        """Die, if the file has this step, and this process reaches it for the wanted time."""
        assert step in STEPS, step
        try:
            wanted = self._file.read_text()
        except FileNotFoundError:
            return
        name, number, count = wanted.rsplit(":", 2)
        if name != step:
            return
        if self._known != wanted:
            self._known, self._left = wanted, int(count)
        self._left -= 1
        if self._left <= 0:
            try:
                self._file.rename(self._file.with_suffix(f".{number}"))
            except FileNotFoundError:
                return  # another process was faster
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, place: Any, name: str, *, before: str = "", after: str = "") -> None:
        """Have steps around a function."""
        function: Callable[..., Any] = getattr(place, name)

        @functools.wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            self._perhaps(before)
            found = function(*arguments, **named)
            self._perhaps(after)
            return found

        setattr(place, name, wrapped)

    def _perhaps(self, step: str) -> None:
        step = step.replace("ROLE", self._role)
        if step in STEPS:
            self.at(step)

    def wrap(self) -> None:
        """Wrap all functions that are steps."""
        self.around(
            requests.Requests, "_append", before="before append is taken", after="after append is taken"
        )
        self.around(Shard, "_logs_changed", before="before written is noted")
        self.around(Shipping, "_message", before="before leader records")
        self.around(Leader, "held", before="before held counts", after="after held counts")
        self.around(Leader, "follow", before="before follow counts")
        self.around(Replica, "_leader", before="before it leads")
        self.around(Node, "_beat", before="before ROLE beat")
        for flush in ("fdatasync", "fdatasync_both"):
            self.around(Files, flush, before="before ROLE flush", after="after ROLE flush")
        self.around(Files, "begin_flush", before="before ROLE flush")
        self.around(LogCommit, "end_flush", after="after ROLE flush")
        self._wrap_answers()
        self._wrap_shards()
        self._wrap_etcd()

    def _wrap_answers(self) -> None:
        function = requests._answer

        def answer(writer: asyncio.StreamWriter, answer: Any) -> None:
            is_append = isinstance(answer, Appended)
            self._perhaps("before answer" if is_append else "")
            function(writer, answer)
            self._perhaps("after answer" if is_append else "")

        setattr(requests, "_answer", answer)  # noqa: B010

    def _wrap_shards(self) -> None:
        made, do, seen = Shard.__init__, Shard._do, Shard.record_seen
        send = Node.send

        def make(shard: Shard, *arguments: Any) -> None:
            made(shard, *arguments)
            self._shards.append(shard)

        def done(shard: Shard, action: Action) -> None:
            role = "leader" if isinstance(shard.replica.role, Leader) else "follower"
            what = type(action.frame if isinstance(action, Send) else action).__name__.lower()
            if what == "stepdown":
                role = "leader"
            self._perhaps(f"before {role} {what}")
            do(shard, action)
            self._perhaps(f"after {role} {what}")

        def see(shard: Shard, record: ShardRecord, revision: int) -> None:
            led = isinstance(shard.replica.role, Leader)
            seen(shard, record, revision)
            if isinstance(shard.replica.role, Leader) and not led:
                self._perhaps("after it leads")

        def sent(node: Node, other: str, item: Any) -> None:
            send(node, other, item)
            self._perhaps("after leader records" if isinstance(item, Shipping) else "")

        wraps: dict[tuple[type, str], Callable[..., Any]] = {
            (Shard, "__init__"): make,
            (Shard, "_do"): done,
            (Shard, "record_seen"): see,
            (Node, "send"): sent,
        }
        for (place, name), function in wraps.items():
            setattr(place, name, function)

    def _wrap_etcd(self) -> None:
        proposed, put, register = Node._proposed, EtcdClient.put, Registration._register

        async def propose(node: Node, number: int, proposal: Propose) -> None:
            replica = node.shards[number].replica
            if replica.record is not None:
                self._proposed.set(f"etcd {_kind(replica.member, replica.record, proposal.record)}")
            await proposed(node, number, proposal)

        async def put_there(etcd: EtcdClient, *arguments: Any, **named: Any) -> Any:
            kind = self._proposed.get()
            if kind == "it registers" and not named.get("lease"):
                kind = ""
            self._perhaps(f"before {kind}")
            found = await put(etcd, *arguments, **named)
            self._perhaps(f"after {kind}" if found.is_done else "")
            return found

        async def registered(registration: Registration) -> None:
            self._proposed.set("it registers")
            await register(registration)
            self._proposed.set("")

        wraps: dict[tuple[type, str], Callable[..., Any]] = {
            (Node, "_proposed"): propose,
            (EtcdClient, "put"): put_there,
            (Registration, "_register"): registered,
        }
        for (place, name), function in wraps.items():
            setattr(place, name, function)


def _kind(member: str, before: ShardRecord, after: ShardRecord) -> str:
    """Return what a proposal of a member is for."""
    if after.leader is None:
        return "resign"
    if after.generation > before.generation:
        return "hand over" if before.leader == member else "stand"
    if after.run != before.run:
        return "renew"
    return "dismiss" if len(after.isr) < len(before.isr) else "admit"


if __name__ == "__main__":
    path, *words = sys.argv[1:]
    sys.argv[1:] = words
    DyingNode(Path(path)).wrap()
    raise SystemExit(main())

"""Machines on one network: a network namespace each, joined by a bridge in a namespace of the test, where its clients
are as well. A link is cut without a word, as by a loose cable: the sender has a wrong hardware address for the
receiver. A blackhole route would answer the sender with an error at once."""

import ctypes
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

HUB = "10.77.0.254"
"""Address of the clients."""
_NOBODY = "02:00:00:00:00:ff"
_CLONE_NEWNET = 0x40000000


class Machine(NamedTuple):
    """A network namespace with one address."""

    name: str
    namespace: str
    number: int

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def hardware(self) -> str:
        return f"02:00:00:00:00:{self.number:02x}"

    @property
    def prefix(self) -> list[str]:
        """Words in front of a command that shall run on it: the process is the command's own."""
        return ["ip", "netns", "exec", self.namespace]


class Network:
    """Machines by their names, and which of them reach which."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = {one.name: one for one in machines}
        self._cuts: set[tuple[str, str]] = set()

    def cut(self, senders: Iterable[str], receivers: Iterable[str], *, both: bool = True) -> None:
        """Lose what machines send to others, and the other way too with `both`."""
        pairs = {(one, other) for one in senders for other in receivers if one != other}
        self._apply(self._cuts | pairs | ({(other, one) for one, other in pairs} if both else set()))

    def reach(self, one: str, other: str) -> bool:
        """Return whether two machines can talk: a connection needs both ways."""
        return not {(one, other), (other, one)} & self._cuts

    def heal(self) -> None:
        """Have all machines reach all again."""
        self._apply(set())

    def _apply(self, cuts: set[tuple[str, str]]) -> None:
        lines: dict[str, list[str]] = {}
        for pair in cuts ^ self._cuts:
            sender, receiver = (self.machines[name] for name in pair)
            hardware = _NOBODY if pair in cuts else receiver.hardware
            lines.setdefault(sender.namespace, []).append(_neighbour(receiver.address, hardware))
        for namespace, each in lines.items():
            _ip(namespace, each)
        self._cuts = cuts


def _neighbour(address: str, hardware: str) -> str:
    return f"neigh replace {address} lladdr {hardware} dev eth0 nud permanent"


def _ip(namespace: str, lines: Sequence[str]) -> None:
    """Run commands of `ip` in a namespace."""
    command = ["ip", "-n", namespace, "-batch", "-"]
    done = subprocess.run(
        command, input="\n".join(lines), text=True, capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 0, f"{lines}: {done.stderr}"


@contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    """Make machines for a while, and have the calling thread, with all that it starts, in the namespace of the bridge.
    Skips the test where that is not allowed."""
    hub = f"ts{os.getpid()}-hub"
    machines = [Machine(name, f"ts{os.getpid()}-{name}", number) for number, name in enumerate(names, 1)]
    made = []
    try:
        try:
            for namespace in (hub, *(one.namespace for one in machines)):
                subprocess.run(["ip", "netns", "add", namespace], check=True, capture_output=True, timeout=30)
                made.append(namespace)
            _ip(
                hub,
                [
                    "link add br0 type bridge",
                    f"addr add {HUB}/24 dev br0",
                    "link set br0 up",
                    "link set lo up",
                ],
            )
        except (OSError, subprocess.CalledProcessError, AssertionError) as error:
            pytest.skip(f"no network namespaces here: {error}")
        for one in machines:
            port = f"port{one.number}"
            _ip(hub, [f"link add {port} type veth peer name eth0 netns {one.namespace}"])
            _ip(hub, [f"link set {port} master br0", f"link set {port} up"])
            others = [_neighbour(other.address, other.hardware) for other in machines if other is not one]
            _ip(
                one.namespace,
                [
                    f"link set eth0 address {one.hardware}",
                    f"addr add {one.address}/24 dev eth0",
                    "link set eth0 up",
                    "link set lo up",
                    *others,
                ],
            )
        with _inside(hub):
            yield Network(machines)
    finally:
        for namespace in made:
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True, timeout=30)


@contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """Have the calling thread in a namespace for a while. (`os.setns` is of Python 3.12.)"""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(file: int) -> None:
        if libc.setns(file, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")

    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(Path("/run/netns") / namespace, os.O_RDONLY)
    try:
        enter(there)
        yield
    finally:
        enter(before)
        os.close(before)
        os.close(there)

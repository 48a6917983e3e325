"""Nodes of a cluster as processes, on loopback, and what their files hold: read without the code under test."""

import os
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cluster.etcd_server import EtcdServer
from tests.support.warm_command import WarmProcess, started
from timestone_cli.control.caller import Caller

NAME = "plant"


class NodeProcess:
    """`timestone serve --cluster`, which may be killed and started again."""

    def __init__(
        self,
        etcd: EtcdServer | str,
        folder: Path,
        name: str,
        *options: str,
        prefix: Sequence[str] = (),
        program: Sequence[str] = ("timestone_cli",),
    ) -> None:
        """etcd: one, or the endpoints of several. prefix: words in front of the command, which is then run by an
        interpreter of its own, not by a fork of a warm one. program: module, and its own arguments, that is run as the
        command `timestone`."""
        endpoints = etcd if isinstance(etcd, str) else etcd.endpoint
        self.folder, self.name = folder, name
        self._prefix = prefix
        self._words = [
            *program, "serve", "--data", str(folder), "--cluster-name", name,
            "--cluster", f"etcd://{endpoints}/{NAME}",
            "--metrics-interval-ms", "0", "--console-listen", "none", *options,
        ]  # fmt: skip
        self._log = folder.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | WarmProcess | None = None

    def start(self) -> None:
        """Start, if it does not run."""
        if self.process is None:
            with self._log.open("ab") as output:
                if self._prefix:
                    command = [*self._prefix, sys.executable, "-m", *self._words]
                    self.process = subprocess.Popen(command, stdout=output, stderr=output)
                else:
                    self.process = started(self._words, [0, output.fileno(), output.fileno()])

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self, limit_s: float = 30.0) -> None:
        """Stop it in order, and require that it ends well."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(limit_s) == 0, self.output()
        self.process = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.process is not None:
            self.process.send_signal(number)

    def scrub(self) -> None:
        """Have it verify its files."""
        with Caller(self.folder) as caller:
            caller.call("scrub")

    def output(self) -> str:
        """Return what it has printed."""
        return self._log.read_text()

    def memory_mib(self) -> int:
        """Return its own resident memory, MiB: without mapped files, which grow with the logs."""
        assert self.process is not None
        resident, mapped = map(int, Path(f"/proc/{self.process.pid}/statm").read_text().split()[1:3])
        return (resident - mapped) * os.sysconf("SC_PAGE_SIZE") >> 20

    def open_files(self) -> int:
        """Return how many files and sockets it has open."""
        assert self.process is not None
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def node_id(self) -> str:
        """Return the id in its folder; empty before it has one."""
        path = self.folder / "NODE"
        return path.read_text().split('"')[3] if path.exists() else ""


@contextmanager
def running(nodes: Sequence[NodeProcess]) -> Iterator[None]:
    """Run nodes for a while, and print the end of their output if the block fails."""
    try:
        for node in nodes:
            node.start()
        yield
    except BaseException:
        for node in nodes:
            print(f"--- {node.name}\n{node.output()[-4000:]}")
        raise
    finally:
        for node in nodes:
            node.signal(signal.SIGCONT)
            node.kill()


def made_with(boots: Mapping[str, Path]) -> Callable[[EtcdServer | str, Path, str], NodeProcess]:
    """Return what makes nodes for which files have the boot ids of their machines, by the name of the node. Needs
    root."""
    mounted = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'

    def made(etcd: EtcdServer | str, folder: Path, name: str) -> NodeProcess:
        prefix = "unshare", "--mount", "sh", "-c", mounted, str(boots[name])
        return NodeProcess(etcd, folder, name, prefix=prefix)

    return made


def boot(path: Path) -> None:
    """Have a machine of `made_with` be another boot for the processes that start next."""
    path.write_text(f"{uuid.uuid4()}\n")


class HeldRecord(NamedTuple):
    """A record in the files of a node."""

    payload: bytes
    timestamp_us: int
    topic: int


_ENTRY = struct.Struct("<IIqIHHII")


def held(folder: Path) -> list[HeldRecord]:
    """Return the records of a log whose first offset is 0."""
    return list(held_by_offset(folder).values())


def held_by_offset(folder: Path) -> dict[int, HeldRecord]:
    """Return the records of a log: the files as docs/formats describe them, checksums left aside. Behind the entries
    of a segment that is just being sealed there is a part of its trailer: it ends where the next one begins."""
    found: dict[int, HeldRecord] = {}
    paths = sorted(folder.glob("*.index"))
    first = int(paths[0].stem) if paths else 0
    nexts = [*(int(path.stem) for path in paths[1:]), None]
    for path, following in zip(paths, nexts, strict=True):
        base, index = int(path.stem), path.read_bytes()
        data = _segment_of(path).read_bytes()
        end = first + len(found)
        assert base == end, f"{path} begins at {base}, the one before it ends at {end}"
        count = (len(index) - 4096) // 32
        if index[-128:-120] == b"TSTSEALD":
            (count,) = struct.unpack_from("<Q", index, len(index) - 128 + 32)
        elif following is not None:
            count = min(count, following - base)
        for ordinal in range(count):
            position, length, time_us, topic, *_ = _ENTRY.unpack_from(index, 4096 + 32 * ordinal)
            if time_us == 0:
                break
            found[base + ordinal] = HeldRecord(data[position : position + length], time_us, topic)
    return found


def _segment_of(index: Path) -> Path:
    """Return the segment file of the newest generation."""
    found = index.parent.glob(f"{index.stem}.*segment")
    return max(found, key=lambda path: [int(part) for part in path.name.split(".")[1:-1]])


def wait_until_exits(node: NodeProcess, limit_s: float = 30) -> int:
    """Return the exit code of a node that ends by itself."""
    assert node.process is not None
    ends_s = time.monotonic() + limit_s
    while node.process.poll() is None and time.monotonic() < ends_s:
        time.sleep(0.05)
    code = node.process.poll()
    assert code is not None
    node.process = None
    return code

"""The long proofs of a cluster, one process after another, and a summary however each of them ends.

python -m tests.cluster.soak [states|mutants|simulation|nodes|mqtt|mqtt-shards|mqtt-shares …], or `make soak-cluster`
"""

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import NamedTuple

PARTS = {
    "nodes": [
        "tests/cluster/node/test_node.py",
        "tests/cluster/transport/test_links.py",
        "tests/cluster/etcd",
    ],
    "faults": [
        "tests/cluster/node/test_steps.py",
        "tests/cluster/node/test_etcd_faults.py",
        "tests/cluster/node/test_clocks.py",
        "tests/cluster/node/test_cut_links.py",
        "tests/cluster/node/test_damage.py",
        "tests/cluster/node/test_tier.py",
    ],
    "mqtt": ["tests/cluster/node/test_mqtt.py"],
    "mqtt-shards": ["tests/cluster/node/test_mqtt_shards.py", "tests/cluster/node/test_observers.py"],
    "mqtt-shares": ["tests/cluster/node/test_mqtt_shares.py"],
    "sessions": ["tests/cluster/node/test_sessions.py"],
    "mix": ["tests/cluster/node/test_mix.py"],
    "mutants": ["tests/cluster/test_mutants.py"],
    "partitions": ["tests/cluster/node/test_partitions.py"],
    "simulation": ["tests/cluster/test_simulation.py"],
    "states": ["tests/cluster/test_small_model.py"],
}
LONG = {
    "TIMESTONE_CLUSTER_STATES": "2000000",
    "TIMESTONE_CLUSTER_WALKS": "20000",
    "TIMESTONE_CLUSTER_SEEDS": "1000",
    "TIMESTONE_CLUSTER_SECONDS": "3600",
    "TIMESTONE_CLUSTER_CLIENTS": "1000",
    "TIMESTONE_CLUSTER_DEVICES": "200",
    "TIMESTONE_CLUSTER_RECORDS": "1000000",
    "TIMESTONE_CLUSTER_ROUNDS": "20",
    "TIMESTONE_SEED": "random",
}


INTERRUPT_EVERY_S = 10.0
"""Long enough for a part to end the nodes that it has started."""


class Ended(NamedTuple):
    """How a part has ended."""

    name: str
    code: int
    seconds: float
    last: str
    """Its last line about its progress."""
    is_asked: bool = False
    """Whether a signal to this process has ended it."""

    def __str__(self) -> str:
        how = "passed" if self.code == 0 else f"failed with {self.code}"
        if self.code < 0:
            how = f"ended by {signal.Signals(-self.code).name}"
        return f"{self.name}: {how} after {self.seconds:.0f} s: {self.last}"


class Asked(Exception):
    """A signal asks for the end."""


def main(names: list[str]) -> int:
    """Run parts, and print a summary in any case."""
    if not set(names) <= set(PARTS):
        print(f"invalid parts {names}: expected some of {', '.join(PARTS)}", file=sys.stderr)
        return 64
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)
    ended: list[Ended] = []
    left = names or list(PARTS)
    try:
        while left and not (ended and ended[-1].is_asked):
            ended.append(_run(left.pop(0)))
    finally:
        print("\n--- summary", flush=True)
        for one in ended:
            print(one)
        for name in left:
            print(f"{name}: not run")
        most_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        print(f"most memory of a process: {most_mib} MiB", flush=True)
    return 0 if not any(one.code for one in ended) else 1


def _run(name: str) -> Ended:
    """Run one part, and pass on what it prints. Its process is ended with this one."""
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "--timeout=0", "-m", "slow"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env = {**LONG, **own, "PYTHONUNBUFFERED": "1"}
    began_s, last = time.monotonic(), ""
    part = subprocess.Popen(
        [*command, *PARTS[name]],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert part.stdout is not None
    is_asked = False
    try:
        for line in part.stdout:
            if ": {" in line or "acknowledged" in line or "states" in line or " passed" in line:
                last = line.strip()
            print(line, end="", flush=True)
    except Asked as asked:
        _interrupt(part)  # so that it ends its own processes
        is_asked, last = True, f"{asked}; {last}"
        for line in part.stdout:
            print(line, end="", flush=True)
    code = part.wait()
    signal.setitimer(signal.ITIMER_REAL, 0)
    with suppress(ProcessLookupError):
        os.killpg(part.pid, signal.SIGKILL)  # what it has left running, if it was killed
    return Ended(name, code, time.monotonic() - began_s, last, is_asked)


def _interrupt(part: subprocess.Popen[str]) -> None:
    """Interrupt the part, and again while it runs: in a callback of SQLite an interrupt is lost, and in
    `shutil.rmtree` it may become another error, after which the part would begin its next test."""
    signal.signal(signal.SIGALRM, lambda number, frame: part.send_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.001, INTERRUPT_EVERY_S)


def _end(number: int, frame: FrameType | None) -> None:
    raise Asked(f"ended by {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A process of the load generator: it reads one job, connects all clients, runs at the start time, and reports.

The protocol on standard input and output is one line each: in a job, out `ready`, in the start time, out the report; or
out an error at any time. `worker_pool` is on the other side.
"""

import gc
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from .abusive_clients import AbusiveClients, AbusiveJob
from .connecting import Connecting, ConnectJob
from .job import Job
from .ping_pong import PingPong, PingPongJob
from .traffic import Traffic


def main() -> int:
    """Execute one job from standard input."""
    # To save power the system may sleep 50 us longer than requested: as long as some latencies that are measured here.
    with suppress(OSError):  # not on every system, and not where /proc is read-only
        Path("/proc/self/timerslack_ns").write_text("1")
    try:
        document = json.loads(sys.stdin.readline())
        {
            "connect": _run_connecting,
            "disturb": _run_disturbing,
            "ping-pong": _run_ping_pong,
            "traffic": _run_traffic,
        }[document.pop("kind")](document)
    except (ConnectionError, TimeoutError) as error:
        _say({"error": str(error)})
        return 1
    return 0


def _run_traffic(document: dict[str, Any]) -> None:
    traffic = Traffic(Job.from_json(document))
    gc.collect()
    gc.disable()  # a run is short, and a collection during it would be counted as the server's time
    _say({"ready": True})
    report = traffic.run(int(sys.stdin.readline()))
    _say(report.to_json())
    sys.stdin.readline()  # connections stay until all clients have reported
    traffic.close()


def _run_connecting(document: dict[str, Any]) -> None:
    connecting = Connecting(ConnectJob(**document))
    _say({"ready": True})
    report = connecting.run(int(sys.stdin.readline()))
    _say(report)
    # Connected and idle; then woken, if requested.
    while line := sys.stdin.readline().strip():
        _say(connecting.wake(int(line)))
    connecting.close()


def _run_disturbing(document: dict[str, Any]) -> None:
    abusive = AbusiveClients(AbusiveJob(**document))
    _say({"ready": True})
    _say(abusive.run(int(sys.stdin.readline())))
    abusive.close()


def _run_ping_pong(document: dict[str, Any]) -> None:
    ping_pong = PingPong(PingPongJob(**document))
    _say({"ready": True})
    _say(ping_pong.run(int(sys.stdin.readline())))
    ping_pong.close()


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

"""A process of the load: reads one job, says that everybody is connected, runs when it is told, and reports.

Spoken on standard input and output, a line each: in a job, out `ready`, in the time to begin at, out the report; or out
an error at any time. `crew` is on the other side.
"""

import gc
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from .connecting import Connecting, ConnectJob
from .disturbing import Disturbing, DisturbJob
from .job import Job
from .traffic import Traffic


def main() -> int:
    """One job from standard input."""
    # To save power the system may sleep 50 us longer than asked for: as long as some latencies that are measured here.
    with suppress(OSError):  # not on every system, and not where /proc is read-only
        Path("/proc/self/timerslack_ns").write_text("1")
    try:
        document = json.loads(sys.stdin.readline())
        {"connect": _run_connecting, "disturb": _run_disturbing, "traffic": _run_traffic}[
            document.pop("kind")
        ](document)
    except (ConnectionError, TimeoutError) as error:
        _say({"error": str(error)})
        return 1
    return 0


def _run_traffic(document: dict[str, Any]) -> None:
    traffic = Traffic(Job.from_json(document))
    gc.collect()
    gc.disable()  # a run is short, and a collection in the middle of it would be counted as the server's
    _say({"ready": True})
    report = traffic.run(int(sys.stdin.readline()))
    _say(report.to_json())
    sys.stdin.readline()  # connections stay until everybody has reported
    traffic.close()


def _run_connecting(document: dict[str, Any]) -> None:
    connecting = Connecting(ConnectJob(**document))
    _say({"ready": True})
    report = connecting.run(int(sys.stdin.readline()))
    _say(report)
    # Connected and idle; then woken, if that is asked for.
    while line := sys.stdin.readline().strip():
        _say(connecting.wake(int(line)))
    connecting.close()


def _run_disturbing(document: dict[str, Any]) -> None:
    disturbing = Disturbing(DisturbJob(**document))
    _say({"ready": True})
    _say(disturbing.run(int(sys.stdin.readline())))
    disturbing.close()


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

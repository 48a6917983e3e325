"""The heap of a Java process, measured from outside as `jcmd` does; the Java of a wheel has no `jcmd`."""

import os
import re
import signal
import socket
import time
from pathlib import Path

_TOTAL = re.compile(rb"^Total +\d+ +(\d+)", re.MULTILINE)


def live_bytes(pid: int, timeout_s: float = 300) -> int:
    """Return the live bytes of its heap after a full collection."""
    with _attached(pid, timeout_s) as java:
        # Version, command, and three arguments of it, each followed by a NUL. It collects before it counts.
        java.sendall(b"1\0jcmd\0GC.class_histogram\0\0\0")
        answer = b"".join(iter(lambda: java.recv(1 << 16), b""))
    total = _TOTAL.search(answer)
    assert total is not None, answer[-1000:]
    return int(total[1])


def _attached(pid: int, timeout_s: float) -> socket.socket:
    address = f"/tmp/.java_pid{pid}"
    if not Path(address).exists():
        # With this file, the signal makes it listen instead of printing its threads.
        wish = Path(f"/proc/{pid}/cwd/.attach_pid{pid}")
        wish.touch()
        try:
            os.kill(pid, signal.SIGQUIT)
            deadline = time.monotonic() + timeout_s
            while not Path(address).exists():
                assert time.monotonic() < deadline, f"Java {pid} does not listen"
                time.sleep(0.02)
        finally:
            wish.unlink()
    java = socket.socket(socket.AF_UNIX)
    java.settimeout(timeout_s)
    java.connect(address)
    return java

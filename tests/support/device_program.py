"""Devices as a separate program, so that their memory does not count for the test or the server.

    python -m tests.support.device_program HOST PORT COUNT STEP_S PAUSE_S OUT

Publishes until its standard input ends, waits for the last acknowledgement, and writes the published messages to OUT,
one a line.
"""

import sys
from pathlib import Path

from tests.support.stubborn_device import StubbornDevice


def main(address: tuple[str, int], count: int, step_s: float, pause_s: float, out: Path) -> None:
    devices = [
        StubbornDevice(f"d{number}", address, step_s=step_s, pause_s=pause_s) for number in range(count)
    ]
    for device in devices:
        device.start()
    sys.stdin.read()
    for device in devices:
        device.finish()
    out.write_bytes(b"".join(payload + b"\n" for device in devices for payload in device.published))


if __name__ == "__main__":
    host, port, number, step, pause, file = sys.argv[1:]
    main((host, int(port)), int(number), float(step), float(pause), Path(file))

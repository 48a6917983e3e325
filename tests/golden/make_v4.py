"""Write the golden store with checksums in its catalogue: `python -m tests.golden.make_v4 FOLDER`.

Use it only to find the difference when a test here fails. The stored files are never replaced: a changed byte is a new
format version with a separate golden store.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import timestone
from tests.golden.making import wait_until_sealed, write_expected
from tests.support.step_clock import StepClock
from timestone import LogConfig, Pin, ReaderId


def make(folder: Path) -> None:
    """Make a sealed segment and one that was never closed, two named readers, one of them with a pin, and documents."""
    with tempfile.TemporaryDirectory() as scratch:
        live = Path(scratch) / "store"
        config = timestone.StoreConfig(min_free_bytes=0, log=LogConfig(segment_entries=4))
        with timestone.open(live, config=config, clock=StepClock()) as store:
            log = store.log("telemetry")
            for offset in range(6):
                log.append(b'{"celsius": %d.5}' % offset, topic=f"devices/{offset % 2}/state")
            wait_until_sealed(log, 1)
            store.commit_readers({ReaderId("telemetry", 0, "billing"): 3})
            pin = Pin(max_age_ms=1000, max_bytes=2000)
            store.commit_readers({ReaderId("telemetry", 0, "gerät/ß"): 5}, pin=pin)
            store.documents.put_many("space", {"key": b"\0\xff", "\0": b""})
            # Copied while it is open: the state after a kill -9.
            shutil.copytree(live / "telemetry-0", folder / "telemetry-0")
        shutil.copy(live / "catalog.db", folder / "catalog.db")
        write_expected(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))

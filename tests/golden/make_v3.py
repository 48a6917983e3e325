"""Write the golden store of a compacted log: `python -m tests.golden.make_v3 FOLDER`.

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
from timestone import LogConfig


def make(folder: Path) -> None:
    """Make a segment that lost all its records, one that lost some and was compressed then, one that lost some, and one
    that was never closed."""
    with tempfile.TemporaryDirectory() as scratch:
        live = Path(scratch) / "store"
        log_config = LogConfig(segment_entries=4, compact=True, tombstone_ms=0)
        config = timestone.StoreConfig(min_free_bytes=0, delete_delay_ms=0, log=log_config)
        with timestone.open(live, config=config, clock=StepClock()) as store:
            store.maintenance.stop()
            log = store.log("telemetry")
            for offset in range(14):
                topic = f"devices/{offset % 3}/state" if offset != 5 else "devices/5/state"
                log.append(b'{"celsius": %d.5}' % offset * 9, topic=topic if offset != 9 else None)
                if offset % 4 == 3:
                    log.roll()
                    wait_until_sealed(log, offset // 4 + 1)
            log.apply_compaction()
            log.configure(compression="zstd")
            log.apply_compression()
            log.configure(compression="none")
            store.deleted_files.unlink_all()
            # Copied while it is open: the state after a kill -9.
            shutil.copytree(live / "telemetry-0", folder / "telemetry-0")
        shutil.copy(live / "catalog.db", folder / "catalog.db")
        write_expected(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))

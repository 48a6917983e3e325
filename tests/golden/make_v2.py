"""Write the golden store with compressed segments: `python -m tests.golden.make_v2 FOLDER`.

Use it only to find the difference when a test here fails. The stored files are never replaced: a changed byte is a new
format version with a separate golden store. (The compressed bytes also depend on the version of zstandard.)
"""

import shutil
import sys
import tempfile
from pathlib import Path

import timestone
from tests.golden.making import wait_until_sealed, write_expected
from tests.support.step_clock import StepClock
from timestone import LogConfig
from timestone.compressed.dictionaries import write_dictionary
from timestone.compressed.zstd import train


def make(folder: Path) -> None:
    """Make a segment compressed without a dictionary, one with, one left raw and one that was never closed."""
    with tempfile.TemporaryDirectory() as scratch:
        live = Path(scratch) / "store"
        config = timestone.StoreConfig(min_free_bytes=0, delete_delay_ms=0, log=LogConfig(segment_entries=4))
        with timestone.open(live, config=config, clock=StepClock()) as store:
            store.maintenance.stop()
            log = store.log("telemetry")
            for offset in range(14):
                text = b'{"device":"sensor-%d","temperature":%d.5,"state":"running"}' % (offset % 3, offset)
                log.append(text * (1 + offset % 3), topic=f"devices/{offset % 2}/state")
                if offset % 4 == 3:
                    log.roll()
                    wait_until_sealed(log, offset // 4 + 1)
                if offset == 3:
                    log.configure(compression="zstd")
                    log.apply_compression()
                if offset == 7:
                    samples = [
                        b'{"device":"sensor-%d","temperature":%d.5,"state":"running"}' % (n, n)
                        for n in range(999)
                    ]
                    trained = train(samples, 1024, 1)
                    assert trained is not None
                    write_dictionary(store.files, log.folder, log.id, 1, trained)
                    log.configure(compression_dictionary=True)
                    log.apply_compression()
                    log.configure(compression="none")
            store.deleted_files.unlink_all()
            # Copied while it is open: the state after a kill -9.
            shutil.copytree(live / "telemetry-0", folder / "telemetry-0")
        shutil.copy(live / "catalog.db", folder / "catalog.db")
        write_expected(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))

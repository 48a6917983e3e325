"""Memory that was freed is used again, without asking the system for fresh pages."""

import subprocess
import sys

import pytest

_COUNT_FAULTS = """
import resource
from timestone.kernel.allocator_tuning import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        batches = [bytes([1]) * (1 << 20) for _ in range(20)]
        del batches
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(keep_freed_memory(256 << 20))
faults()
print(faults())
"""
_PAGES = 3 * 20 * (1 << 20) // 4096


def test_batches_that_come_and_go_touch_no_fresh_pages() -> None:
    said = subprocess.run([sys.executable, "-c", _COUNT_FAULTS], capture_output=True, text=True, check=True)
    told, fault_count = said.stdout.split()
    if told == "False":
        pytest.skip("this C library cannot be told")
    assert int(fault_count) < _PAGES // 20

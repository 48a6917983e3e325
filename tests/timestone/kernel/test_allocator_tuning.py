"""Freed memory is reused without fresh pages from the system."""

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


def test_freed_batches_cause_no_page_faults_for_new_ones() -> None:
    said = subprocess.run([sys.executable, "-c", _COUNT_FAULTS], capture_output=True, text=True, check=True)
    told, fault_count = said.stdout.split()
    if told == "False":
        pytest.skip("this C library has no mallopt")
    assert int(fault_count) < _PAGES // 20

"""Freed memory is reused without fresh pages from the system, or given back to it."""

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


_MEASURE_MEMORY = """
import sys
from timestone.kernel.allocator_tuning import return_freed_memory

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) / 256

told = sys.argv[1] == "tuned" and return_freed_memory(1 << 20, 2)
large = bytes([1]) * (24 << 20)
del large  # the default limit grows to its size
before = resident_mib()
blocks, between = [], []
for _ in range(20):
    blocks.append(bytes([1]) * (8 << 20))
    between.append(bytes([1]) * 4096)
del blocks
print(told, resident_mib() - before)
"""


def test_freed_blocks_go_back_to_the_system_though_smaller_ones_stay() -> None:
    def run(word: str) -> tuple[str, float]:
        command = [sys.executable, "-c", _MEASURE_MEMORY, word]
        told, kept = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return told, float(kept)

    told, kept = run("tuned")
    if told == "False":
        pytest.skip("this C library has no mallopt")
    assert kept < 8
    assert run("default")[1] > kept

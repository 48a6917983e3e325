"""What Spark's garbage collections pass over, in processes of their own: it cannot be undone."""

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys
from importlib.machinery import ModuleSpec
from pyspark_timestone.jvm.worker_heap import freeze_worker_heap
sys.modules["__main__"].__spec__ = {spec}
freeze_worker_heap()
frozen = gc.get_freeze_count()
later = [[] for _ in range(1000)]
freeze_worker_heap()
after_objects = gc.get_freeze_count()
import {module}
freeze_worker_heap()
print(frozen > 0, after_objects > frozen, gc.get_freeze_count() > after_objects)
"""

SCHEMA = """
import gc, sys
from importlib.machinery import ModuleSpec
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark_timestone import DefaultSource
sys.modules["__main__"].__spec__ = {spec}
DefaultSource(CaseInsensitiveDict({{"path": "data"}})).schema()
import pyspark_timestone.options.read_options
print(any(thing is vars(pyspark_timestone.options.read_options) for thing in gc.get_objects()))
"""

ROUNDS, BLOCKS, BLOCK_BYTES = 3, 20, 1 << 20
PAGES = ROUNDS * BLOCKS * BLOCK_BYTES // 4096

FAULTS = f"""
import resource, sys
from importlib.machinery import ModuleSpec
from pyspark_timestone.jvm.worker_heap import keep_worker_heap
sys.modules["__main__"].__spec__ = {{spec}}
keep_worker_heap()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({ROUNDS}):
        batch = [bytes([1]) * {BLOCK_BYTES} for _ in range({BLOCKS})]
        del batch
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def printed_by(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def frozen_in(spec: str) -> str:
    return printed_by(PROGRAM.format(spec=spec, module="wave"))


def page_faults_in(spec: str) -> str:
    return printed_by(FAULTS.format(spec=spec))


def test_a_worker_of_spark_freezes_what_it_has_imported_and_again_when_more_has_come() -> None:
    for daemon in ("pyspark.daemon", "pyspark_timestone.daemon"):
        assert frozen_in(f"ModuleSpec({daemon!r}, None)") == "True False True\n"


@pytest.mark.slow
def test_the_process_that_asks_for_the_schema_collects_nothing_of_what_the_options_have_imported() -> None:
    assert printed_by(SCHEMA.format(spec="ModuleSpec('pyspark.daemon', None)")) == "False\n"
    assert printed_by(SCHEMA.format(spec="None")) == "True\n"


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt")
def test_a_worker_of_spark_makes_a_batch_out_of_the_memory_of_the_one_before() -> None:
    faults = [int(page_faults_in(spec)) for spec in ("ModuleSpec('pyspark.daemon', None)", "None")]
    assert faults[0] < PAGES // 20 < PAGES // 2 < faults[1]


def test_any_other_process_is_left_as_it_is() -> None:
    assert frozen_in("None") == "False False False\n"
    assert frozen_in("ModuleSpec('pytest', None)") == "False False False\n"

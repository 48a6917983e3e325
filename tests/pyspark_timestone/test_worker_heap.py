"""What Spark's garbage collections pass over, in processes of their own: it cannot be undone."""

import subprocess
import sys

PROGRAM = """
import gc, sys
from importlib.machinery import ModuleSpec
from pyspark_timestone.worker_heap import freeze_worker_heap
sys.modules["__main__"].__spec__ = {spec}
freeze_worker_heap()
frozen = gc.get_freeze_count()
later = [[] for _ in range(1000)]
freeze_worker_heap()
print(frozen > 0, gc.get_freeze_count() > frozen)
"""


def frozen_in(spec: str) -> str:
    program = PROGRAM.format(spec=spec)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_a_worker_of_spark_freezes_what_it_has_imported_once() -> None:
    assert frozen_in("ModuleSpec('pyspark.daemon', None)") == "True False\n"


def test_any_other_process_is_left_as_it_is() -> None:
    assert frozen_in("None") == "False False\n"
    assert frozen_in("ModuleSpec('pytest', None)") == "False False\n"

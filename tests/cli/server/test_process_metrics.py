"""Metrics of this process, against the standard library, and a loop that is really late."""

import asyncio
import gc
import os
import resource
import time

import pytest

from timestone_cli.server.process_metrics import LoopWatch, process_metrics


def test_the_figures_of_the_kernel_agree_with_those_of_the_standard_library() -> None:
    found = {one.name: one.samples[0][1] for one in process_metrics()}
    times = os.times()
    assert found["process_cpu_seconds"] == pytest.approx(times.user + times.system, abs=0.5)
    most_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert 1 << 20 < float(str(found["process_resident_memory_bytes"])) <= most_bytes * 1.1
    assert found["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 0 < time.time() - float(str(found["process_start_time_seconds"])) < 86_400


@pytest.mark.slow
def test_a_blocked_event_loop_is_late_and_a_collection_is_timed() -> None:
    async def run() -> LoopWatch:
        watch = LoopWatch()
        watch.start()
        await asyncio.sleep(0.05)
        time.sleep(0.4)
        await asyncio.sleep(0)
        while not watch.lateness.count:
            await asyncio.sleep(0.01)
        gc.collect()
        watch.stop()
        watch.stop()
        return watch

    watch = asyncio.run(run())
    assert watch.last_late_ns > 0.25e9
    assert watch.lateness.count == 1
    collected = watch.collections.count
    assert collected >= 1
    gc.collect()
    assert watch.collections.count == collected, "stopped"

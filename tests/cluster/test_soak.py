"""The long proofs print a summary, however they end."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_summary_says_how_far_each_part_came_when_a_signal_ends_the_soak() -> None:
    soak = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.soak", "simulation", "states"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TIMESTONE_SEED": "7"},
    )
    assert soak.stdout is not None
    for line in soak.stdout:
        if "run 0: {" in line:
            break
    soak.send_signal(signal.SIGTERM)
    rest = soak.stdout.read()
    assert soak.wait() == 1, rest
    summary = rest.partition("--- summary")[2]
    assert "simulation: " in summary and "ended by SIGTERM; " in summary, rest
    assert "seed 7" in summary and "states: not run" in summary, rest
    assert "most memory" in summary


def test_part_that_is_not_known_is_refused() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.cluster.soak", "x"], capture_output=True, text=True)
    assert (done.returncode, "expected some of nodes" in done.stderr) == (64, True)

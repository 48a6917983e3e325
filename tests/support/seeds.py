"""Seeds of the random tests: printed with every failure, replayed through the environment.

TIMESTONE_SEED=12345 pytest tests/crash/test_power_loss.py
"""

import os
import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

# Read when the tests are collected: tests/conftest.py removes the variables for the code under test.
_GIVEN = {name: value for name, value in os.environ.items() if name.startswith("TIMESTONE_")}


def run_seed(name: str) -> int:
    """Return the seed of a test: derived from its name, so that two runs are equal, unless TIMESTONE_SEED is set.
    `TIMESTONE_SEED=random` draws one, for soak runs that should test something new each night."""
    given = _GIVEN.get("TIMESTONE_SEED")
    if given == "random":
        return random.SystemRandom().getrandbits(32)
    return int(given) if given else zlib.crc32(name.encode())


@contextmanager
def told_on_failure(**facts: object) -> Iterator[None]:
    """Attach the command that repeats the run to any error that passes through."""
    try:
        yield
    except BaseException as error:
        error.add_note("to run this again: " + ", ".join(f"{name}={value}" for name, value in facts.items()))
        raise


def is_soak() -> bool:
    """Return whether more than the short settings was requested."""
    return bool(set(_GIVEN) - {"TIMESTONE_PURE", "TIMESTONE_SEED"})


def rounds(default: int, variable: str) -> int:
    """Return the number of rounds of a test: `default`, or the value of the environment variable for a soak run."""
    return int(_GIVEN.get(variable, default))

"""Seeds of the random tests: printed with every failure, replayed through the environment.

TIMESTONE_SEED=12345 pytest tests/crash/test_power_loss.py
"""

import os
import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

# Read when the tests are collected: tests/conftest.py takes the variables away from what is tested.
_GIVEN = {name: value for name, value in os.environ.items() if name.startswith("TIMESTONE_")}


def run_seed(name: str) -> int:
    """The seed of a test: its name's, so that two runs do the same, unless TIMESTONE_SEED says otherwise.

    `TIMESTONE_SEED=random` draws one, for soak runs that should see something new each night.
    """
    given = _GIVEN.get("TIMESTONE_SEED")
    if given == "random":
        return random.SystemRandom().getrandbits(32)
    return int(given) if given else zlib.crc32(name.encode())


@contextmanager
def told_on_failure(**facts: object) -> Iterator[None]:
    """Attach what is needed to run it again to any error that passes through."""
    try:
        yield
    except BaseException as error:
        error.add_note("to run this again: " + ", ".join(f"{name}={value}" for name, value in facts.items()))
        raise


def is_soak() -> bool:
    """Has anybody asked for more than the short settings?"""
    return bool(set(_GIVEN) - {"TIMESTONE_PURE", "TIMESTONE_SEED"})


def rounds(default: int, variable: str) -> int:
    """How many rounds a test runs: `default`, or what the environment variable says for a soak run."""
    return int(_GIVEN.get(variable, default))

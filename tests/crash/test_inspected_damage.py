"""`inspect --deep` finds every flipped bit of a sealed store, and describes it.

One bit of each byte by default, of long runs of zeros every sixteenth; all of them with TIMESTONE_BITS=8.
"""

import itertools
import random
import re
from pathlib import Path

import pytest

from tests.support.seeds import rounds, run_seed, told_on_failure
from tests.support.specimen import FOLDER, INDEX, SEGMENT, TOPICS, Specimen, make_specimen
from timestone.repair.inspection import EXIT_CLEAN, EXIT_TORN, inspect_store
from timestone_cli.output.explanations import explanations

pytestmark = pytest.mark.faults

BITS = rounds(1, "TIMESTONE_BITS")
ZEROS_STEP = 16 if BITS < 8 else 1


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    return make_specimen(tmp_path_factory.mktemp("specimen") / "store", closed=True)


def positions(data: bytes) -> list[int]:
    """Yield every byte, but of runs of zeros only the ends and some between."""
    chosen = set(range(len(data)))
    for run in re.finditer(rb"\0{40,}", data):
        chosen -= set(range(run.start() + 4, run.end() - 4)) - set(range(run.start(), run.end(), ZEROS_STEP))
    return sorted(chosen)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", [SEGMENT, INDEX, TOPICS], ids=["segment", "index", "topics"])
def test_deep_inspection_finds_and_names_every_flipped_bit(
    sealed: Specimen, path: Path, quick_directory: Path
) -> None:
    seed = run_seed(f"inspect {path.suffix}")
    rng = random.Random(seed)
    root = quick_directory / "store"
    sealed.write(root)
    assert inspect_store(root, deep=True).exit_code == EXIT_CLEAN
    whole = sealed.files[path]
    for position, bit in itertools.product(positions(whole), range(8)):
        if bit >= BITS:
            continue
        chosen = bit if BITS == 8 else rng.randrange(8)
        flipped = bytearray(whole)
        flipped[position] ^= 1 << chosen
        (root / path).write_bytes(flipped)
        with told_on_failure(TIMESTONE_SEED=seed, position=position, bit=chosen):
            report = inspect_store(root, deep=True)
            assert report.exit_code > EXIT_TORN
            sentences = list(explanations(report))
            assert sentences
            assert all(FOLDER.name in sentence and "Next: " in sentence for sentence in sentences)
            assert report.logs[0].records == 8, "nothing but the damaged record is lost"

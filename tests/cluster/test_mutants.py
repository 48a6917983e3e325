"""The search finds known mistakes: a check that finds none proves nothing."""

import pytest

from tests.cluster.exploration import search
from tests.cluster.mutants import MUTANTS, Mutant

MOST_STATES = 20_000


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_search_finds_a_counterexample_when_the_protocol(mutant: Mutant) -> None:
    model = mutant.model(mutant.bounds)
    found = search(model, model.after(model.begun(), mutant.script), MOST_STATES)
    assert found.broken is not None
    steps = len(mutant.script) + len(found.trace)
    print(f"{mutant.name}: {steps} steps, {found.states} states: {found.broken}")

"""All states of small clusters, and long walks through larger ones: no invariant of replication breaks.

    TIMESTONE_CLUSTER_STATES=2000000 TIMESTONE_CLUSTER_WALKS=100000 TIMESTONE_SEED=random make soak-cluster

The invariants are in `Model.check` and `Model._shown`: what was shown at an offset has one value, and every in-sync
replica and every later leader has it, durably; one leader commits in a generation; a leader that serves knows all that
earlier ones have shown; the in-sync set does not fall below its minimum; nothing that was shown is cut; a deleted key
stays deleted.
"""

import random
import time

import pytest

from tests.cluster.exploration import search, shortened, walk
from tests.cluster.small_model import Bounds, Model
from tests.support.seeds import rounds, run_seed, told_on_failure

STATES = rounds(5_000, "TIMESTONE_CLUSTER_STATES")
"""Of each of the large searches, which are not complete in the short form."""
WALKS = rounds(30, "TIMESTONE_CLUSTER_WALKS")
WALK_STEPS = 90

COMPLETE = {
    "a kill": Bounds(records=1, generations=2, kills=1, changes=0, is_pruned=True),
    "a power cut": Bounds(records=1, generations=1, kills=0, power_cuts=1, changes=0, is_pruned=True),
    "an ended lease": Bounds(records=1, generations=2, kills=0, ended_leases=1, changes=0, is_pruned=True),
    "a change": Bounds(records=1, generations=1, kills=0, changes=1, is_pruned=True),
    "a lost disk": Bounds(records=1, generations=1, kills=0, lost_disks=1, changes=0, is_pruned=True),
    "a reboot at level written": Bounds(
        records=1, generations=1, kills=0, power_cuts=1, changes=0, is_written_level=True, is_pruned=True
    ),
    "compaction": Bounds(records=2, generations=1, kills=0, changes=0, has_compaction=True, is_pruned=True),
}
"""Searched to the end, also by the short form."""

LARGE = {
    "kills": Bounds(records=3, generations=3, kills=2, changes=0, is_pruned=True),
    "power cuts": Bounds(records=2, generations=2, kills=0, power_cuts=2, changes=0, is_pruned=True),
    "changes": Bounds(records=1, generations=2, kills=1, changes=2, is_pruned=True),
    "leases": Bounds(records=2, generations=3, kills=1, ended_leases=1, changes=0, is_pruned=True),
    "disks": Bounds(records=1, generations=2, kills=0, lost_disks=1, damages=1, changes=2, is_pruned=True),
    "level written": Bounds(
        records=2, generations=2, kills=0, power_cuts=1, changes=2, is_written_level=True, is_pruned=True
    ),
}

WALKED = {
    "everything": Bounds(records=4, generations=5, kills=3, power_cuts=2, ended_leases=2, changes=5),
    "disks": Bounds(records=4, generations=4, kills=2, lost_disks=1, ended_leases=1, changes=6),
    "damage and compaction": Bounds(
        records=4, generations=4, kills=3, damages=1, changes=4, has_compaction=True
    ),
    "level written": Bounds(
        records=4, generations=4, kills=2, power_cuts=1, ended_leases=1, changes=6, is_written_level=True
    ),
    "five nodes": Bounds(nodes=5, min_isr=3, records=3, generations=4, kills=3, changes=4, ended_leases=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPLETE)
def test_every_state_keeps_the_invariants_when_there_is(name: str) -> None:
    model = Model(COMPLETE[name])
    found = search(model, model.begun(), 1_000_000)
    print(f"{name}: {found.states} states, {found.depth} steps deep, all of them")
    assert found.broken is None, [str(event) for event in found.trace]
    assert found.is_complete


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_states_keep_the_invariants_when_there_are_several(name: str) -> None:
    model = Model(LARGE[name])
    began_s = time.process_time()
    found = search(model, model.begun(), STATES)
    spent_s = time.process_time() - began_s
    print(
        f"{name}: {found.states} states, {found.depth} steps deep, complete: {found.is_complete}, {spent_s:.0f} s"
    )
    assert found.broken is None, [str(event) for event in found.trace]


@pytest.mark.slow
@pytest.mark.parametrize("name", WALKED)
def test_long_walks_keep_the_invariants_when_there_is(name: str) -> None:
    seed = run_seed(f"walk {name}")
    print(f"{name}: {WALKS} walks, seed {seed}")
    model = Model(WALKED[name])
    for number in range(WALKS):
        if number % 1000 == 999:  # what the tables hold grows with each walk
            model = Model(WALKED[name])
        first = model.first()
        with told_on_failure(TIMESTONE_SEED=seed, walk=number):
            found = walk(model, first, random.Random(f"{seed} {number}"), WALK_STEPS)
            if found is not None:
                steps = shortened(model, first, found[1])
                raise AssertionError("\n".join([found[0], *(f"{e.summary}: {e.detail}" for e in steps)]))

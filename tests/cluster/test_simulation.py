"""Clusters of three to five nodes and one to four shards in virtual time, with every fault of machines, disks, links.

TIMESTONE_CLUSTER_SEEDS=1000 TIMESTONE_SEED=random make soak-cluster
"""

import shutil
from pathlib import Path

import pytest

from tests.cluster.mutants import MUTANTS
from tests.cluster.simulation import FAULTS as FAULTS_OF_ALL
from tests.cluster.simulation import Broken, SimulatedNode, Simulation
from tests.support.seeds import rounds, run_seed, told_on_failure
from timestone.writing import segment_writer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SEEDS = rounds(3, "TIMESTONE_CLUSTER_SEEDS")
FAULTS = 12


def run_seeds(
    kind: type[Simulation], name: str, folder: Path, *, has_compaction: bool = False
) -> list[dict[str, int]]:
    """Run simulations of a kind, and return what happened in each."""
    seed, found = run_seed(name), []
    for number in range(SEEDS):
        simulation = kind(f"{seed} {number}", folder / str(number))
        simulation.has_compaction = has_compaction
        with told_on_failure(TIMESTONE_SEED=seed, run=number):
            found.append(simulation.run(FAULTS))
        print(f"seed {seed}, run {number}: {found[-1]}")
        shutil.rmtree(folder / str(number))
    return found


def test_no_promise_is_broken_and_every_shard_commits_again_when_faults_end(tmp_path: Path) -> None:
    run_seeds(Simulation, "simulation", tmp_path)


def test_run_is_repeated_when_the_seed_is_the_same(tmp_path: Path) -> None:
    one, other = (Simulation("repeated", tmp_path / name).run(6) for name in ("one", "other"))
    assert one == other


def test_no_deleted_key_is_back_when_replicas_compact_their_files(tmp_path: Path) -> None:
    run_seeds(Simulation, "compaction", tmp_path, has_compaction=True)


class Observing(Simulation):
    """Clusters with more nodes than replicas, all of which follow all shards."""

    has_observers = True
    sizes = 4, 5


class Written(Simulation):
    """Clusters at level `written`, whose nodes all lose power now and then."""

    is_written_level = True
    faults = (*FAULTS_OF_ALL, "power", "power", "blackout")


@pytest.mark.parametrize("has_compaction", [False, True])
def test_only_what_no_disk_has_is_given_up_and_no_offset_is_given_twice_at_level_written(
    has_compaction: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "REPLICA_RESERVE_OFFSETS", 40)
    run_seeds(Written, "written", tmp_path, has_compaction=has_compaction)


@pytest.mark.parametrize("has_compaction", [False, True])
def test_no_promise_is_broken_when_nodes_without_a_place_observe(
    has_compaction: bool, tmp_path: Path
) -> None:
    run_seeds(Observing, "observers", tmp_path, has_compaction=has_compaction)


class Deleting(Simulation):
    """Clusters whose logs are deleted again and again, and made again under the same names."""

    has_deletions = True


class DeletingObserved(Observing):
    """The same with observers."""

    has_deletions = True


class DeletingWritten(Written):
    """The same at level `written`."""

    has_deletions = True


@pytest.mark.parametrize("kind", [Deleting, DeletingObserved, DeletingWritten])
@pytest.mark.parametrize("has_compaction", [False, True])
def test_no_record_of_a_deleted_log_is_in_the_next_one_and_no_promise_is_broken(
    kind: type[Simulation], has_compaction: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "REPLICA_RESERVE_OFFSETS", 40)
    for counts in run_seeds(kind, "deletions", tmp_path, has_compaction=has_compaction):
        assert counts["logs deleted"]


class SameName(Deleting):
    """A log has the name of the deleted one between replicas."""

    def name_of(self, node: SimulatedNode, number: int) -> str:
        return self.shards[number].name


class OldFolder(Deleting):
    """A node that comes back keeps what it has of a deleted log."""

    def is_other(self, here: int, in_etcd: int) -> bool:
        return False


@pytest.mark.parametrize("kind", [SameName, OldFolder])
def test_simulation_breaks_when_a_log_passes_for_the_deleted_one_of_its_name(
    kind: type[Simulation], tmp_path: Path
) -> None:
    for number in range(20):
        try:
            kind(f"d {number}", tmp_path / str(number)).run(FAULTS)
        except (Broken, ValueError) as error:
            print(f"seed d {number}: {error}")
            return
    pytest.fail("nothing is broken")


@pytest.mark.parametrize(
    ("name", "seed", "error", "why"),
    [
        ("cuts to the committed offset", "m 16", Broken, "b is in sync and has 100 of 103 records"),
        ("cuts to the committed offset", "m 1", Broken, "shows other records of shard0 than were shown"),
        ("counts an observer", "m 7", Broken, "b is in sync and has 38 of 57 records"),
        # The follower keeps records that the leader does not have, at the end of its log. The engine is the second line
        # there: records of a leader have to continue the offsets, times and topic names that are there. A node begins
        # again after this error, and compares. No seed of the first 26 gets past it to break a promise; that the
        # protocol alone would break one is what the search shows (`test_mutants`).
        ("starts without comparing", "m 21", ValueError, "invalid records: expected times from"),
    ],
)
def test_simulation_breaks_when_the_protocol(
    name: str, seed: str, error: type[Exception], why: str, tmp_path: Path
) -> None:
    simulation = (Observing if name == "counts an observer" else Simulation)(seed, tmp_path)
    simulation.has_retention = name != "counts an observer" and seed == "m 1"
    simulation.replica_type = next(one for one in MUTANTS if one.name == name).model.replica_type
    with pytest.raises(error, match=why):
        simulation.run(FAULTS)

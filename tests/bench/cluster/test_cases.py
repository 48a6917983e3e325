from dataclasses import fields
from pathlib import Path

import pytest

from timestone_bench.cluster.cases import CASES, QUICK, Lab, Programs
from timestone_bench.cluster.goals import FIGURES
from timestone_bench.cluster.own_cluster import OwnCluster

pytestmark = pytest.mark.xdist_group("cluster of benchmarks")


def test_every_peer_is_a_case_that_needs_no_other_program() -> None:
    for name, case in CASES.items():
        assert CASES[case.peer].program == "", name
        assert case.program in ("", *(field.name for field in fields(Programs))), name


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("name", ["hand-over", "one-each cluster"])
def test_case_returns_figures_above_zero(name: str, cluster: OwnCluster, tmp_path: Path) -> None:
    with Lab(tmp_path, QUICK, Programs()) as lab:
        lab.cluster = cluster
        figures = CASES[name].measure(lab)
    assert set(figures) <= set(FIGURES)
    assert all(value > 0 for value in figures.values())

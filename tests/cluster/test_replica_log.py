import pytest

from timestone_cluster.replica_log import Place, ReplicaLog, Run


@pytest.fixture
def log() -> ReplicaLog:
    """Records 0 to 4 of generation 1, 5 to 6 of generation 3, 7 to 9 of generation 4; a name every other record."""
    made = ReplicaLog()
    made.extend(1, 3, 2)
    made.extend(1, 5, 3)
    made.extend(3, 7, 4)
    made.extend(4, 10, 5)
    made.durable, made.committed = 9, 6
    return made


def test_runs_begin_where_the_generation_changes(log: ReplicaLog) -> None:
    assert log.runs == (Run(1, 0, 0), Run(3, 5, 3), Run(4, 7, 4))
    assert (log.last_generation, log.end, log.names) == (4, 10, 5)


def test_generation_of_a_record_is_that_of_its_run(log: ReplicaLog) -> None:
    assert [log.generation_at(offset) for offset in (-1, 0, 4, 5, 6, 7, 9, 10)] == [0, 1, 1, 3, 3, 4, 4, 0]


def test_generation_of_the_last_record_that_retention_has_removed_is_known_and_of_earlier_ones_not(
    log: ReplicaLog,
) -> None:
    log.begin(5)
    assert log.runs[0] == Run(1, 0, 0)
    log.begin(6)
    assert [log.generation_at(offset) for offset in (4, 5, 6, 9)] == [0, 3, 3, 4]
    assert (log.start, log.end_of(3), log.end_of(2).generation) == (6, Place(3, 7, 4), 0)


def test_end_of_a_generation_is_that_of_the_largest_one_not_above_it(log: ReplicaLog) -> None:
    assert log.end_of(4) == log.end_of(9) == Place(4, 10, 5)
    assert log.end_of(3) == Place(3, 7, 4)
    assert log.end_of(2) == log.end_of(1) == Place(1, 5, 3)
    assert log.end_of(0) == Place(0, 0, 0)


def test_cut_forgets_runs_and_what_was_durable_behind_it(log: ReplicaLog) -> None:
    log.cut(7, 4)
    assert (log.end, log.names, log.durable, log.last_generation) == (7, 4, 7, 3)
    log.cut(5, 3)
    log.extend(5, 6, 3)
    assert log.runs == (Run(1, 0, 0), Run(5, 5, 3))


def test_reset_leaves_an_empty_log_that_begins_elsewhere(log: ReplicaLog) -> None:
    log.reset(40)
    assert log == ReplicaLog(40, 40, 0, 40, 40, 40, 40)
    assert (log.last_generation, log.end_of(9)) == (0, Place(0, 40, 0))

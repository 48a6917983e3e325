"""Log lines of elections and in-sync sets."""

import logging
from typing import cast

import pytest

from timestone_cluster.actions import Propose
from timestone_cluster.shard.election_log import ElectionLog
from timestone_cluster.shard.shipping import Surroundings
from timestone_cluster.shard_record import ShardRecord, Unclean


class Named:
    def shown(self, text: str) -> str:
        return text.replace("id-", "")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> ElectionLog:
    caplog.set_level(logging.INFO, "timestone.cluster")
    return ElectionLog(3, cast(Surroundings, Named()))


NEW = ShardRecord.first(("id-a@boot", "id-b", "id-c"))


def led() -> ShardRecord:
    record = NEW.elected("id-a@boot", 7, 2)
    assert record is not None
    return record


def test_election_log_names_leader_and_in_sync_set_when_one_of_them_changes(
    log: ElectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.seen(None, NEW)
    log.seen(NEW, led())
    smaller = led().dismissed("id-c", 2)
    assert smaller is not None
    log.seen(led(), smaller)
    log.seen(smaller, smaller)
    assert caplog.messages == [
        "shard 3: generation 0, leader none; in sync: a, b, c",
        "shard 3: generation 1, leader a; in sync: a, b, c",
        "shard 3: in sync: a, b",
    ]


def test_election_log_gives_the_reason_once_when_a_proposal_is_repeated(
    log: ElectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    for seconds in (1, 2):
        log.proposed(Propose(seconds, led(), why=f"stands for election: id-b was not heard for {seconds} s"))
    log.proposed(Propose(3, NEW))
    assert caplog.messages == ["shard 3: stands for election: b was not heard for 1 s"]


def test_election_log_warns_when_a_generation_began_by_command(
    log: ElectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    recovered = led().recovered("id-b", 8, (Unclean(2, "telemetry", 5),))
    assert recovered is not None
    log.seen(led(), recovered)
    assert caplog.messages == [
        "shard 3: generation 2, leader b; in sync: b",
        "shard 3: this generation began by command: `timestone cluster status` names what may be lost",
    ]

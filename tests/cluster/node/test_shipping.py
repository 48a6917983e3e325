"""Records of a leader, as messages."""

import asyncio
from pathlib import Path

import pytest

from tests.timestone.replication.replicas import replicated
from timestone.errors import CorruptRecord
from timestone.replication.replicated_log import ReplicatedLog
from timestone.writing.write_batch import WriteBatch
from timestone_cluster.actions import Ship
from timestone_cluster.frames import Held, Records
from timestone_cluster.node.shipping import Said, Shared, Shipping
from timestone_cluster.replica_log import ReplicaLog
from timestone_cluster.transport.wire import decoded


class Shipped:
    """A range of a log that has four records, of two topics."""

    def __init__(self, log: ReplicatedLog, first: int = 1) -> None:
        log.lead(1)
        for topic in "abab":
            log.submit(WriteBatch([topic.encode()], log.topic_id(topic)), ack="written")
        log.sync()
        state = ReplicaLog()
        state.extend(1, *log.extent)
        self.leads = True
        self.damaged: list[str] = []
        shared = Shared()
        self.shipping, self.other = (
            Shipping(
                Ship(member, "telemetry-0", first, 4, 1),
                7,
                1,
                log,
                state,
                shared,
                leads=lambda: self.leads,
                damaged=self.damaged.append,
            )
            for member in "bc"
        )


def test_range_is_sent_with_the_names_that_it_is_the_first_to_use(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        shipped = Shipped(log)
        shipping = shipped.shipping
        assert shipping.is_ready
        message = shipping.now()
        assert message is not None
        shard, records = decoded(b"".join(message)[4:])
        assert isinstance(records, Records)
        assert (shard, records.first, records.end, records.names) == (7, 1, 4, ("b",))
        assert (shipping.is_ready, shipping.now()) == (True, None)
        assert asyncio.run(shipping.next()) is None
        assert shipped.other.now() is message, "followers that lack the same share it"
        assert shipped.other.now() is None


def test_nothing_is_sent_when_the_generation_is_led_no_more(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        shipped = Shipped(log)
        shipped.leads = False
        assert shipped.shipping.now() is None
        assert asyncio.run(shipped.shipping.next()) is None


def test_damage_is_reported_and_ends_the_range_when_a_record_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replicated(tmp_path) as log:
        shipped = Shipped(log)

        def read(first: int, end: int, *, max_bytes: int) -> None:
            raise CorruptRecord(log.folder, first, "as after bit rot")

        monkeypatch.setattr(log, "read_stored", read)
        with pytest.raises(CorruptRecord):
            shipped.shipping.now()
        assert asyncio.run(shipped.shipping.next()) is None
        assert shipped.damaged == ["telemetry-0"]


def test_link_ends_when_the_records_were_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with replicated(tmp_path) as log:
        shipped = Shipped(log)
        monkeypatch.setattr(type(log), "local_start_offset", 3)
        monkeypatch.setattr(log, "read_stored", lambda *_, **__: (_ for _ in ()).throw(OSError("gone")))
        with pytest.raises(ConnectionError, match="begins at 3"):
            asyncio.run(shipped.shipping.next())
        assert not shipped.damaged


def test_frame_is_repeated_only_after_it_was_noted_and_for_a_while() -> None:
    said, frame = Said(), Held(1, "telemetry-0", 4)
    assert not said.is_repeated("a", frame, 0.0)
    assert not said.is_repeated("a", frame, 0.0), "a question has changed the answer"
    said.note("a", frame, 0.0)
    assert said.is_repeated("a", frame, 1.9)
    assert not said.is_repeated("a", frame, 2.0)
    assert not said.is_repeated("b", frame, 1.0)
    assert not said.is_repeated("a", Held(1, "telemetry-0", 5), 1.0)
    said.forget("a")
    assert not said.is_repeated("a", frame, 1.0)

"""Received publishes of QoS 2 are recognised, also from the log alone."""

import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timestone
from mqtt_front.codec.packets import MQTT_5, Connack, Connect, Publish, Pubrec
from mqtt_front.codec.properties import Properties
from mqtt_front.errors import ProtocolViolation
from mqtt_front.protocol.events import Publishes, PublishRow
from mqtt_front.sessions.qos2_receipts import Receipts, received_since
from mqtt_front.sessions.session import Session
from mqtt_front.sessions.session_store import SPACE
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.mqtt_server import mqtt_server
from tests.support.waiting import wait_for
from timestone.commit.submission import Submission
from timestone.config import Ack, StoreConfig
from timestone.disk.files import Files
from timestone.errors import OffsetOutOfRange
from timestone.log import Log
from timestone.reading.batch import Batch
from timestone.record import HeaderKind, decode_headers
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch


@pytest.fixture
def log(store: Store) -> Log:
    return store.log("mqtt")


def row(qos: int, packet_id: int, payload: bytes = b"x", headers: bytes = b"") -> PublishRow:
    answer = b"" if qos == 0 else bytes((0x40 + 0x10 * (qos - 1), 2)) + packet_id.to_bytes(2, "big")
    return PublishRow(0x30 | qos << 1, b"t", headers, payload, answer)


def run(*rows: PublishRow) -> Publishes:
    return Publishes.of(rows, 10)


def append(log: Log, rows: list[PublishRow]) -> None:
    write_batch = WriteBatch(
        [one.headers + one.payload for one in rows],
        log.topic_id("t"),
        flags=[one.first & 7 for one in rows],
        header_lengths=[len(one.headers) for one in rows],
    )
    log.append_batch(write_batch, ack="written")


def test_only_the_first_publish_of_a_packet_id_is_kept(log: Log) -> None:
    receipts, session = Receipts([log]), Session("c")
    kept, repeated = receipts.once(
        session, run(row(2, 5, b"1"), row(1, 5, b"2"), row(2, 5, b"3"), row(0, 0, b"4"))
    )
    assert [one.payload for one in kept.rows()] == [b"1", b"2", b"4"]
    assert repeated == [b"\0\5"]
    assert session.received == session.unsettled == {5}
    assert session.forget_received([5, 6]) == [5]
    kept, repeated = receipts.once(session, run(row(2, 5, b"5")))
    assert [one.payload for one in kept.rows()] == [b"5"] and repeated == []


def test_record_has_packet_id_and_owner_when_the_session_outlives_the_connection(log: Log) -> None:
    receipts = Receipts([log])
    passing, lasting = Session("passing"), Session("lasting", expiry_s=10)
    (plain,) = receipts.once(passing, run(row(2, 5)))[0].rows()
    assert plain.headers == b""
    (marked,) = receipts.once(lasting, run(row(2, 0x1234)))[0].rows()
    items = {item.kind: item.value for item in decode_headers(marked.headers)}
    assert items == {HeaderKind.PUBLISHER: b"lasting", HeaderKind.PACKET_ID: b"\x34\x12"}
    assert receipts.count == 1


def test_packet_id_is_freed_when_properties_leave_no_room_for_it(log: Log) -> None:
    receipts, session = Receipts([log]), Session("c" * 1000, expiry_s=10)
    with pytest.raises(ProtocolViolation):
        receipts.once(session, run(row(2, 5), row(2, 6, headers=b"h" * 65_000)))
    assert session.received == session.unsettled == set()


def test_packet_ids_are_found_in_the_log_by_client_from_an_offset_on(log: Log) -> None:
    receipts, session, other = Receipts([log]), Session("c", expiry_s=10), Session("d", expiry_s=10)
    append(log, list(receipts.once(session, run(row(1, 1), row(2, 5), row(2, 6)))[0].rows()))
    append(log, list(receipts.once(other, run(row(2, 7)))[0].rows()))
    found = received_since([log], {})
    assert {client: [one.packet_id for one in entries] for client, entries in found.items()} == {
        "c": [5, 6],
        "d": [7],
    }
    assert received_since([log], {"mqtt": 2})["c"] == [("mqtt", 2, 6)]
    assert received_since([log], {"mqtt": 10**9}) == {}
    receipts.recover({})
    assert receipts.found("c", {"mqtt": 2}) == {6}
    assert receipts.found("c", {}) == {5, 6}
    assert receipts.found("nobody", {}) == set()


def test_search_for_packet_ids_continues_during_retention(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server did not start when segments went between its look at where the log begins and its first read."""
    receipts, session = Receipts([log]), Session("c", expiry_s=10)
    for packet_id in (5, 6):
        append(log, list(receipts.once(session, run(row(2, packet_id)))[0].rows()))
        log.roll()
    wait_for(lambda: len(log.segment_list.sealed()) == 2)
    read = log.read

    def expired(*place: int, **bounds: int) -> Batch:
        monkeypatch.setattr(log, "read", read)
        log.configure(retention_bytes=1)
        log.apply_retention()
        raise OffsetOutOfRange(0, log.start_offset, log.end_offset)

    monkeypatch.setattr(log, "read", expired)
    assert [one.packet_id for one in received_since([log], {})["c"]] == [6]


@pytest.mark.crash
@pytest.mark.parametrize("restarts", [1, 3])
def test_repetition_is_recognised_after_a_kill_between_pubrec_and_the_next_save(
    tmp_path: Path, restarts: int
) -> None:
    """Kill -9 right after PUBREC: the session on the disk knows nothing of the id. The record does, also after the
    server was started and killed again while the client was away."""
    server = MqttProcess(tmp_path)
    with RawClient(server.address) as client:
        client.connect("c", clean=False)
        client.subscribe("other")  # so that the session is durable
        client.send(Publish("t", b"once", 2, packet_id=5))
        assert client.expect(Pubrec) == Pubrec(5)
        server.kill()
    for _ in range(restarts):
        server = MqttProcess(tmp_path)
        with RawClient(server.address) as other:
            other.connect("other", clean=True)
            other.publish("t", b"other")
        server.kill()
    server = MqttProcess(tmp_path)
    with RawClient(server.address, 5) as client:
        wanted = Properties(session_expiry_interval=100)
        assert client.connect("c", clean=False, properties=wanted).session_present
        client.send(
            Publish("t", b"once", 2, duplicate=True, packet_id=5), Publish("t", b"twice", 2, packet_id=6)
        )
        assert sorted(client.expect(Pubrec).packet_id for _ in range(2)) == [5, 6]
    server.kill()
    with timestone.open(tmp_path) as store:
        payloads = [record.payload for record in store.log("mqtt").reader()]
    assert payloads.count(b"once") == 1 and payloads.count(b"twice") == 1


@pytest.mark.parametrize("level", [4, 5])
def test_publish_repeated_over_a_reconnect_fails_when_its_first_attempt_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """It got PUBREC as one that is in the log already."""
    lasting = Properties(session_expiry_interval=100) if level == 5 else None
    with timestone.open(tmp_path) as store, mqtt_server(tmp_path, store=store) as server:
        log, submitted = store.log("mqtt"), list[Submission]()

        def hold(
            write_batch: WriteBatch, *, ack: Ack, done: Callable[[Submission], None], **_: Any
        ) -> Submission:
            submitted.append(Submission(write_batch, ack, done))
            return submitted[-1]

        with monkeypatch.context() as patch:
            patch.setattr(log, "submit", hold)
            with RawClient(server.address, level) as client:
                client.connect("c", clean=False, properties=lasting)
                client.send(Publish("t", b"x", 2, packet_id=7))
                wait_for(lambda: submitted)
        again = Publish("t", b"x", 2, duplicate=True, packet_id=7)
        with RawClient(server.address, level) as client:
            client.connect("c", clean=False, properties=lasting)
            client.send(again)
            client.expect_silence()
            submitted[0].resolve(OSError(errno.EIO, "broken"))
            if level == 5:
                assert client.expect(Pubrec) == Pubrec(7, 0x83)
            else:
                client.expect_closed()
        assert log.end_offset == 0
        with RawClient(server.address, level) as client:
            client.connect("c", clean=False, properties=lasting)
            client.send(again)
            assert client.expect(Pubrec) == Pubrec(7)
        assert log.end_offset == 1


class StalledDisk(Files):
    """A disk whose flushes take as long as the test wants."""

    def __init__(self) -> None:
        self.flowing = threading.Event()
        self.flowing.set()

    def fdatasync(self, fd: int) -> None:
        assert self.flowing.wait(60)
        super().fdatasync(fd)


def test_new_session_may_reuse_a_packet_id_in_flight(
    tmp_path: Path,
) -> None:
    """The publish was settled after the new session was on the disk, the server was killed, and took the next message
    under that id, of the new session, for a repetition."""
    disk, lasting = StalledDisk(), Properties(session_expiry_interval=100)
    with (
        timestone.Store(tmp_path / "store", StoreConfig(), files=disk) as store,
        mqtt_server(tmp_path, store=store, session_save_ms=3_600_000) as server,
        RawClient(server.address, 5) as old,
        RawClient(server.address, 5) as new,
    ):
        old.connect("c", clean=True, properties=lasting)
        old.publish("t", b"first")
        before = store.documents.items(SPACE)["c"]
        disk.flowing.clear()
        old.send(Publish("t", b"old", 2, packet_id=7))
        wait_for(lambda: store.log("mqtt").end_offset == 2)
        new.send(Connect("c", MQTT_5, clean_start=True, properties=lasting))
        wait_for(lambda: store.documents.items(SPACE)["c"] != before)
        disk.flowing.set()
        assert not new.expect(Connack).session_present
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
    with mqtt_server(tmp_path / "killed") as server, RawClient(server.address, 5) as client:
        assert client.connect("c", clean=False, properties=lasting).session_present
        client.send(Publish("t", b"new", 2, packet_id=7))
        assert client.expect(Pubrec) == Pubrec(7)
        assert [record.payload for record in server.store.log("mqtt").reader()] == [b"first", b"old", b"new"]

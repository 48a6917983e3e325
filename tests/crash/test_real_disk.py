"""The power fails right after an acknowledgement, under real file systems.

The simulations (test_power_loss.py, test_forgetful_disk.py) lose what their authors thought of. Here ext4 and XFS lose
what they had not written yet: once for each kind of acknowledgement that rests on the catalogue.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import timestone
from mqtt_front.codec import packets
from tests.support import real_disk
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_process import MqttProcess
from tests.support.postings import LOG as POSTED
from tests.support.postings import frame, staged
from timestone import LogConfig, ReaderId, StoreConfig
from timestone.spool.producer import SpoolProducer
from timestone.upkeep.stored_settings import configure_logs, settings_of_logs

pytestmark = pytest.mark.crash

CONFIG = StoreConfig(min_free_bytes=0, scrub_bytes_per_s=0)
LOG = "telemetry"
READER = ReaderId(LOG, 0, "billing")
COMMITS = 5
SUBSCRIBER, PUBLISHER, GONE = "subscriber", "publisher", "gone"
TAKEN_ID, RELEASED_ID = 7, 8


def populate(root: Path) -> None:
    """Make a stopped store with a log, a committed reader, and sessions of MQTT clients."""
    with timestone.open(root, config=CONFIG) as store:
        log = store.log(LOG)
        log.append_many([b"%d" % number for number in range(20)], ack="synced")
        store.log("other").append(b"other", ack="synced")
        store.commit_readers({READER: 1})
    with MqttProcess(root) as server, RawClient(server.address) as client:
        client.connect(GONE, clean=False)
        client.subscribe("gone/#")


@contextmanager
def in_process(root: Path, run: Callable[[Path], object]) -> Iterator[None]:
    """Run in a process that continues to run, so that nothing is closed or flushed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            kept = run(root)
            os.write(writer, b"!")
            signal.pause()
            del kept
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        try:
            assert pipe.read(1) == b"!"
            yield
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def commit_as_owner(root: Path) -> object:
    store = timestone.open(root, config=CONFIG)
    with store.log(LOG).reader(name=READER.name) as reader:
        for offset in range(2, 2 + COMMITS):
            reader.commit(offset)
    return store


def commit_as_view(root: Path) -> object:
    view = timestone.view(root)
    for offset in range(2, 2 + COMMITS):
        view.commit_readers({READER: offset})
    return view


def forget_reader(root: Path) -> object:
    store = timestone.open(root, config=CONFIG)
    store.forget_readers([READER])
    return store


def configure_open_log(root: Path) -> object:
    store = timestone.open(root, config=CONFIG)
    store.log(LOG).configure(retention_bytes=12_345_678)
    return store


def configure_stopped_log(root: Path) -> object:
    return configure_logs(root, [(LOG, 0)], {"retention_bytes": 12_345_678})


def make_log(root: Path) -> object:
    store = timestone.open(root, config=CONFIG)
    store.log("new", config=LogConfig(retention_bytes=12_345_678))
    return store


def delete_log(root: Path) -> object:
    store = timestone.open(root, config=CONFIG)
    store.delete_log("other")
    return store


def put_documents(root: Path) -> object:
    store = timestone.open(root, config=CONFIG)
    store.documents.put_many("mqtt.session", {f"client {number}": b"saved" for number in range(200)})
    return store


def post(root: Path) -> object:
    store = timestone.open(root, config=CONFIG)
    store.accept_postings()
    SpoolProducer(root, timestone.open).post(staged(root, [[frame([b"a", b"b"])], [frame([b"c"])]]))
    return store


def has_commit(root: Path) -> None:
    with timestone.view(root) as view:
        found = view.committed(READER)
    assert found is not None
    assert found.offset == 1 + COMMITS


def has_no_commit(root: Path) -> None:
    with timestone.view(root) as view:
        assert view.committed(READER) is None


def has_setting(root: Path, log: str = LOG) -> None:
    assert settings_of_logs(root)[log, 0].retention_bytes == 12_345_678


def has_new_log(root: Path) -> None:
    has_setting(root, "new")


def has_no_other_log(root: Path) -> None:
    with timestone.open(root, config=CONFIG) as store:
        assert ("other", 0) not in store.log_names()


def has_documents(root: Path) -> None:
    with timestone.view(root) as view:
        saved = [value for key, value in view.documents("mqtt.session").items() if key.startswith("client ")]
    assert saved == [b"saved"] * 200


def has_posting_once(root: Path) -> None:
    SpoolProducer(root, timestone.open).post(staged(root, [[frame([b"a", b"b"])], [frame([b"c"])]]))
    with timestone.view(root) as view:
        assert [record.payload for record in view.log(POSTED).reader()] == [b"a", b"b", b"c"]


@dataclass(frozen=True, slots=True)
class Promise:
    """An action of a process that is acknowledged, and the state that has to hold from then on."""

    make: Callable[[Path], object]
    check: Callable[[Path], None]


PROMISES = {
    "commit of a reader": Promise(commit_as_owner, has_commit),
    "commit of a reader in a view": Promise(commit_as_view, has_commit),
    "forgotten reader": Promise(forget_reader, has_no_commit),
    "settings of an open log": Promise(configure_open_log, has_setting),
    "settings of a stopped log": Promise(configure_stopped_log, has_setting),
    "new log": Promise(make_log, has_new_log),
    "deleted log": Promise(delete_log, has_no_other_log),
    "documents of a front": Promise(put_documents, has_documents),
    "posting": Promise(post, has_posting_once),
}


@contextmanager
def subscribed(root: Path) -> Iterator[None]:
    with MqttProcess(root) as server, RawClient(server.address) as client:
        client.connect(SUBSCRIBER, clean=False)
        client.subscribe("rooms/#")
        yield


@contextmanager
def unsubscribed(root: Path) -> Iterator[None]:
    with MqttProcess(root) as server, RawClient(server.address) as client:
        assert client.connect(GONE, clean=False).session_present
        client.send(packets.Unsubscribe(5, ("gone/#",)))
        client.expect(packets.Unsuback)
        yield


@contextmanager
def taken_at_qos_2(root: Path) -> Iterator[None]:
    with MqttProcess(root) as server, RawClient(server.address) as client:
        client.connect(PUBLISHER, clean=False)
        for packet_id in (RELEASED_ID, TAKEN_ID):
            client.send(packets.Publish("rooms/1", b"%d" % packet_id, 2, packet_id=packet_id))
            client.expect(packets.Pubrec)
        client.send(packets.Pubrel(RELEASED_ID))
        client.expect(packets.Pubcomp)
        yield


def has_subscription(root: Path) -> None:
    with MqttProcess(root) as server, RawClient(server.address) as client:
        assert client.connect(SUBSCRIBER, clean=False).session_present, "the session is gone"
        client.publish("rooms/1", b"after")
        assert [one.payload for one in client.receive(1)] == [b"after"]


def has_no_subscription(root: Path) -> None:
    with MqttProcess(root) as server, RawClient(server.address) as client:
        client.connect(GONE, clean=False)
        client.publish("gone/1", b"after")
        client.expect_silence()


def takes_no_message_twice(root: Path) -> None:
    with MqttProcess(root) as server, RawClient(server.address) as client:
        assert client.connect(PUBLISHER, clean=False).session_present
        client.send(packets.Publish("rooms/1", b"%d" % TAKEN_ID, 2, duplicate=True, packet_id=TAKEN_ID))
        client.expect(packets.Pubrec)
        client.send(packets.Pubrel(TAKEN_ID))
        client.expect(packets.Pubcomp)
        client.send(packets.Publish("rooms/1", b"new", 2, packet_id=RELEASED_ID))
        client.expect(packets.Pubrec)
        client.send(packets.Pubrel(RELEASED_ID))
        client.expect(packets.Pubcomp)
    with timestone.view(root) as view:
        found = [record.payload for record in view.log("mqtt").reader("earliest")]
    assert found == [b"%d" % RELEASED_ID, b"%d" % TAKEN_ID, b"new"]


ACKNOWLEDGED: dict[str, tuple[Callable[[Path], AbstractContextManager[None]], Callable[[Path], None]]] = {
    "SUBACK": (subscribed, has_subscription),
    "UNSUBACK": (unsubscribed, has_no_subscription),
    "PUBREC and PUBCOMP": (taken_at_qos_2, takes_no_message_twice),
}


@pytest.fixture(params=real_disk.FILE_SYSTEMS)
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An empty file system of each kind; `disk` beside it is its mount point."""
    if reason := real_disk.reason_to_skip(request.param):
        pytest.skip(reason)
    (tmp_path / "disk").mkdir()
    real_disk.make(request.param, tmp_path / "image")
    return tmp_path / "image"


def check_promise(
    image: Path, made: Callable[[Path], AbstractContextManager[None]], check: Callable[[Path], None]
) -> None:
    place = image.with_name("disk")
    root = place / "store"
    with real_disk.mounted(image, place):
        populate(root)
        os.sync()
        with made(root):
            real_disk.cut_power(place)
    with real_disk.mounted(image, place):
        check(root)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", PROMISES)
def test_catalogue_keeps_acknowledged_commits_when_the_power_fails(name: str, image: Path) -> None:
    promise = PROMISES[name]
    check_promise(image, lambda root: in_process(root, promise.make), promise.check)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ACKNOWLEDGED)
def test_mqtt_session_keeps_acknowledged_state_when_the_power_fails(name: str, image: Path) -> None:
    check_promise(image, *ACKNOWLEDGED[name])


def test_real_disk_loses_unflushed_bytes(image: Path) -> None:
    """The other tests rely on this."""
    place = image.with_name("disk")
    with real_disk.mounted(image, place):
        for name in ("flushed", "removed", "forgotten"):
            with (place / name).open("wb", buffering=0) as file:
                file.write(name.encode())
        os.sync()
        (place / "removed").unlink()
        (place / "forgotten").write_bytes(b"something else")
        real_disk.cut_power(place)
        with pytest.raises(OSError, match="error"):
            (place / "late").write_bytes(b"")
    with real_disk.mounted(image, place):
        assert (place / "flushed").read_bytes() == b"flushed"
        assert (place / "removed").read_bytes() == b"removed", "a removal needs a flush of the directory"
        assert (place / "forgotten").read_bytes() != b"something else"

"""Opening and closing a directory of logs."""

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.child_process import in_child
from tests.support.faulty_files import FaultyFiles
from timestone.config import LogConfig, StoreConfig
from timestone.disk.files import Files
from timestone.errors import CorruptLog, InvalidName, NotAStore, StoreClosed, UnknownLog
from timestone.reading.named_readers import ReaderId
from timestone.store import Store


@pytest.fixture
def root(quick_directory: Path) -> Path:
    return quick_directory / "data"


def settings() -> StoreConfig:
    return StoreConfig(min_free_bytes=0)


def payloads(root: Path, name: str = "a", partition: int = 0) -> list[bytes]:
    with timestone.open(root, config=settings()) as store:
        return [record.payload for record in store.log(name, partition, create=False).reader()]


@pytest.mark.parametrize("partition", [-1, 10**9, True, "0"])
def test_invalid_partition_leaves_no_folder(root: Path, partition: Any) -> None:
    """A folder with such a number is not a log, so the catalogue would name a log that does not exist."""
    with timestone.open(root, config=settings()) as store:
        with pytest.raises((InvalidName, TypeError)):
            store.log("a", partition)
        assert sorted(path.name for path in root.iterdir()) == ["LOCK", "catalog.db"]
    with timestone.open(root, config=settings()) as store:
        assert store.log_names() == []


def test_log_config_is_refused_when_it_is_of_another_type(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        with pytest.raises(TypeError, match="invalid config: expected a LogConfig, got "):
            store.log("a", config={"compact": True})  # type: ignore[arg-type]
        assert store.log_names() == []


def test_closed_store_raises_store_closed(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        log = store.log("a")
        assert repr(store) == f"<Store {root}: 1 log (a-0)>"
        for number in range(1, 7):
            store.log("a", number)
        assert repr(store) == f"<Store {root}: 7 logs (a-0, a-1, a-2, a-3, a-4, …)>"
        assert repr(log) == "<Log a-0: offsets [0, 0)>"
    assert repr(store) == f"<Store {root}: closed>"
    assert repr(log) == "<Log a-0: offsets [0, 0), closed>"


def test_logs_and_partitions_are_found_when_the_store_is_opened_again(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        for name, partition in (("b", 0), ("a", 1), ("a", 0), ("a-0", 0)):
            store.log(name, partition).append(f"{name} {partition}".encode())
        assert store.log_names() == [("a", 0), ("a", 1), ("a-0", 0), ("b", 0)]
        assert store.log("a", 1) is store.log("a", 1)
    with timestone.open(root, config=settings()) as store:
        assert store.recoveries == ()
        assert store.log_names() == [("a", 0), ("a", 1), ("a-0", 0), ("b", 0)]
    assert payloads(root, "a", 1) == [b"a 1"]
    assert payloads(root, "a-0", 0) == [b"a-0 0"]


def test_unknown_log_is_an_error_that_names_the_known_ones(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        store.log("there")
        with pytest.raises(UnknownLog, match="there-0"):
            store.log("missing", create=False)
        with pytest.raises(InvalidName):
            store.log("../escape")
        assert store.log_names() == [("there", 0)]


def test_log_keeps_the_settings_of_its_creation(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        store.log("a", config=LogConfig(segment_entries=7))
    with timestone.open(root, config=settings(), log=LogConfig(segment_entries=99)) as store:
        assert store.log("a").config.segment_entries == 7
        assert store.log("new").config.segment_entries == 99


def test_empty_log_survives_being_closed_and_opened(root: Path) -> None:
    """What the ancestor refused: a log that was opened and closed and never got a record."""
    for _ in range(3):
        with timestone.open(root, config=settings()) as store:
            assert store.log("a").end_offset == 0
            assert store.recoveries == ()
    with timestone.open(root, config=settings()) as store:
        assert store.log("a").append(b"x") == 0


@pytest.mark.parametrize("payload", [b"x", b""], ids=["one record", "one empty record"])
def test_log_of_one_record_survives_being_closed_and_opened(root: Path, payload: bytes) -> None:
    """The ancestor took an index whose last position or length is 0 for a corrupt one."""
    with timestone.open(root, config=settings()) as store:
        store.log("a").append(payload)
    for _ in range(2):
        assert payloads(root) == [payload]


@pytest.mark.parametrize("count", [0, 1, 5, 10])
def test_unclosed_log_is_whole_after_a_kill(root: Path, count: int) -> None:
    """None, one, some, and exactly as many records as a segment holds."""

    def run(pipe: int) -> None:
        store = timestone.open(root, config=settings(), log=LogConfig(segment_entries=10))
        log = store.log("a")
        for number in range(count):
            log.append(b"%d" % number, ack="written")
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(run)[0] == signal.SIGKILL
    assert payloads(root) == [b"%d" % number for number in range(count)]
    with timestone.open(root, config=settings()) as store:
        assert store.recoveries == ()
        assert store.log("a").append(b"next") == count
        assert store.log("a").epoch == 0


def test_strict_recovery_refuses_changes_nothing_and_names_the_file(root: Path) -> None:
    def run(pipe: int) -> None:
        timestone.open(root, config=settings()).log("a").append(b"x", ack="written")
        os.kill(os.getpid(), signal.SIGKILL)

    in_child(run)
    before = {path.name: path.read_bytes() for path in (root / "a-0").iterdir()}
    with pytest.raises(CorruptLog, match="strict") as caught:
        timestone.open(root, config=settings(), recovery="strict")
    assert caught.value.path.name == "00000000000000000000.index"
    assert {path.name: path.read_bytes() for path in (root / "a-0").iterdir()} == before
    assert payloads(root) == [b"x"]
    with timestone.open(root, config=settings(), recovery="strict") as store:
        assert store.recoveries == ()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:512]), "the last 1 names are lost"),
        (
            lambda path: path.write_bytes(path.read_bytes() + b"torn"),
            "the last 4 bytes are not a complete name",
        ),
        (lambda path: path.write_bytes(bytes(512) + path.read_bytes()[512:]), "header page is damaged"),
    ],
)
def test_strict_recovery_refuses_a_topic_dictionary_that_is_not_whole(
    root: Path, spoil: Callable[[Path], None], told: str
) -> None:
    with timestone.open(root, config=settings()) as store:
        store.log("a").append(b"x", topic="t")
    topics = root / "a-0" / "topics"
    spoil(topics)
    before = {path.name: path.read_bytes() for path in (root / "a-0").iterdir()}
    with pytest.raises(CorruptLog, match=f"{told}.* 'strict'") as caught:
        timestone.open(root, config=settings(), recovery="strict")
    assert caught.value.path == topics
    assert {path.name: path.read_bytes() for path in (root / "a-0").iterdir()} == before
    timestone.open(root, config=settings()).close()
    with timestone.open(root, config=settings(), recovery="strict") as store:
        assert [record.payload for record in store.log("a").reader()] == [b"x"]


def test_foreign_files_are_left_alone_and_reported(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        store.log("a").append(b"x")
    strangers = [
        root / "a-0" / ".DS_Store",
        root / "a-0" / "7.index",
        root / "a-0" / "notes.txt",
        root / "a-0" / "18446744073709551615.index",
        root / "a-0" / "09000000000000000000.segment",
        root / "README",
        root / "lost+found" / "file",
    ]
    for path in strangers:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
    with timestone.open(root, config=settings()) as store:
        assert store.log_names() == [("a", 0)]
        (recovered,) = store.recoveries
        for path in strangers[:5]:
            assert path.name in str(recovered)
    assert payloads(root) == [b"x"]
    assert all(path.read_bytes() == b"mine" for path in strangers)


@pytest.mark.parametrize("owned", [False, True], ids=["view", "owner"])
def test_topic_dictionary_of_another_log_costs_the_topics_and_no_record(root: Path, owned: bool) -> None:
    with timestone.open(root, config=settings()) as store:
        for name in ("a", "b"):
            store.log(name).append_many([b"x", b"y"], topic=f"topic/{name}")
    shutil.copy(root / "b-0" / "topics", root / "a-0" / "topics")
    with timestone.open(root, config=settings()) if owned else timestone.view(root) as reading:
        found = [(record.payload, record.topic) for record in reading.log("a").reader()]
    assert found == [(b"x", None), (b"y", None)]


def test_directory_is_refused_when_it_is_not_a_store_and_none_may_be_created(root: Path) -> None:
    with pytest.raises(NotAStore, match="does not exist"):
        timestone.open(root, create=False)
    assert not root.exists()
    root.mkdir()
    with pytest.raises(NotAStore):
        timestone.open(root, create=False)
    file = root / "file"
    file.write_bytes(b"")
    with pytest.raises(NotAStore, match="not a directory"):
        timestone.open(file)


def test_foreign_folder_with_the_name_of_a_log_is_not_changed(root: Path) -> None:
    notes = root / "release-2" / "README"
    notes.parent.mkdir(parents=True)
    notes.write_bytes(b"mine")
    with timestone.open(root) as store:
        store.log("a").append(b"x")
        with pytest.raises(FileExistsError, match="release-2"):
            store.log("release", 2)
    with timestone.open(root) as store, timestone.view(root) as view:
        assert store.log_names() == view.log_names() == [("a", 0)]
        assert [path.name for path in notes.parent.iterdir()] == ["README"]


def test_dangling_link_is_refused_by_name(root: Path, tmp_path: Path) -> None:
    root.symlink_to(tmp_path / "not mounted")
    with pytest.raises(NotAStore, match=r"it is a link to .*/not mounted, which is not there"):
        timestone.open(root)


def test_new_stores_directory_is_durable(root: Path) -> None:
    files = FaultyFiles()
    timestone.open(root, config=settings(), files=files).close()
    assert ("sync_directory", str(root.parent)) in files.calls


def test_store_creates_missing_parents_durably(root: Path) -> None:
    files = FaultyFiles()
    timestone.open(root / "some" / "where", config=settings(), files=files).close()
    assert (root / "some" / "where").is_dir()
    synced = [path for operation, path in files.calls if operation == "sync_directory"]
    assert synced[:4] == [str(root.parent.parent), str(root.parent), str(root), str(root / "some")]


def test_directory_that_was_made_for_a_store_is_made_durable_by_it(root: Path) -> None:
    """Its name may be gone after a power loss, with all that was acknowledged in it."""
    root.mkdir()
    for synced in (True, False):
        files = FaultyFiles()
        timestone.open(root, config=settings(), files=files).close()
        assert (("sync_directory", str(root.parent)) in files.calls) is synced


def test_closed_store_returns_no_logs_and_may_be_closed_again(root: Path) -> None:
    store = timestone.open(root, config=settings())
    store.log("a")
    store.close()
    store.close()
    reader = ReaderId("a", 0, "n")
    for call in (
        lambda: store.log("a"),
        lambda: store.log("b"),
        lambda: store.delete_log("a"),
        lambda: store.log_names(),
        lambda: store.readers(),
        lambda: store.committed(reader),
        lambda: store.commit_readers({reader: 0}),
        lambda: store.forget_readers([reader]),
        lambda: store.damage(),
        lambda: store.scrub(),
        lambda: store.accept_postings(),
        lambda: store.documents.items("space"),
    ):
        with pytest.raises(StoreClosed):
            call()


@pytest.mark.slow
def test_logs_created_while_the_store_closes_are_closed_or_refused(root: Path) -> None:
    kept, interval = sys.getswitchinterval(), 1e-6
    sys.setswitchinterval(interval)
    try:
        for number in range(10):
            store = timestone.open(root, config=settings())
            made = threading.Thread(target=make_logs, args=(store, number))
            closers = [threading.Thread(target=store.close) for _ in range(2)]
            for thread in (made, *closers):
                thread.start()
            for thread in (made, *closers):
                thread.join()
            store.close()
            with timestone.open(root, config=settings()) as opened:  # it holds no lock
                assert opened.recoveries == ()
    finally:
        sys.setswitchinterval(kept)


def make_logs(store: Store, number: int) -> None:
    with contextlib.suppress(StoreClosed):
        for other in range(1000):
            store.log(f"log-{number}-{other}").append(b"x", ack="written")


class SlowFolders(Files):
    """A disk that takes until `go` to make a folder."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def make_directory(self, path: Path) -> None:
        self.asked.set()
        assert self.go.wait(60)
        super().make_directory(path)


def test_existing_log_is_returned_while_another_is_created(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        store.log("a").append(b"x")
    files = SlowFolders()
    with timestone.open(root, config=settings(), files=files) as store:
        making = threading.Thread(target=store.log, args=("b",))
        making.start()
        try:
            assert files.asked.wait(60)
            assert store.log("a").record(0).payload == b"x"
            assert store.log_names() == [("a", 0)]
        finally:
            files.go.set()
            making.join()
        assert store.log_names() == [("a", 0), ("b", 0)]


def test_store_that_could_not_be_opened_holds_no_lock_and_no_file(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        store.log("a").append(b"x")
    topics = root / "a-0" / "topics"
    kept = topics.read_bytes()
    for path in (root / "a-0").glob("*.index"):
        path.rename(path.with_suffix(".away"))
    topics.write_bytes(b"junk")
    with pytest.raises(CorruptLog):
        timestone.open(root, config=settings())
    topics.write_bytes(kept)
    for path in (root / "a-0").glob("*.away"):
        path.rename(path.with_suffix(".index"))
    assert payloads(root) == [b"x"]


@pytest.mark.parametrize(
    "operation", ["make_directory", "create", "pwrite", "fdatasync", "rename", "sync_directory"]
)
def test_log_can_be_created_after_a_failed_attempt(root: Path, operation: str) -> None:
    files = FaultyFiles()
    with timestone.open(root, config=settings(), files=files) as store:
        files.fail(operation, 28)
        with pytest.raises(OSError, match="No space"):
            store.log("a").append(b"refused")
        assert store.log("a").append(b"kept") == 0
    assert payloads(root) == [b"kept"]


def test_log_whose_folder_is_gone_is_an_error_and_not_an_empty_log(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        store.log("a").append(b"x")
    (root / "a-0").rename(root / "elsewhere")
    with pytest.raises(CorruptLog, match="missing"):
        timestone.open(root, config=settings())
    (root / "elsewhere").rename(root / "a-0")
    assert payloads(root) == [b"x"]


def test_store_without_its_catalogue_is_served_from_its_folders(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        store.log("a", 2).append(b"x", topic="t")
    (root / "catalog.db").unlink()
    assert payloads(root, "a", 2) == [b"x"]


def test_missing_dictionary_costs_the_names_and_no_record(root: Path) -> None:
    with timestone.open(root, config=settings()) as store:
        store.log("a").append(b"x", topic="t")
    (root / "a-0" / "topics").unlink()
    with timestone.open(root, config=settings()) as store:
        log = store.log("a")
        assert [(record.payload, record.topic) for record in log.reader()] == [(b"x", None)]
        assert "names are lost" in str(store.recoveries[0])
        log.append(b"y", topic="new")
        assert [record.topic for record in log.reader()] == [None, "new"], "no old record gets a new name"


@pytest.mark.parametrize("count", [2, 40])
def test_folder_of_a_store_is_listed_as_often_for_many_logs_as_for_few(tmp_path: Path, count: int) -> None:
    """It was listed for each log, and each name in it looked at: the time to open grew with the square of the logs."""

    class CountingFiles(Files):
        listed = 0

        def names(self, directory: Path) -> list[str]:
            self.listed += directory == tmp_path / "data"
            return super().names(directory)

    with timestone.open(tmp_path / "data", min_free_bytes=0) as store:
        for number in range(count):
            store.log(f"log{number}")
    files = CountingFiles()
    timestone.open(tmp_path / "data", files=files).close()
    assert files.listed <= 3


def test_store_is_closed_with_one_flush_a_log_and_two_transactions(root: Path) -> None:
    """Each log that was durable already had three more flushes, and a separate transaction, which has three: a server
    with a thousand of them took ten seconds to stop."""
    files = FaultyFiles()
    store = timestone.open(root, config=settings(), files=files)
    for number in range(20):
        store.log(f"log-{number}").append(b"x", ack="synced")
    transactions: list[str] = []
    store.documents._connection.set_trace_callback(
        lambda text: transactions.append(text) if text == "COMMIT" else None
    )
    files.calls.clear()
    store.close()
    flushes = [operation for operation, _ in files.calls if "sync" in operation]
    assert Counter(flushes) == {"fdatasync": 20}
    assert len(transactions) == 2, "the rows of the logs, and how old their records are"
    with timestone.open(root, config=settings(), recovery="strict") as again:
        assert all(again.log(f"log-{number}").end_offset == 1 for number in range(20))

"""Real limits of a real system: file size, descriptors, a full disk, a read-only one, processes that share a store."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FunctionType

import pytest

import timestone
from tests.support import full_disk
from tests.support.child_process import in_child
from tests.support.quick_directory import open_below
from tests.support.seeds import rounds
from timestone import (
    Ack,
    Log,
    LogConfig,
    Store,
    StoreClosed,
    StoreConfig,
    StoreLocked,
    TimestoneError,
    TopicLimit,
)
from timestone.disk.files import Data, Files

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[2]
CONFIG = StoreConfig(min_free_bytes=0)
LOG_NAME = "telemetry"
TOPICS = rounds(2_000, "TIMESTONE_SCALE_TOPICS")
LOGS = rounds(40, "TIMESTONE_SCALE_LOGS")


def payloads(root: Path) -> list[bytes]:
    with timestone.open(root, config=CONFIG) as store:
        return [record.payload for record in store.log(LOG_NAME).reader("earliest")]


def append_until_refused(log: Log) -> OSError:
    while True:
        end = log.end_offset
        try:
            log.append(b"%1000d" % end, ack=Ack.WRITTEN)
        except OSError as error:
            return error
        finally:
            assert log.end_offset <= end + 1


def make_logs_until_refused(store: Store) -> tuple[int, OSError]:
    made = 0
    while True:
        try:
            store.log(f"log{made}").append(b"x", ack=Ack.SYNCED)
        except OSError as error:
            return made, error
        made += 1


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-Urm", "mount", "-t", "tmpfs", "small", "/mnt"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


FULL_DISK_CASES = [
    full_disk.appends_go_on_when_there_is_room_again,
    full_disk.recovery_needs_no_space,
    full_disk.appends_stop_before_the_disk_is_full,
    full_disk.a_read_only_disk_can_be_viewed,
]


@pytest.mark.skipif(
    not can_mount(), reason="this system lets no user mount a tmpfs in a namespace of its own"
)
@pytest.mark.parametrize("case", FULL_DISK_CASES, ids=lambda case: case.__name__)
def test_store_keeps_its_promises_on_a_small_disk(case: FunctionType, tmp_path: Path) -> None:
    command = [
        "unshare",
        "-Urm",
        sys.executable,
        "-m",
        "tests.support.full_disk",
        str(tmp_path),
        case.__name__,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("limit", [70_000, 100_001, 131_072])
def test_file_size_limit_refuses_only_the_append(limit: int, quick_directory: Path) -> None:
    """RLIMIT_FSIZE: a short write, then EFBIG; Python ignores the signal. At first the index is the longer file, so
    either may reach the limit."""
    root = quick_directory / "store"

    def run(pipe: int) -> None:
        store = timestone.open(root, config=CONFIG)
        log = store.log(LOG_NAME)
        log.append(b"before", ack=Ack.SYNCED)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        error = append_until_refused(log)
        count = log.end_offset
        assert error.errno == errno.EFBIG
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert log.append(b"after", ack=Ack.SYNCED) == count
        store.close()
        os.write(pipe, str(count).encode())

    status, report = in_child(run)
    assert status == 0
    count = int(report)
    assert payloads(root) == [b"before", *(b"%1000d" % number for number in range(1, count)), b"after"]


def test_descriptor_limit_refuses_and_leaves_no_partial_files(quick_directory: Path) -> None:
    root = quick_directory / "store"

    def run(pipe: int) -> None:
        store = timestone.open(root, config=CONFIG)
        store.log("first").append(b"x", ack=Ack.SYNCED)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 25, 4096))
        made, error = make_logs_until_refused(store)
        assert error.errno == errno.EMFILE
        store.log("first").append(b"y", ack=Ack.SYNCED)  # open files continue to work
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        store.log(f"log{made}").append(b"x", ack=Ack.SYNCED)
        store.close()
        os.write(pipe, str(made).encode())

    status, report = in_child(run)
    assert status == 0
    made = int(report)
    assert made > 3
    with timestone.open(root, config=CONFIG) as store:
        assert store.recoveries == ()
        for number in range(made + 1):
            assert [record.payload for record in store.log(f"log{number}", create=False).reader()] == [b"x"]


def test_many_segments_are_read_with_few_descriptors(quick_directory: Path) -> None:
    root = quick_directory / "store"
    config = StoreConfig(
        min_free_bytes=0, tail_bytes=0, open_segment_count=8, log=LogConfig(segment_entries=2)
    )

    def run(pipe: int) -> None:
        with timestone.open(root, config=config) as store:
            log = store.log(LOG_NAME)
            for number in range(400):
                log.append(b"%d" % number, ack=Ack.WRITTEN)
        few = len(os.listdir("/proc/self/fd")) + 40
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
        with timestone.open(root, config=config) as store:
            for _ in range(2):
                found = [record.payload for record in store.log(LOG_NAME).reader("earliest")]
                assert found == [b"%d" % number for number in range(400)]

    assert in_child(run)[0] == 0


def test_second_owner_is_refused_with_the_pid_of_the_first(quick_directory: Path) -> None:
    root = quick_directory / "store"
    with timestone.open(root, config=CONFIG):

        def run(pipe: int) -> None:
            with pytest.raises(StoreLocked) as caught:
                timestone.open(root, config=CONFIG)
            assert caught.value.pid == os.getppid()
            assert str(os.getppid()) in str(caught.value)

        assert in_child(run)[0] == 0
        with pytest.raises(StoreLocked) as caught:  # the same process is not exempt
            timestone.open(root, config=CONFIG)
        assert caught.value.pid == os.getpid()


def test_lock_of_a_killed_owner_is_free(quick_directory: Path) -> None:
    root = quick_directory / "store"

    def run(pipe: int) -> None:
        timestone.open(root, config=CONFIG).log(LOG_NAME).append(b"x", ack=Ack.WRITTEN)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(run)[0] == signal.SIGKILL
    assert payloads(root) == [b"x"]


def test_forked_child_cannot_write_and_does_not_affect_its_parent(quick_directory: Path) -> None:
    """A child has the parent's descriptors: one append of it would overwrite the parent's next write. And while it
    runs, as workers do, the parent's store can be closed and opened again."""
    root = quick_directory / "store"
    store = timestone.open(root, config=CONFIG)
    log = store.log(LOG_NAME)
    log.append(b"before", ack=Ack.SYNCED)
    hold, let_go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with pytest.raises(StoreClosed):
                log.append(b"child", ack=Ack.WRITTEN)
            with pytest.raises(StoreClosed):
                log.sync()
            store.close()
            os.close(let_go)
            os.read(hold, 1)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert log.append(b"after", ack=Ack.SYNCED) == 1
    store.close()
    assert payloads(root) == [b"before", b"after"], "the child, still alive, does not hold the lock"
    os.close(let_go)
    os.close(hold)
    assert os.waitpid(pid, 0)[1] == 0


class HeldFiles(Files):
    """Writes wait while they are held."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.let_go = threading.Event()
        self.let_go.set()

    def pwrite(self, fd: int, data: Data, position: int) -> int:
        if not self.let_go.is_set():
            self.held.set()
            self.let_go.wait()
        return super().pwrite(fd, data, position)


def test_child_forked_during_an_append_is_refused_without_waiting(
    quick_directory: Path,
) -> None:
    """The thread that has the lock does not exist in the child: it waited permanently."""
    files = HeldFiles()
    with timestone.open(quick_directory / "store", config=CONFIG, files=files) as store:
        log = store.log(LOG_NAME)
        log.append(b"before", ack=Ack.WRITTEN)
        files.let_go.clear()
        thread = threading.Thread(target=log.append, args=(b"held",), kwargs={"ack": Ack.WRITTEN})
        thread.start()
        assert files.held.wait(60)

        def append(_: int) -> None:
            signal.alarm(60)
            with pytest.raises(StoreClosed):
                log.append(b"child", ack=Ack.WRITTEN)

        status, _ = in_child(append)
        files.let_go.set()
        thread.join()
    assert status == 0
    assert payloads(quick_directory / "store") == [b"before", b"held"]


def test_child_forked_while_topics_are_added_is_refused_without_waiting(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of the topic dictionary was not handled when those of the log were."""
    held, let_go = threading.Event(), threading.Event()

    def hold(names: list[str]) -> None:
        held.set()
        let_go.wait()

    with timestone.open(quick_directory / "store", config=CONFIG) as store:
        log = store.log(LOG_NAME)
        with monkeypatch.context() as patched:
            patched.setattr("timestone.format.topics.validate_topics", hold)
            thread = threading.Thread(target=log.append_many, args=([b"held"],), kwargs={"topics": ["new"]})
            thread.start()
            assert held.wait(60)

            def append(_: int) -> None:
                signal.alarm(60)
                with pytest.raises(StoreClosed):
                    log.append(b"child", topic="of the child")

            status, _ = in_child(append)
            let_go.set()
            thread.join()
    assert status == 0
    assert payloads(quick_directory / "store") == [b"held"]


def test_process_that_ends_without_closing_keeps_written_records(quick_directory: Path) -> None:
    program = (
        "import os, timestone\n"
        f"log = timestone.open({str(quick_directory / 'store')!r}, min_free_bytes=0).log('{LOG_NAME}')\n"
        "log.append(b'one', ack='written')\n"
        "log.append(b'two', ack='synced')\n"
        "os._exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 7
    assert payloads(quick_directory / "store") == [b"one", b"two"]


def test_read_only_directory_is_refused_by_name_and_can_be_viewed(quick_directory: Path) -> None:
    root = quick_directory / "store"
    with timestone.open(root, config=CONFIG) as store:
        store.log(LOG_NAME).append(b"x")
    quick_directory.chmod(0o755)
    for path in (root, *root.rglob("*")):  # files are made for their owner alone
        path.chmod(0o555 if path.is_dir() else 0o444)

    def run(pipe: int) -> None:
        if os.geteuid() == 0:  # root may write everywhere
            os.setresuid(65534, 65534, 65534)
        with pytest.raises(PermissionError) as caught:
            timestone.open(root, config=CONFIG)
        assert str(root) in str(caught.value.filename)
        with timestone.view(root) as view:
            assert [record.payload for record in view.log(LOG_NAME).reader("earliest")] == [b"x"]

    status, _ = in_child(run)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert status == 0
    assert payloads(root) == [b"x"]


def test_directory_removed_under_an_open_store_raises_an_error(quick_directory: Path) -> None:
    root = quick_directory / "store"
    config = StoreConfig(min_free_bytes=0, log=LogConfig(segment_entries=1))
    store = timestone.open(root, config=config)
    log = store.log(LOG_NAME)
    log.append(b"x", ack=Ack.SYNCED)
    shutil.rmtree(root)
    with pytest.raises(OSError, match="No such file"):
        log.append(b"y", ack=Ack.SYNCED)
    with suppress(OSError, TimestoneError):
        store.close()


def taken(root: Path) -> tuple[int, int]:
    """Return the descriptors of files of this store, and the maps of its indexes. The totals of this process do not
    count: objects of earlier tests are freed whenever the garbage collector runs."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return len(open_below(root)), sum(f" {root}/" in line and line.endswith(".index") for line in maps)


def test_topics_cost_neither_descriptors_nor_maps(quick_directory: Path) -> None:
    """Idle topics, and then topics with a record each."""
    root = quick_directory / "store"
    names = [f"devices/{number}/state" for number in range(TOPICS)]
    config = StoreConfig(min_free_bytes=0, log=LogConfig(topic_count=TOPICS))
    with timestone.open(root, config=config) as store:
        store.log(LOG_NAME).append(b"one", topic=names[0])
        few = taken(root)
        store.log(LOG_NAME).append_many([b"idle"] * TOPICS, topics=names)
        assert taken(root) == few
    before = taken(root)
    with timestone.open(root, config=config) as store:
        log = store.log(LOG_NAME)
        assert taken(root)[0] <= before[0] + few[0], "what one topic takes"
        assert len(log.topics) == TOPICS
        log.append_many([b"active"] * TOPICS, topics=names)
        assert taken(root)[1] == before[1]
        assert len(list(log.reader("earliest", topics=names[-1]))) == 2
        with pytest.raises(TopicLimit):
            log.append(b"", topic="one more")


def test_logs_whose_owner_was_killed_are_opened_within_the_limits(quick_directory: Path) -> None:
    """None of their segments was closed. Each log keeps its topics open, and no segment until it is read; then as many
    segments of all logs together as the setting allows."""
    root = quick_directory / "store"

    def fill(pipe: int) -> None:
        store = timestone.open(root, config=CONFIG)
        for number in range(LOGS):
            store.log(f"log{number}").append(b"%d" % number, ack=Ack.WRITTEN)
        os.kill(os.getpid(), signal.SIGKILL)

    def recover(pipe: int) -> None:
        fds, maps = taken(root)
        config = StoreConfig(min_free_bytes=0, tail_bytes=0, open_segment_count=8)
        with timestone.open(root, config=config) as store:
            assert len(store.recoveries) == LOGS
            opened = taken(root)
            assert opened[0] <= fds + LOGS + 8
            assert opened[1] == maps
            for number in range(LOGS):
                assert store.log(f"log{number}").record(0).payload == b"%d" % number
            read = taken(root)
            assert read[0] <= opened[0] + 2 * 8, "a segment, and the map of its index"
            assert read[1] <= maps + 8

    assert in_child(fill)[0] == signal.SIGKILL
    assert in_child(recover)[0] == 0

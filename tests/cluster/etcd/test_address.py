"""Addresses of clusters as text, and connections with certificates."""

import asyncio
from pathlib import Path

import pytest

from tests.cluster.etcd_server import etcd_server
from tests.support.certificates import Authority
from timestone_cluster.errors import EtcdUnavailable
from timestone_cluster.etcd.address import Certificates, ClusterAddress
from timestone_cluster.etcd.client import EtcdClient
from timestone_cluster.node.links import Link, Listener
from timestone_cluster.node.wire import Hello


def test_address_has_endpoints_and_a_name() -> None:
    found = ClusterAddress.parse("etcd://10.0.0.1:2379,[::1]:2380/plant")
    assert found.endpoints == (("10.0.0.1", 2379), ("::1", 2380))
    assert found.keys.prefix == "/timestone/plant/"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plant",
        "http://127.0.0.1:1/plant",
        "etcd://a:1",
        "etcd://a:1/",
        "etcd://a/plant",
        "etcd://a:1/p/q",
    ],
)
def test_address_that_names_no_cluster_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid cluster"):
        ClusterAddress.parse(text)


def certificates(folder: Path, name: str) -> Certificates:
    folder.mkdir(exist_ok=True)
    authority = Authority(folder, name)
    own = authority.issue_server(file=f"{name}-own")
    return Certificates(authority.path, own.path, own.key_path)


@pytest.mark.slow
def test_etcd_with_certificates_is_reached_with_those_of_its_authority_only(tmp_path: Path) -> None:
    good, foreign = (certificates(tmp_path / "pem", name) for name in ("good", "foreign"))

    async def run(url: str) -> None:
        async with EtcdClient([url], verify=good.client_context()) as etcd:
            assert (await etcd.put("a", b"")).is_done
        mixed = Certificates(good.ca, foreign.certificate, foreign.key)
        for wrong in (foreign, mixed):
            async with EtcdClient([url], verify=wrong.client_context()) as etcd:
                with pytest.raises(EtcdUnavailable):
                    await etcd.read("a")

    with etcd_server(tmp_path / "data", good) as server:
        asyncio.run(run(server.url))


@pytest.mark.slow
def test_node_with_certificates_takes_connections_with_those_of_its_authority_only(tmp_path: Path) -> None:
    good, foreign = (certificates(tmp_path / "pem", name) for name in ("good", "foreign"))
    mixed = Certificates(good.ca, foreign.certificate, foreign.key)
    linked: list[str] = []

    async def run() -> None:
        listener = Listener("id", linked.append, lambda *_: None, lambda *_: None)
        port = await listener.start("127.0.0.1", 0, good.server_context())
        for name, one in (("foreign", foreign), ("mixed", mixed), ("good", good)):
            link = Link(Hello("id", name), lambda: f"127.0.0.1:{port}", one.client_context(), lambda: None)
            task = asyncio.ensure_future(link.run())
            async with asyncio.timeout(20):
                while name == "good" and not linked:
                    await asyncio.sleep(0.02)
            if name != "good":
                await asyncio.sleep(0.3)
            task.cancel()
        await listener.stop()

    asyncio.run(run())
    assert linked == ["good"]

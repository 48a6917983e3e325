"""Addresses of clusters as text, and connections with certificates."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster.etcd_server import PROGRAMS, EtcdServer, etcd_server
from tests.house.pages import blocks
from tests.support.certificates import Authority
from timestone_cluster.errors import EtcdUnavailable
from timestone_cluster.etcd.address import Certificates, ClusterAddress, read_login
from timestone_cluster.etcd.client import EtcdClient, Login
from timestone_cluster.etcd.keys import ClusterKeys
from timestone_cluster.operations import make_cluster
from timestone_cluster.transport.links import Link, Listener
from timestone_cluster.transport.wire import Hello


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
    """Return certificates without a common name, which etcd would refuse once it has users."""
    folder.mkdir(exist_ok=True)
    authority = Authority(folder, name)
    own = authority.issue_server(file=f"{name}-own", is_named=False)
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
        async with EtcdClient([url.replace("https", "http")]) as etcd:
            with pytest.raises(EtcdUnavailable, match="an etcd with TLS needs `--ca`"):
                await etcd.read("a")

    with etcd_server(tmp_path / "data", good) as server:
        asyncio.run(run(server.url))


@pytest.mark.slow
def test_node_with_certificates_takes_connections_with_those_of_its_authority_only(tmp_path: Path) -> None:
    good, foreign = (certificates(tmp_path / "pem", name) for name in ("good", "foreign"))
    mixed = Certificates(good.ca, foreign.certificate, foreign.key)
    dialling = {"foreign": foreign, "mixed": mixed, "good": good}
    assert asyncio.run(linked_to(good, dialling, last="good")) == ["good"]


async def linked_to(node: Certificates, dialling: dict[str, Certificates], last: str) -> list[str]:
    """Return which of these reach the port for nodes, one after another. last: waits until it has."""
    linked: list[str] = []
    listener = Listener("id", linked.append, lambda *_: None, lambda *_: False)
    port = await listener.start("127.0.0.1", 0, node.server_context())
    for name, one in dialling.items():
        link = Link(Hello("id", name), lambda: f"127.0.0.1:{port}", one.client_context(), lambda: None)
        task = asyncio.ensure_future(link.run())
        async with asyncio.timeout(20):
            while name == last and not linked:
                await asyncio.sleep(0.02)
        if name != last:
            await asyncio.sleep(0.3)
        task.cancel()
    await listener.stop()
    return linked


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_certificates_of_the_documented_lines_are_taken_by_etcd_and_between_nodes(tmp_path: Path) -> None:
    page = next(block for block in blocks(Path("docs/cluster.md")) if "openssl req" in block.text)
    subprocess.run(["bash", "-euc", page.text], cwd=tmp_path, check=True, capture_output=True)
    ca = tmp_path / "ca.pem"
    of = {
        name: Certificates(ca, tmp_path / f"{name}.pem", tmp_path / f"{name}-key.pem")
        for name in ("etcd", "a", "admin")
    }

    async def run(url: str) -> None:
        for name in ("a", "admin"):
            async with EtcdClient([url], verify=of[name].client_context()) as etcd:
                assert (await etcd.put(name, b"")).is_done
        assert await linked_to(of["a"], {"admin": of["admin"]}, last="admin") == ["admin"]

    with etcd_server(tmp_path / "data", of["etcd"]) as server:
        asyncio.run(run(server.url))


@pytest.mark.slow
def test_user_with_a_role_for_one_prefix_reaches_its_cluster_and_no_other(tmp_path: Path) -> None:
    """The lines of docs/cluster.md, with the real etcd, its certificates and its users."""
    good = certificates(tmp_path / "pem", "good")
    page = next(block for block in blocks(Path("docs/cluster.md")) if "etcdctl" in block.text)
    for name in ("plant", "root"):
        (tmp_path / f"{name}.password").write_text(f"password-of-{name}\n")
    plant = read_login("plant", tmp_path / "plant.password")
    assert plant is not None
    ours, others = ClusterKeys("plant"), ClusterKeys("plant2")

    async def run(server: EtcdServer) -> None:
        async def reads(login: Login | None, prefix: str) -> Mapping[str, object]:
            async with EtcdClient([server.url], verify=good.client_context(), login=login) as etcd:
                return (await etcd.read(prefix)).pairs

        async with EtcdClient([server.url], verify=good.client_context(), login=plant) as etcd:
            await make_cluster(etcd, ours, shards=1, replicas=1)
            lease = await etcd.grant(60)
            assert (await etcd.put(ours.node("a"), b"", lease=lease, present=(ours.placed(0), 0))).is_done
            assert await etcd.keep_alive(lease)
            async for changes in etcd.watch(ours.prefix, 1):
                if changes:
                    break
            for refused in (etcd.read(others.prefix), make_cluster(etcd, others, shards=1, replicas=1)):
                with pytest.raises(EtcdUnavailable, match="permission denied"):
                    await refused
            server.stop()  # forgets its tokens
            server.start()
            assert set((await etcd.read(ours.prefix)).pairs) == {ours.cluster, ours.node("a")}
            await etcd.revoke(lease)
        for wrong in (None, Login("plant", "another"), Login("stranger", "password-of-plant")):
            with pytest.raises(EtcdUnavailable, match=r"status 40\d: etcdserver: ") as refused_login:
                await reads(wrong, ours.prefix)
            assert "{" not in f"{refused_login.value}"

    with etcd_server(tmp_path / "data", good) as server:
        env = {
            **os.environ,
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "ETCDCTL_ENDPOINTS": server.url,
            "ETCDCTL_CACERT": str(good.ca),
            "ETCDCTL_CERT": str(good.certificate),
            "ETCDCTL_KEY": str(good.key),
        }
        lines = [line for line in page.text.splitlines() if not line.startswith("export ")]
        subprocess.run(
            ["bash", "-euc", "\n".join(lines)], cwd=tmp_path, env=env, check=True, capture_output=True
        )
        asyncio.run(run(server))


@pytest.mark.parametrize(
    ("user", "line", "why"),
    [
        ("plant", None, "together"),
        (None, b"x", "together"),
        ("plant", b"\n", "1 to 1024 bytes"),
        ("plant", b"x" * 2000, "1 to 1024 bytes"),
        ("plant", b"\xff", "utf-8"),
    ],
)
def test_login_is_refused_without_a_name_or_a_password(
    user: str | None, line: bytes | None, why: str, tmp_path: Path
) -> None:
    path = None if line is None else tmp_path / "password"
    if path is not None and line is not None:
        path.write_bytes(line)
    with pytest.raises(ValueError, match=why):
        read_login(user, path)

"""Clients by other authors, as their users use them: all QoS, retained messages, wills, sessions, properties, TLS and
WebSocket.

A client that is not installed is skipped, with a message that says how to install it. paho for Python has its own file.
"""

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from mqtt_front.codec.packets import Publish
from mqtt_front.listener_settings import ListenerSettings
from tests.support.certificates import Authority
from tests.support.mqtt_clients import RawClient
from tests.support.mqtt_server import MqttServer, mqtt_server
from tests.support.waiting import TIMEOUT_S, wait_for

aiomqtt = pytest.importorskip("aiomqtt", reason="aiomqtt is not installed (pip install aiomqtt)")
gmqtt = pytest.importorskip("gmqtt", reason="gmqtt is not installed (pip install gmqtt)")

MQTT_JS = Path(__file__).parents[2] / "build" / "node" / "node_modules" / "mqtt"
ANY = "127.0.0.1:0"
WHOLE_S = 90
"""For a complete foreign program: a few of our timeouts, and less than pytest's."""


def needs(tool: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(tool) is None, reason=f"no {tool} here (Debian: apt-get install {package})"
    )


@dataclass
class Doors:
    """A server with a listener of each kind."""

    server: MqttServer
    authority: Path
    ports: dict[str, int]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    path = tmp_path_factory.mktemp("foreign")
    authority = Authority(path)
    issued = authority.issue("localhost", alternatives=(x509.IPAddress(IPv4Address("127.0.0.1")),))
    tls: dict[str, Any] = {"address": ANY, "certificate": issued.path, "key": issued.key_path}
    listeners = (
        ListenerSettings(**tls),
        ListenerSettings(address=ANY, websocket=True),
        ListenerSettings(**tls, websocket=True),
    )
    with mqtt_server(path / "data", listeners=listeners) as server:
        addresses = [each["address"] for each in server.status()["listeners"]]
        ports = [int(address.rpartition(":")[2]) for address in addresses]
        yield Doors(server, authority.path, dict(zip(("tcp", "tls", "ws", "wss"), ports, strict=True)))


async def _with_aiomqtt(doors: Doors, door: str, version: int) -> None:
    five = version == 5
    protocol = aiomqtt.ProtocolVersion.V5 if five else aiomqtt.ProtocolVersion.V311
    secure = (
        {"tls_context": ssl.create_default_context(cafile=str(doors.authority))}
        if door in ("tls", "wss")
        else {}
    )

    def client(identifier: str, **options: Any) -> Any:
        transport = "websockets" if door in ("ws", "wss") else "tcp"
        return aiomqtt.Client(
            "127.0.0.1", doors.ports[door], identifier=identifier, protocol=protocol, transport=transport,
            timeout=TIMEOUT_S, **secure, **options,
        )  # fmt: skip

    root = f"aio/{door}/{version}"
    lasting: dict[str, Any] = {"clean_session": False}
    if five:
        expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        expiry.SessionExpiryInterval = 600
        lasting = {"clean_start": False, "properties": expiry}
    async with client("aio-publisher") as publisher:
        await publisher.publish(f"{root}/kept", b"kept", qos=1, retain=True)
        async with client("aio-subscriber") as subscriber:
            await subscriber.subscribe(f"{root}/+", qos=2)
            for qos in (0, 1, 2):
                await publisher.publish(f"{root}/live", b"at %d" % qos, qos=qos)
            found = []
            async for message in subscriber.messages:
                found.append((bytes(message.payload), message.qos, message.retain))
                if len(found) == 4:
                    break
        assert found == [(b"kept", 1, True), (b"at 0", 0, False), (b"at 1", 1, False), (b"at 2", 2, False)]
        async with client("aio-away", **lasting) as away:
            await away.subscribe(f"{root}/away", qos=1)
        await publisher.publish(f"{root}/away", b"missed", qos=1)
        async with client("aio-away", **lasting) as away:
            assert bytes((await anext(away.messages)).payload) == b"missed"
        await publisher.publish(f"{root}/kept", b"", qos=1, retain=True)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("door", ["tcp", "tls", "ws", "wss"])
def test_aiomqtt_publishes_and_subscribes(doors: Doors, door: str, version: int) -> None:
    asyncio.run(asyncio.wait_for(_with_aiomqtt(doors, door, version), WHOLE_S))


async def _with_gmqtt(doors: Doors, door: str, version: int) -> None:
    secure: Any = ssl.create_default_context(cafile=str(doors.authority)) if door == "tls" else False
    lasting = {"session_expiry_interval": 600} if version == 5 else {}

    subscribed = asyncio.Event()

    async def client(identifier: str, **options: Any) -> tuple[Any, "asyncio.Queue[tuple[Any, ...]]"]:
        made = gmqtt.Client(identifier, **options)
        made.on_subscribe = lambda *_: subscribed.set()
        received: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

        async def on_message(
            client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
        ) -> int:
            received.put_nowait((payload, qos, properties.get("retain"), properties.get("user_property")))
            return 0

        made.on_message = on_message
        await made.connect("127.0.0.1", doors.ports[door], ssl=secure, version=version)
        return made, received

    root = f"g/{door}/{version}"
    publisher, _ = await client(f"g-publisher-{door}")
    publisher.publish(f"{root}/kept", b"kept", qos=1, retain=True)
    subscriber, received = await client(f"g-subscriber-{door}")
    await asyncio.sleep(0.2)
    subscriber.subscribe(f"{root}/+", qos=2)
    kept = await received.get()
    assert kept[:3] == (b"kept", 1, True) or kept[:2] == (b"kept", 1)
    for qos in (0, 1, 2):
        told = {"user_property": [("a", "1"), ("a", "2")]} if version == 5 else {}
        publisher.publish(f"{root}/live", b"at %d" % qos, qos=qos, **told)
    live = [await received.get() for _ in range(3)]
    assert [one[:2] for one in live] == [(b"at 0", 0), (b"at 1", 1), (b"at 2", 2)]
    if version == 5:
        assert {tuple(one[3]) for one in live} == {(("a", "1"), ("a", "2"))}
    away, _ = await client(f"g-away-{door}", clean_session=False, **lasting)
    subscribed.clear()
    away.subscribe(f"{root}/away", qos=1)
    await subscribed.wait()
    await away.disconnect()
    publisher.publish(f"{root}/away", b"missed", qos=1)
    away, received = await client(f"g-away-{door}", clean_session=False, **lasting)
    assert (await received.get())[:2] == (b"missed", 1)
    publisher.publish(f"{root}/kept", b"", qos=1, retain=True)
    await asyncio.sleep(0.1)
    for one in (away, subscriber, publisher):
        await one.disconnect()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("door", ["tcp", "tls"])
def test_gmqtt_publishes_and_subscribes(doors: Doors, door: str, version: int) -> None:
    asyncio.run(asyncio.wait_for(_with_gmqtt(doors, door, version), WHOLE_S))


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("node") is None or not MQTT_JS.exists(),
    reason=f"no MQTT.js here (npm install --prefix {MQTT_JS.parents[1]} mqtt)",
)
@pytest.mark.parametrize(
    ("door", "version"), [("tcp", 3), ("tcp", 4), ("tcp", 5), ("tls", 5), ("ws", 4), ("wss", 5)]
)
def test_mqtt_js_publishes_and_subscribes(doors: Doors, door: str, version: int) -> None:
    script = Path(__file__).parents[1] / "support" / "mqtt_js_client.cjs"
    scheme = {"tcp": "mqtt", "tls": "mqtts"}.get(door, door)
    url = f"{scheme}://127.0.0.1:{doors.ports[door]}"
    done = subprocess.run(
        ["node", script, MQTT_JS, url, str(version), doors.authority],
        capture_output=True,
        text=True,
        timeout=WHOLE_S,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    told = ("text", {"a": ["1", "2"]}) if version == 5 else (None, None)
    assert [tuple(one[1:4]) for one in seen["messages"]] == [
        ("kept", 1, True), ("at 0", 0, False), ("at 1", 1, False), ("at 2", 2, False),
    ]  # fmt: skip
    assert [tuple(one[4:]) for one in seen["messages"][1:]] == [told] * 3
    assert [one[1] for one in seen["missed"]] == ["missed"]
    assert [one[1:3] for one in seen["will"]] == [["gone", 1]]


def _run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=WHOLE_S, check=True, **options)


@needs("mosquitto_sub", "mosquitto-clients")
@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
@pytest.mark.parametrize("door", ["tcp", "tls"])
def test_mosquitto_pub_and_sub_exchange_messages(doors: Doors, door: str, version: str) -> None:
    where = ["-h", "127.0.0.1", "-p", str(doors.ports[door]), "-V", version]
    where += ["--cafile", str(doors.authority)] if door == "tls" else []
    root = f"mosquitto/{door}/{version}"
    pub, lasting = ["mosquitto_pub", *where], ["-i", f"{door}{version}", "-c", "-q", "2"]
    lasting += ["-x", "600"] if version == "mqttv5" else []
    kept = ["-D", "publish", "content-type", "text"] if version == "mqttv5" else []
    _run([*pub, "-t", f"{root}/kept", "-m", "kept", "-r", "-q", "1", *kept])
    _run(["mosquitto_sub", *where, *lasting, "-t", f"{root}/live", "-E"])
    for qos in "012":
        _run([*pub, "-t", f"{root}/live", "-m", f"at {qos}", "-q", qos])
    shape = "%q %r %p" + (" %C" if version == "mqttv5" else "")
    seen = _run(["mosquitto_sub", *where, "-t", f"{root}/kept", "-q", "1", "-C", "1", "-F", shape]).stdout
    assert seen.split() == ["1", "1", "kept"] + (["text"] if version == "mqttv5" else [])
    missed = _run(["mosquitto_sub", *where, *lasting, "-t", f"{root}/live", "-C", "2", "-F", "%q %p"]).stdout
    assert missed.splitlines() == ["1 at 1", "2 at 2"], "what was published while it was away"
    with subprocess.Popen(
        [
            "mosquitto_sub",
            *where,
            "-i",
            f"w{door}",
            "-t",
            "x",
            "--will-topic",
            f"{root}/will",
            "--will-payload",
            "gone",
        ],
        stdout=subprocess.DEVNULL,
    ) as mortal:
        wait_for(lambda: f"w{door}" in _connected(doors.server))
        mortal.kill()
    with RawClient(("127.0.0.1", doors.ports["tcp"])) as reader:
        reader.connect("reader")
        wait_for(lambda: f"{root}/will" in [one.topic for one in doors.server.store.log("mqtt").reader()])


def _connected(server: MqttServer) -> list[str]:
    broker = server.front._broker
    assert broker is not None
    return server.call(lambda: list(broker.sessions.connected))


def _filters(server: MqttServer, client_id: str) -> list[str]:
    """What a client is subscribed to."""
    broker = server.front._broker
    assert broker is not None
    session = broker.sessions.connected.get(client_id)
    return server.call(lambda: [] if session is None else list(session.subscriptions))


@needs("mosquitto", "mosquitto")
@needs("mosquitto_sub", "mosquitto-clients")
@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv50"])
def test_mosquitto_bridge_forwards_both_ways_without_loops(
    doors: Doors, tmp_path: Path, version: str
) -> None:
    root, door, settings = f"edge/{version}", tmp_path / "door", tmp_path / "mosquitto.conf"
    settings.write_text(f"""
        listener 0 {door}
        allow_anonymous true
        user root
        connection core
        address 127.0.0.1:{doors.ports["tcp"]}
        remote_clientid {version}
        bridge_protocol_version {version}
        topic {root}/# both 1
    """)
    pub = ["mosquitto_pub", "--unix", str(door), "-q", "1", "-r"]
    sub = ["mosquitto_sub", "--unix", str(door), "-q", "1", "-F", "%p"]
    watching = [*sub, "-i", "watcher", "-c", "-t", f"{root}/up"]

    def stored() -> list[tuple[str | None, bytes]]:
        records = doors.server.store.log("mqtt").reader(topics=f"{root}/#")
        return [(one.topic, one.payload) for one in records]

    with (
        subprocess.Popen(["mosquitto", "-c", settings], stderr=subprocess.DEVNULL) as edge,
        RawClient(("127.0.0.1", doors.ports["tcp"])) as core,
    ):
        try:
            wait_for(lambda: f"{root}/#" in _filters(doors.server, version))
            _run([*watching, "-E"])
            _run([*pub, "-t", f"{root}/up", "-m", "1"])
            wait_for(lambda: len(stored()) == 1)
            core.connect(f"core-{version}")
            core.send(Publish(f"{root}/down", b"2", 1, True, packet_id=1))
            assert _run([*sub, "-t", f"{root}/down", "-C", "1"]).stdout == "2\n"
            _run([*pub, "-t", f"{root}/up", "-m", "3"])
            wait_for(lambda: len(stored()) >= 3)
            assert _run([*watching, "-C", "2"]).stdout == "1\n3\n"
            assert stored() == [(f"{root}/up", b"1"), (f"{root}/down", b"2"), (f"{root}/up", b"3")]
        finally:
            edge.kill()


@needs("mosquitto_rr", "mosquitto-clients")
def test_mosquitto_rr_gets_a_response(doors: Doors) -> None:
    where = ["-h", "127.0.0.1", "-p", str(doors.ports["tcp"]), "-V", "mqttv5"]
    with subprocess.Popen(
        ["mosquitto_sub", *where, "-t", "question", "-C", "1", "-F", "%R %D"],
        stdout=subprocess.PIPE,
        text=True,
    ) as service:
        wait_for(lambda: doors.server.subscription_count == 1)
        with subprocess.Popen(
            ["mosquitto_rr", *where, "-t", "question", "-e", "answer/1", "-m", "why", "-W", str(WHOLE_S),
             "-D", "publish", "correlation-data", "42"],
            stdout=subprocess.PIPE, text=True,
        ) as asking:  # fmt: skip
            told, _ = service.communicate(timeout=TIMEOUT_S)
            assert told.split() == ["answer/1", "42"]
            _run(["mosquitto_pub", *where, "-t", "answer/1", "-m", "because"])
            answer, _ = asking.communicate(timeout=TIMEOUT_S)
    assert answer.strip() == "because"


@pytest.mark.slow
@needs("paho_c_pub", "paho.mqtt.c-examples")
@pytest.mark.parametrize("version", ["31", "311", "5"])
def test_paho_for_c_publishes_and_subscribes(doors: Doors, version: str) -> None:
    where = ["-h", "127.0.0.1", "-p", str(doors.ports["tcp"]), "-V", version]
    topic = f"c/{version}"
    _run(["paho_c_pub", *where, "-t", topic, "-m", "kept", "-q", "2", "-r"])
    with subprocess.Popen(
        ["paho_c_sub", *where, "-t", topic, "-q", "2", "--quiet"], stdout=subprocess.PIPE, text=True
    ) as subscriber:
        assert subscriber.stdout is not None
        assert subscriber.stdout.readline().strip() == "kept"
        _run(["paho_c_pub", *where, "-t", topic, "-m", "live", "-q", "1"])
        assert subscriber.stdout.readline().strip() == "live"
        subscriber.terminate()

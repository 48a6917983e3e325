"""Other systems with three servers on loopback and three replicas, each set so that an acknowledged message is on the
disks of a majority; and Kafka as it comes.

Their settings are those of their manuals for that purpose. Nothing of them is installed: the caller has their
programs."""

import base64
import contextlib
import functools
import json
import os
import re
import secrets
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BenchmarkError
from ..mqtt.load.channel import open_channel, subscribe
from ..mqtt.load.client_protocols import CLIENT_PROTOCOLS
from ..mqtt.peer_servers import find_program, free_ports
from ..mqtt.servers import listens, server_process, wait_until_listening
from ..mqtt.target import Target
from .appends import BATCH_RECORDS, IN_FLIGHT, RECORD_BYTES

_SERVERS = range(3)
_WITHIN_S = 120.0
_CALL_S = 300.0
_NATS = """\
server_name: n{number}
listen: 127.0.0.1:{client}
http: 127.0.0.1:{monitor}
jetstream {{ store_dir: "{folder}/jetstream", sync_interval: always }}
cluster {{ name: bench, listen: 127.0.0.1:{route}, routes: [{routes}] }}
mqtt {{ listen: 127.0.0.1:{mqtt}, stream_replicas: 3 }}
"""
_RABBITMQ = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
mqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}
mqtt.allow_anonymous = true
management.tcp.ip = 127.0.0.1
management.tcp.port = {http}
management_agent.disable_metrics_collector = true
cluster_formation.peer_discovery_backend = classic_config
{nodes}
log.console.level = error
"""
_RABBITMQ_USER = b"guest:guest"
"""The one that each new server has, for clients on its machine."""
_KAFKA = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{client}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
min.insync.replicas=2
offsets.topic.replication.factor=3
"""
KAFKA_TOPICS: Mapping[str, Sequence[str]] = {"flushed": ["flush.messages=1"], "plain": []}
"""Settings of the topics: flushed before each acknowledgement, and as it comes."""
_SENT = re.compile(r"records sent, ([\d.]+) records/sec.* 99\.9th")


@dataclass(frozen=True, slots=True)
class System(Target):
    """A server that clients of MQTT are connected to, and the other processes of its system, whose processor time
    counts as well."""

    others: Sequence[int] = ()
    readings: list[tuple[float, float]] = field(default_factory=list)
    """Processor time of the server and of all, each time that it was asked for."""

    def cpu_s(self) -> float | None:
        """Return the processor time of all processes since they started."""
        own = processor_s([self.pid]) if self.pid is not None else 0.0
        self.readings.append((own, own + processor_s(self.others)))
        return self.readings[-1][1]


def processor_s(pids: Sequence[int]) -> float:
    """Return the processor time that processes have used."""
    return sum(Target("", "", "", 0, pid).cpu_s() or 0.0 for pid in pids)


@contextmanager
def nats_cluster(program: Path, folder: Path) -> Iterator[System]:
    """Run NATS: JetStream with three replicas, each write flushed, behind the MQTT gateway of the server that leads the
    stream. A session that is away has subscribed to all, or NATS would store nothing."""
    ports = [free_ports(4) for _ in _SERVERS]
    routes = ", ".join(f"nats://127.0.0.1:{route}" for _, _, route, _ in ports)
    folder.mkdir()
    with ExitStack() as stack:
        pids = []
        for number, (client, monitor, route, mqtt) in enumerate(ports):
            own = folder / f"n{number}"
            own.mkdir()
            settings = _NATS.format(
                number=number,
                client=client,
                monitor=monitor,
                folder=own,
                route=route,
                routes=routes,
                mqtt=mqtt,
            )
            (own / "nats.conf").write_text(settings, "utf-8")
            command = [str(program), "-c", str(own / "nats.conf")]
            process = stack.enter_context(server_process(command, own))
            pids.append(process.pid)
            wait_until_listening(("127.0.0.1", mqtt), process, own)
        store_for_session(("127.0.0.1", ports[0][3]))
        leads = _nats_leader([f"http://127.0.0.1:{monitor}" for _, monitor, _, _ in ports])
        leader = pids.pop(leads)
        yield System("nats", "mqtt", "127.0.0.1", ports[leads][3], leader, pids)


def store_for_session(address: tuple[str, int]) -> None:
    """Leave a session behind that gets all messages of the load, once the cluster takes clients. Raises
    BenchmarkError."""

    def leave() -> bool:
        protocol = CLIENT_PROTOCOLS["mqtt"]
        with open_channel(protocol, address, "bench-away", clean=False) as channel:
            subscribe(channel, protocol, "bench/#", 1)
            channel.sendall(protocol.goodbye)
        return True

    wait_until(leave, "takes no session")


def _nats_leader(urls: Sequence[str]) -> int:
    """Return which server leads the stream of messages at QoS 1."""

    def find() -> int:
        accounts = _http(f"{urls[0]}/jsz?streams=1")["account_details"]
        streams = {one["name"]: one for account in accounts for one in account["stream_detail"]}
        return int(streams["$MQTT_msgs"]["cluster"]["leader"][1:])

    leader: int = wait_until(find, "has no stream of MQTT")
    return leader


@contextmanager
def rabbitmq_cluster(program: Path, folder: Path) -> Iterator[System]:
    """Run RabbitMQ: a quorum queue of three nodes gets all messages that its MQTT plug-in takes, and the
    acknowledgement of a message waits for that."""
    ports = [free_ports(4) for _ in _SERVERS]
    (epmd,) = free_ports(1)
    nodes = "\n".join(
        f"cluster_formation.classic_config.nodes.{number} = bench{number}@localhost" for number in _SERVERS
    )
    cookie = secrets.token_hex(8)
    folder.mkdir()
    with ExitStack() as stack:
        # Started here, because one that a node starts would outlive it.
        names = [find_program("epmd") or "epmd", "-port", str(epmd), "-address", "127.0.0.1"]
        stack.enter_context(server_process(names, folder))
        pids, urls = [], []
        for number, (amqp, mqtt, http, dist) in enumerate(ports):
            own = folder / f"bench{number}"
            own.mkdir()
            settings = _RABBITMQ.format(amqp=amqp, mqtt=mqtt, http=http, nodes=nodes)
            (own / "rabbitmq.conf").write_text(settings, "utf-8")
            (own / "plugins").write_text("[rabbitmq_mqtt,rabbitmq_management].\n", "utf-8")
            environment = {
                "HOME": str(own), "ERL_EPMD_PORT": str(epmd), "ERL_EPMD_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODENAME": f"bench{number}@localhost", "RABBITMQ_DIST_PORT": str(dist),
                "RABBITMQ_MNESIA_BASE": str(own / "data"), "RABBITMQ_LOG_BASE": str(own / "log"),
                "RABBITMQ_CONFIG_FILE": str(own / "rabbitmq.conf"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(own / "plugins"),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS":
                    f"-setcookie {cookie} -kernel inet_dist_use_interface {{127,0,0,1}}",
            }  # fmt: skip
            process = stack.enter_context(_with_environment([str(program)], own, environment))
            urls.append(f"http://127.0.0.1:{http}")
            pids.append(process.pid)
            # One after the other: nodes that start at the same time may make clusters of their own.
            wait_until(functools.partial(listens, ("127.0.0.1", http)), "does not start")
        address = "127.0.0.1", ports[0][1]
        wait_until(lambda: listens(address), "takes no clients")
        _store_in_quorum_queue(urls[0])
        first, *others = (each for pid in pids for each in family(pid))
        yield System("rabbitmq", "mqtt", *address, first, others)


def _store_in_quorum_queue(url: str) -> None:
    queue = {"durable": True, "arguments": {"x-queue-type": "quorum"}}

    def declare() -> bool:
        if len(_http(f"{url}/api/nodes")) < len(_SERVERS):
            return False
        _http(f"{url}/api/queues/%2F/stored", "PUT", queue)
        _http(f"{url}/api/bindings/%2F/e/amq.topic/q/stored", "POST", {"routing_key": "#"})
        return len(_http(f"{url}/api/queues/%2F/stored")["members"]) == len(_SERVERS)

    wait_until(declare, "has no quorum queue")


class KafkaCluster:
    """Three brokers with a topic for each way to store."""

    def __init__(self, libraries: Path, servers: str, pids: Sequence[int]) -> None:
        self.pids = pids
        self._libraries, self._servers = libraries, servers

    def append(self, topic: str, count: int) -> float:
        """Append records with the producer that Kafka has for such tests; return records a second."""
        words = ["--topic", topic, "--num-records", str(count), "--record-size", str(RECORD_BYTES)]
        words += ["--throughput", "-1", "--producer-props", f"bootstrap.servers={self._servers}", "acks=all"]
        words += [f"batch.size={BATCH_RECORDS * (RECORD_BYTES + 24)}", "linger.ms=5"]
        words += [f"max.in.flight.requests.per.connection={IN_FLIGHT}"]
        said = java(self._libraries, "org.apache.kafka.tools.ProducerPerformance", *words)
        found = _SENT.findall(said)
        if not found:
            raise BenchmarkError(f"kafka: {said.strip()[-200:]}")
        return float(found[-1])


@contextmanager
def kafka_cluster(home: Path, folder: Path) -> Iterator[KafkaCluster]:
    """Run Kafka: three brokers that are controllers as well. home: has its jars, or a folder `libs` with them."""
    libraries = home / "libs" if (home / "libs").is_dir() else home
    ports = [free_ports(2) for _ in _SERVERS]
    voters = ",".join(f"{number}@127.0.0.1:{ports[number][1]}" for number in _SERVERS)
    identity = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "A")
    servers = ",".join(f"127.0.0.1:{client}" for client, _ in ports)
    folder.mkdir()
    with ExitStack() as stack:
        pids = []
        for number, (client, controller) in enumerate(ports):
            own = folder / f"k{number}"
            own.mkdir()
            settings = own / "server.properties"
            settings.write_text(
                _KAFKA.format(number=number, voters=voters, client=client, controller=controller, folder=own),
                "utf-8",
            )
            java(libraries, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings))
            command = java_command(libraries, "kafka.Kafka", str(settings))
            process = stack.enter_context(server_process(command, own))
            pids.append(process.pid)

        def make() -> bool:
            for topic, own_settings in KAFKA_TOPICS.items():
                words = ["--bootstrap-server", servers, "--create", "--if-not-exists", "--topic", topic]
                words += ["--partitions", "1", "--replication-factor", str(len(_SERVERS))]
                words += [word for setting in own_settings for word in ("--config", setting)]
                java(libraries, "org.apache.kafka.tools.TopicCommand", *words)
            return True

        wait_until(make, "makes no topics")
        yield KafkaCluster(libraries, servers, pids)


def java_command(libraries: Path, *words: str) -> list[str]:
    """Return the command of a program of Kafka."""
    return ["java", "-Xms512m", "-Xmx512m", "-Dlog4j2.level=ERROR", "-cp", f"{libraries}/*", *words]


def java(libraries: Path, *words: str) -> str:
    """Run a program of Kafka, and return what it prints. Raises BenchmarkError."""
    try:
        done = subprocess.run(
            java_command(libraries, *words), capture_output=True, text=True, timeout=_CALL_S, check=False
        )
    except OSError as error:
        raise BenchmarkError(f"java: {error.strerror}") from None
    if done.returncode:
        raise BenchmarkError(f"{words[0]}: {(done.stderr or done.stdout).strip()[-200:]}")
    return done.stdout


def installed_versions(nats: Path | None, kafka: Path | None, rabbitmq: Path | None) -> dict[str, str]:
    """Return the version of each system that is given."""
    found = {}
    if nats is not None:
        said = subprocess.run([str(nats), "--version"], capture_output=True, text=True, check=False).stdout
        found["nats"] = said.strip().rpartition("v")[2]
    if kafka is not None:
        jars = [*kafka.glob("libs/kafka-clients-*.jar"), *kafka.glob("kafka-clients-*.jar")]
        found["kafka"] = jars[0].stem.rpartition("-")[2] if jars else "unknown"
    if rabbitmq is not None:
        folders = list(rabbitmq.resolve().parent.parent.glob("lib/rabbitmq_server-*"))
        folders += [one for one in rabbitmq.resolve().parents if one.name.startswith("rabbitmq_server-")]
        found["rabbitmq"] = folders[0].name.rpartition("-")[2] if folders else "unknown"
    return found


def wait_until(look: Callable[[], Any], fault: str) -> Any:
    """Call a function again until it returns something true or 0; its errors count as not yet. Raises
    BenchmarkError."""
    ends_s, error = time.monotonic() + _WITHIN_S, ""
    while time.monotonic() < ends_s:
        try:
            found = look()
            if found is not None and found is not False:
                return found
        except (OSError, KeyError, BenchmarkError) as failure:
            error = f": {failure}"
        time.sleep(0.5)
    raise BenchmarkError(f"a cluster {fault} after {_WITHIN_S:.0f} s{error}")


def _http(url: str, method: str = "GET", body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    request.add_header("authorization", f"Basic {base64.b64encode(_RABBITMQ_USER).decode()}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if text else None


@contextmanager
def _with_environment(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> "Iterator[subprocess.Popen[bytes]]":
    words = ["env", *(f"{name}={value}" for name, value in environment.items()), *command]
    with server_process(words, folder) as process:
        yield process


def family(pid: int) -> list[int]:
    """Return a process and all that it has started."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [each for child in children.read_text("ascii").split() for each in family(int(child))]
    return found

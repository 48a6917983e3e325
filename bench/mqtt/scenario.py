"""The scenarios, under their usual names, and one run of each against one server."""

import itertools
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..free_memory import touch_free_memory
from .load.abusive_clients import AbusiveJob
from .load.channel import open_channel, subscribe
from .load.client_protocols import CLIENT_PROTOCOLS
from .load.connecting import ConnectJob
from .load.histogram import Histogram
from .load.job import Job, Report
from .load.ping_pong import PingPongJob
from .shared_progress import SharedProgress
from .target import NULL_SERVERS, Target
from .worker_pool import WorkerPool

_UNLOAD_PUBLISHERS = 10
_FLOOD_BYTES = 64 * 1024
"""The payload of each publish of the client that floods."""
_CYCLE = 3
"""Number of periods in a cycle: in the first the pairs are alone, in the second beside the flood, and in the third the
server takes the rest of the flood."""
_CYCLES = 6
PAIRED = ("point-to-point", "back-pressure")
"""Scenarios in which each subscriber has its own publisher."""
_WOKEN = 100
"""Number of idle clients that get a message each, one after the other."""
_STORED_BESIDE_BYTES = 60
"""Approximate size of a message in a server's files and buffers beyond its payload."""
_TOUCHED_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The messages, their publishers and their subscribers."""

    name: str
    """connection, fan-in, fan-out, ping-pong, point-to-point, session-unload or back-pressure."""
    qos: int = 1
    payload_bytes: int = 100
    publishers: int = 1
    subscribers: int = 0
    messages: int = 100_000
    """Of all publishers together."""
    window: int = 100
    """At QoS 1, unacknowledged messages of each publisher; at full speed with subscribers, how far the publishers may
    be ahead of the slowest subscriber."""
    rate: float | None = None
    """Messages, or connections, a second; None: full speed."""
    topics: int = 1
    """Of each publisher."""
    processes: int = 1
    """Processes that generate the load."""
    idle_s: float = 5.0
    """How long the connections of `connection` are then watched while idle."""

    @property
    def touched_bytes(self) -> int:
        """Return twice the bytes that a server writes if it stores all messages, within a bound."""
        return min(2 * self.messages * (self.payload_bytes + _STORED_BESIDE_BYTES), _TOUCHED_MOST_BYTES)

    def describe(self) -> str:
        """Return the head of its table."""
        pace = "full speed" if self.rate is None else f"{self.rate:,.0f}/s"
        if self.name == "session-unload":
            return f"{self.name}: QoS {self.qos}, {self.payload_bytes} bytes, {self.messages:,} messages to one client"
        if self.name == "connection":
            return f"connection: {self.publishers:,} clients, {pace}, then idle for {self.idle_s:g} s"
        who = (
            f"{self.publishers:,} → {self.subscribers:,}"
            if self.subscribers
            else f"{self.publishers:,} clients"
        )
        topics = f", {self.topics:,} topics each" if self.topics > 1 else ""
        window = f", window {self.window:,}" if self.rate is None and (self.qos or self.subscribers) else ""
        return (
            f"{self.name}: QoS {self.qos}, {self.payload_bytes} bytes, {who}{topics}, "
            f"{self.messages:,} messages, {pace}{window}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run. Figures that were not measured are absent from `figures`."""

    figures: dict[str, float]
    faults: dict[str, int] = field(default_factory=dict)
    """Faults with messages, and how often; empty without any."""


def run_scenario(scenario: Scenario, target: Target) -> Outcome:
    """Run it once. Raises BenchmarkError when the server refuses the load."""
    match scenario.name:
        case "connection":
            return _connection(scenario, target)
        case "session-unload":
            return _session_unload(scenario, target)
        case "ping-pong":
            return _ping_pong(scenario, target)
        case "back-pressure":
            return _back_pressure(scenario, target)
    return _traffic(scenario, target)


def run_at_once(
    scenario: Scenario, targets: Sequence[Target], window_s: float
) -> list[tuple[Outcome, list[float]]]:
    """Run the publishers of a scenario against several servers at the same moment, in a process a server. Return the
    outcome of each, and its processor time in windows of the run, in cores: without the first, in which all topics
    are new, if there are more. Raises BenchmarkError."""
    jobs = [job for target in targets for job in _jobs(scenario, target, secrets.token_hex(3), Path())]
    looks: list[tuple[float, list[float]]] = []

    def look(every_s: float = window_s) -> None:
        now_s = time.monotonic()
        if not looks or now_s - looks[-1][0] >= every_s:
            looks.append((now_s, [target.cpu_s() or 0.0 for target in targets]))

    with (
        tempfile.TemporaryDirectory(prefix="timestone-bench-") as directory,
        WorkerPool([{"kind": "traffic"} | job.to_json() for job in jobs]) as pool,
    ):
        touch_free_memory(Path(directory), scenario.touched_bytes * len(targets))
        look()
        reports = [Report.from_json(answer) for answer in pool.run(look)]
        used_s = [(target.cpu_s() or 0.0) - first for target, first in zip(targets, looks[0][1], strict=True)]
        if len(looks) < 2:  # shorter than a window
            look(0.0)
    windows = list(itertools.pairwise(looks))[1 if len(looks) > 2 else 0 :]
    return [
        (
            _outcome(report, report.sent, cpu_s),
            [(after[1][at] - before[1][at]) / (after[0] - before[0]) for before, after in windows],
        )
        for at, (report, cpu_s) in enumerate(zip(reports, used_s, strict=True))
    ]


def _traffic(scenario: Scenario, target: Target) -> Outcome:
    report, _, used_s = _drive(scenario, target)
    messages = report.received if scenario.subscribers else report.sent
    return _outcome(report, messages, used_s)


def _drive(
    scenario: Scenario,
    target: Target,
    *,
    period_ns: int = 0,
    beside: Sequence[dict[str, Any]] = (),
    tick: Callable[[], None] = lambda: None,
) -> tuple[Report, Sequence[dict[str, Any]], float | None]:
    """Run publishers and subscribers, and other jobs beside them; return their report, the reports of the others, and
    the processor time of the server. `tick` is called about every 20 ms."""
    with tempfile.TemporaryDirectory(prefix="timestone-bench-") as directory:
        jobs = _jobs(scenario, target, secrets.token_hex(3), Path(directory) / "progress")
        traffic = [{"kind": "traffic"} | replace(job, period_ns=period_ns).to_json() for job in jobs]
        with WorkerPool([*beside, *traffic]) as pool:
            touch_free_memory(Path(directory), scenario.touched_bytes)
            cpu_s = target.cpu_s()
            answers = pool.run(tick)
            used_s = _difference(target.cpu_s(), cpu_s)
    report = Report.merged([Report.from_json(answer) for answer in answers[len(beside) :]])
    return report, answers[: len(beside)], used_s


def _outcome(report: Report, messages: int, cpu_s: float | None) -> Outcome:
    elapsed_s = (report.ended_ns - report.started_ns) / 1e9
    figures = {
        "per_s": messages / elapsed_s,
        "generator_busy": report.cpu_s / elapsed_s,
    }
    if cpu_s is not None and messages:
        figures["cpu_us"] = cpu_s / messages * 1e6
        figures["server_busy"] = cpu_s / elapsed_s
    delivery_latency = Histogram.merged(report.delivery_latencies)
    for prefix, latency in (("ack", report.ack_latency), ("delivery", delivery_latency)):
        figures |= {f"{prefix}_{name}_us": value for name, value in latency.summary_us().items()}
    return Outcome(figures=figures, faults=_faults(report))


def _ping_pong(scenario: Scenario, target: Target) -> Outcome:
    job = PingPongJob(
        scheme=target.scheme, host=target.host, port=target.port, run=secrets.token_hex(3),
        payload_bytes=scenario.payload_bytes, qos=scenario.qos, messages=scenario.messages, rate=scenario.rate,
    )  # fmt: skip
    with WorkerPool([{"kind": "ping-pong"} | job.to_json()]) as pool:
        cpu_s = target.cpu_s()
        report = pool.run()[0]
        used_s = _difference(target.cpu_s(), cpu_s)
    elapsed_s = (report["ended_ns"] - report["started_ns"]) / 1e9
    figures = {"per_s": scenario.messages / elapsed_s, "generator_busy": report["cpu_s"] / elapsed_s}
    if used_s is not None:
        figures |= {"cpu_us": used_s / scenario.messages * 1e6, "server_busy": used_s / elapsed_s}
    for prefix in ("ack", "delivery"):
        latency = Histogram.from_json(report[f"{prefix}_latency"])
        figures |= {f"{prefix}_{name}_us": value for name, value in latency.summary_us().items()}
    return Outcome(figures=figures)


def _faults(report: Report) -> dict[str, int]:
    faults = {
        "lost": report.lost,
        "duplicates": report.duplicates,
        "reordered": report.reordered,
        "unacknowledged": report.sent - report.acknowledged if report.acknowledged else 0,
        "acks out of order": report.misordered_acks,
    }
    return {name: count for name, count in faults.items() if count}


def _jobs(scenario: Scenario, target: Target, run: str, progress: Path) -> list[Job]:
    """Divide the scenario into jobs. With a rate, or several processes, subscribers are not delayed by publishers."""
    flat_out = scenario.rate is None and scenario.subscribers > 0
    apart = scenario.subscribers > 0 and (scenario.rate is not None or scenario.processes > 1)
    if not apart:
        shares = list(
            zip(
                _split(scenario.publishers, 1 if scenario.subscribers else scenario.processes),
                _split(scenario.subscribers, 1 if scenario.subscribers else scenario.processes),
                strict=True,
            )
        )
    else:
        receiving = _split(scenario.subscribers, max(1, scenario.processes - 1))
        shares = [((0, 0), share) for share in receiving] + [((0, scenario.publishers), (0, 0))]
    slots = sum(1 for _, (first, end) in shares if end > first)
    if flat_out:
        SharedProgress.create(progress, slots)
    common: dict[str, Any] = {
        "scheme": target.scheme, "host": target.host, "port": target.port, "run": run,
        "payload_bytes": scenario.payload_bytes, "qos": scenario.qos,
        "messages": max(1, scenario.messages // scenario.publishers), "publisher_count": scenario.publishers,
        "paired": scenario.name in PAIRED, "topics": scenario.topics,
        "window": scenario.window, "rate": scenario.rate,
        "ahead": scenario.window if flat_out else None, "progress": str(progress) if flat_out else None,
    }  # fmt: skip
    return [
        Job(publishers=publishers, subscribers=subscribers, slot=slot, **common)
        for slot, (publishers, subscribers) in enumerate(shares)
    ]


def _split(count: int, parts: int) -> list[tuple[int, int]]:
    edges = [count * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(edges))


def _connection(scenario: Scenario, target: Target) -> Outcome:
    job = ConnectJob(
        scheme=target.scheme, host=target.host, port=target.port, run=secrets.token_hex(3),
        clients=scenario.publishers, rate=scenario.rate,
    )  # fmt: skip
    with WorkerPool([{"kind": "connect"} | job.to_json()]) as pool:
        rss, cpu_s = target.rss_bytes(), target.cpu_s()
        report = pool.run()[0]
        used_s = _difference(target.cpu_s(), cpu_s)
        time.sleep(0.5)  # the rest of the connecting is not idling
        idle_from_s = target.cpu_s()
        time.sleep(scenario.idle_s)
        idle_used_s = _difference(target.cpu_s(), idle_from_s)
        grown = _difference(target.rss_bytes(), rss)
        # The null server knows one topic a client.
        woken = pool.ask("0" if target.name in NULL_SERVERS else str(_WOKEN))[0]
    elapsed_s = (report["ended_ns"] - report["started_ns"]) / 1e9
    latency, wake = Histogram.from_json(report["latency"]), Histogram.from_json(woken["latency"])
    figures = {"per_s": report["connected"] / elapsed_s, "generator_busy": report["cpu_s"] / elapsed_s}
    figures |= {f"connect_{name}_us": value for name, value in latency.summary_us().items()}
    figures |= {f"delivery_{name}_us": value for name, value in wake.summary_us().items()}
    if used_s is not None and idle_used_s is not None and grown is not None:
        connected = max(1, report["connected"])
        figures["cpu_us"] = used_s / connected * 1e6
        figures["server_busy"] = used_s / elapsed_s
        figures["idle_cpu"] = idle_used_s / scenario.idle_s
        figures["rss_bytes"] = grown / connected
    faults = {"not connected": report["failed"], "lost": woken["lost"]}
    return Outcome(figures=figures, faults={name: count for name, count in faults.items() if count})


def _session_unload(scenario: Scenario, target: Target) -> Outcome:
    """A client with a persistent session disconnects; messages are published; it reconnects and receives them."""
    run, session = secrets.token_hex(3), f"bench-{secrets.token_hex(3)}"
    common: dict[str, Any] = {
        "scheme": target.scheme, "host": target.host, "port": target.port, "run": run, "qos": 1,
        "payload_bytes": scenario.payload_bytes, "window": scenario.window,
        "messages": max(1, scenario.messages // _UNLOAD_PUBLISHERS), "publisher_count": _UNLOAD_PUBLISHERS,
    }  # fmt: skip
    load = Job(publishers=(0, _UNLOAD_PUBLISHERS), **common)
    unload = Job(subscribers=(0, 1), session=session, **common)
    _leave_session(target, session, unload.topic_filter(0))
    with WorkerPool([{"kind": "traffic"} | load.to_json()]) as pool:
        loaded = _outcome(Report.from_json(pool.run()[0]), scenario.messages, None)
    with WorkerPool([{"kind": "traffic"} | unload.to_json()]) as pool:
        peak = [rss] if (rss := target.rss_bytes()) is not None else []
        cpu_s = target.cpu_s()
        answers = pool.run(lambda: peak.append(target.rss_bytes() or 0) if peak else None)
        used_s = _difference(target.cpu_s(), cpu_s)
    report = Report.from_json(answers[0])
    outcome = _outcome(report, report.received, used_s)
    outcome.figures["load_per_s"] = loaded.figures["per_s"]
    if peak:
        outcome.figures["grown_bytes"] = max(peak) - peak[0]
    _end_session(target, session)
    return Outcome(figures=outcome.figures, faults=_sum(loaded.faults, outcome.faults))


def _back_pressure(scenario: Scenario, target: Target) -> Outcome:
    """Pairs at a fixed rate, in periods: alone, beside a publisher without bounds and a subscriber that never reads,
    and while the server recovers, which is not counted; then alone again."""
    assert scenario.rate is not None
    period_s = scenario.messages / scenario.rate / (_CYCLES * _CYCLE)
    job = AbusiveJob(
        scheme=target.scheme, host=target.host, port=target.port, run=secrets.token_hex(3),
        payload_bytes=_FLOOD_BYTES,
        spells=[(first * period_s, (first + 1) * period_s) for first in range(1, _CYCLES * _CYCLE, _CYCLE)],
    )  # fmt: skip
    peak = [rss] if (rss := target.rss_bytes()) is not None else []
    report, (flood,), _ = _drive(
        scenario,
        target,
        period_ns=int(period_s * 1e9),
        beside=[{"kind": "disturb"} | job.to_json()],
        tick=lambda: peak.append(target.rss_bytes() or 0) if peak else None,
    )
    alone, beside = (report.delivery_latencies[first::_CYCLE] for first in (0, 1))
    figures = _outcome(report, report.received, None).figures
    figures["flood_bytes_per_s"] = flood["bytes_per_s"]
    if peak:
        figures["grown_bytes"] = max(peak) - peak[0]
    for name in ("p50", "p99"):
        quiet, disturbed, *halves = (
            Histogram.merged(periods).summary_us()[name]
            for periods in (alone, beside, alone[::2], alone[1::2])
        )
        figures |= {
            f"quiet_delivery_{name}_us": quiet,
            f"delivery_{name}_us": disturbed,
            f"disturbed_delivery_{name}_us": disturbed / quiet,
            f"again_delivery_{name}_us": halves[1] / halves[0],
        }
    return Outcome(figures=figures, faults=_faults(report))


def _leave_session(target: Target, session: str, topic_filter: str) -> None:
    protocol = CLIENT_PROTOCOLS[target.scheme]
    channel = open_channel(protocol, (target.host, target.port), session, clean=False)
    subscribe(channel, protocol, topic_filter, 1)
    channel.sendall(protocol.goodbye)
    channel.close()


def _end_session(target: Target, session: str) -> None:
    protocol = CLIENT_PROTOCOLS[target.scheme]
    channel = open_channel(protocol, (target.host, target.port), session, clean=True)
    channel.sendall(protocol.goodbye)
    channel.close()


def _sum(*counts: dict[str, int]) -> dict[str, int]:
    names: Sequence[str] = [name for one in counts for name in one]
    return {name: sum(one.get(name, 0) for one in counts) for name in names}


def _difference(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before

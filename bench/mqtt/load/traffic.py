"""The loop of one load process: publishers and subscribers side by side, until all messages are acknowledged and
received."""

import select
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..shared_progress import SharedProgress
from .channel import open_channel, subscribe
from .client_protocols import CLIENT_PROTOCOLS, PACKET_IDS
from .histogram import Histogram, Periods
from .job import Job, Report
from .pacing import IDLE_S, FlatOut, InWindow, OnClock, Pacing
from .publisher import Publisher, Schedule
from .subscriber import Subscriber

_EVENTS = 512
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_INBOXES_BYTES = 32 << 20
_UNBOUNDED = 1 << 62


class Slowest:
    """Messages that all subscribers have received, without a look at each of a thousand of them in each turn."""

    def __init__(self, subscribers: Sequence[Subscriber]) -> None:
        self._subscribers = subscribers
        self._least = 0
        self._next = 0
        """The subscribers before this one have received more than the least."""

    def received(self) -> int:
        """Return the least number that a subscriber has received."""
        subscribers, least = self._subscribers, self._least
        while subscribers[self._next].received > least:
            self._next += 1
            if self._next == len(subscribers):
                self._least = least = min(subscriber.received for subscriber in subscribers)
                self._next = 0
        return least


class Traffic:
    """One job. The constructor connects all clients, `run` generates the load."""

    def __init__(self, job: Job) -> None:
        """Raises ConnectionError when the server refuses a client."""
        self._job = job
        self._protocol = CLIENT_PROTOCOLS[job.scheme]
        self._poller = select.epoll()
        self._writable_wanted: set[int] = set()
        self._progress = None if job.progress is None else SharedProgress(Path(job.progress), job.slot)
        self._by_fd: dict[int, Publisher | Subscriber] = {}
        self._latencies = Periods(job.period_ns)
        # Subscribers first: they must exist when the first message is published.
        self._subscribers: list[Subscriber] = []
        if job.session is None:
            for number in range(*job.subscribers):
                self._add_subscriber(number, f"bench-{job.run}-s{number}")
        self._slowest = Slowest(self._subscribers)
        self._publishers = [self._publisher(number) for number in range(*job.publishers)]
        self._last_ack_ns = 0

    def _publisher(self, number: int) -> Publisher:
        job = self._job
        channel = open_channel(self._protocol, (job.host, job.port), f"bench-{job.run}-p{number}")
        template = self._protocol.publication(job.topic(number), job.payload_bytes, job.qos, job.topic_digits)
        window = min(PACKET_IDS, job.window if job.rate is None else job.messages)
        publisher = Publisher(channel, self._protocol, template, number, messages=job.messages, window=window)
        if job.topics > 1:
            publisher.topics = np.array([f"{topic:06}".encode() for topic in range(job.topics)])
        self._add(publisher)
        return publisher

    def _add_subscriber(self, number: int, client_id: str) -> None:
        job, resumes = self._job, self._job.session is not None
        channel = open_channel(self._protocol, (job.host, job.port), client_id, clean=not resumes)
        if not resumes:
            subscribe(channel, self._protocol, job.topic_filter(number), job.qos)
        template = self._protocol.delivery(job.topic(number), job.payload_bytes, job.qos, job.topic_digits)
        # Many subscribers get little each, and together no more memory than a few.
        share = _INBOXES_BYTES // max(64, job.subscribers[1] - job.subscribers[0])
        subscriber = Subscriber(
            channel,
            self._protocol,
            template,
            expected=job.expected(),
            latencies=None if job.rate is None else self._latencies,
            inbox_bytes=share,
        )
        self._subscribers.append(subscriber)
        self._add(subscriber)

    def _add(self, one: Publisher | Subscriber) -> None:
        self._by_fd[one.channel.fileno()] = one
        self._poller.register(one.channel, _IN)

    def run(self, start_ns: int) -> Report:
        """Generate the load, from `start_ns` on. Raises ConnectionError when the server closes a connection or sends
        invalid data."""
        time.sleep(max(0, start_ns - time.monotonic_ns()) / 1e9)
        cpu_s = time.process_time()
        self._latencies.start_ns = start_ns
        if self._job.session is not None:
            self._add_subscriber(0, self._job.session)
        self._drive(self._pacing(start_ns))
        for subscriber in self._subscribers:
            subscriber.look()
        return self._report(start_ns, time.process_time() - cpu_s)

    def _pacing(self, start_ns: int) -> Pacing:
        job, publishers, barrier = self._job, self._publishers, f"bench-end/{self._job.run}"
        if job.rate is not None:
            interval_ns = 1e9 / job.rate
            for publisher in publishers:
                first_ns = start_ns + int(publisher.sender * interval_ns)
                publisher.schedule = Schedule(first_ns, interval_ns * job.publisher_count)
            return OnClock(publishers, self._watch, barrier=barrier)
        if job.qos and job.ahead is None:
            return InWindow(publishers, self._watch)
        return FlatOut(
            publishers, self._watch, barrier=barrier, allowed=self._allowed, alone=bool(self._subscribers)
        )

    def _allowed(self) -> int:
        if self._job.ahead is None or self._progress is None:
            return _UNBOUNDED
        # The slowest subscriber has received messages of all processes; ours are about our share of them.
        sent = sum(publisher.sent for publisher in self._publishers)
        share = len(self._publishers) / self._job.publisher_count
        return int((self._job.ahead + self._progress.slowest()) * share) - sent

    def _drive(self, pacing: Pacing) -> None:
        waiting = set(self._by_fd)
        progress_ns = time.monotonic_ns()
        while waiting:
            events = self._wait(pacing.pump())
            if events:
                progress_ns = time.monotonic_ns()
            elif time.monotonic_ns() - progress_ns > self._job.stall_s * 1e9:
                return
            for fd, event in events:
                one, now_ns = self._by_fd[fd], time.monotonic_ns()
                if event & _OUT:
                    one.push()
                if event & ~_OUT:
                    one.receive(now_ns)
                if isinstance(one, Publisher):
                    self._last_ack_ns = now_ns
                    pacing.moved(one)
                if one.blocked or self._writable_wanted:
                    self._watch(one)
                if one.done:
                    waiting.discard(fd)
            if self._progress is not None and self._subscribers:
                self._progress.post(self._slowest.received())

    def _wait(self, timeout_s: float) -> Sequence[tuple[int, int]]:
        if 0 < timeout_s < IDLE_S:
            # epoll counts in whole milliseconds.
            select.select([self._poller.fileno()], [], [], timeout_s)
            timeout_s = 0
        return self._poller.poll(timeout_s, _EVENTS)

    def _watch(self, one: Publisher | Subscriber) -> None:
        """Watch for the socket to become writable if and only if something waits for it."""
        fd = one.channel.fileno()
        if one.blocked != (fd in self._writable_wanted):
            self._writable_wanted ^= {fd}
            self._poller.modify(fd, _IN | _OUT if one.blocked else _IN)

    def _report(self, started_ns: int, cpu_s: float) -> Report:
        checks = [subscriber.delivery_check.to_json(subscriber.expected) for subscriber in self._subscribers]
        return Report(
            started_ns=started_ns,
            ended_ns=max([self._last_ack_ns, *(subscriber.last_ns for subscriber in self._subscribers)]),
            sent=sum(publisher.sent for publisher in self._publishers),
            acknowledged=sum(publisher.acknowledged for publisher in self._publishers),
            misordered_acks=sum(publisher.misordered_acks for publisher in self._publishers),
            received=sum(check["received"] for check in checks),
            lost=sum(check["lost"] for check in checks),
            duplicates=sum(check["duplicates"] for check in checks),
            reordered=sum(check["reordered"] for check in checks),
            cpu_s=cpu_s,
            ack_latency=Histogram.merged(publisher.latencies for publisher in self._publishers),
            delivery_latencies=self._latencies.latencies,
        )

    def close(self) -> None:
        """Send DISCONNECT and close the sockets."""
        for one in self._by_fd.values():
            try:
                one.channel.send(self._protocol.goodbye)
            except OSError:
                pass
            one.channel.close()
        self._poller.close()

"""The job of one load process and its report: one JSON object each."""

import itertools
from dataclasses import asdict, dataclass
from typing import Any, Self

from .histogram import Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The share of one process in the publishers and subscribers of a run. The run has the same name in all
    processes."""

    scheme: str
    host: str
    port: int
    run: str
    """Part of all client ids and topics."""
    payload_bytes: int
    qos: int
    messages: int = 0
    """Of each publisher."""
    publishers: tuple[int, int] = (0, 0)
    """The numbers of the publishers, as a range."""
    publisher_count: int = 0
    """In all processes."""
    subscribers: tuple[int, int] = (0, 0)
    """The numbers of the subscribers, as a range."""
    paired: bool = False
    """Subscriber i receives from publisher i; otherwise every subscriber from every publisher."""
    topics: int = 1
    """Of each publisher."""
    window: int = 100
    """Unacknowledged messages of each publisher at QoS 1."""
    ahead: int | None = None
    """How many messages the publishers may be ahead of the slowest subscriber; None: any number."""
    rate: float | None = None
    """Messages a second of all publishers; None: as fast as possible."""
    period_ns: int = 0
    """With a rate: length of the periods whose latencies are kept apart; 0: the run is one period."""
    session: str | None = None
    """Client id of an existing persistent session; its subscriber reconnects when the run begins."""
    progress: str | None = None
    """A file with one number for each process: how many messages its slowest subscriber has received."""
    slot: int = 0
    slots: int = 1
    stall_s: float = 10.0
    """After this time without progress, missing messages count as lost."""

    @property
    def topic_digits(self) -> int:
        """Return how many characters of the topic distinguish the topics of one publisher."""
        return 6 if self.topics > 1 else 0

    def topic(self, publisher: int) -> str:
        """Return the topic of a publisher; all topics of a run have one length."""
        return f"bench/{self.run}/{publisher:06}" + ("/000000" if self.topics > 1 else "")

    def topic_filter(self, subscriber: int) -> str:
        """Return the topic filter of a subscriber."""
        if self.paired:
            return self.topic(subscriber)
        if self.publisher_count == 1:
            return self.topic(0)
        return f"bench/{self.run}/+" + ("/+" if self.topics > 1 else "")

    def expected(self) -> int:
        """Return the number of messages for each subscriber."""
        return self.messages * (1 if self.paired else self.publisher_count)

    def to_json(self) -> dict[str, Any]:
        """Return the job for its process."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read the object that `to_json` made."""
        ranges = {name: tuple(document[name]) for name in ("publishers", "subscribers")}
        return cls(**(document | ranges))


_COUNTS = ("sent", "acknowledged", "misordered_acks", "received", "lost", "duplicates", "reordered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a job. Times are of CLOCK_MONOTONIC, which all processes of a machine share."""

    started_ns: int
    ended_ns: int
    sent: int
    acknowledged: int
    misordered_acks: int
    received: int
    lost: int
    duplicates: int
    reordered: int
    cpu_s: float
    """Of the generating process: when it comes near the duration, the figures are those of the generator."""
    ack_latency: Histogram
    delivery_latencies: list[Histogram]
    """One for each period."""

    def to_json(self) -> dict[str, Any]:
        """Return the report for the parent process."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "ack_latency": self.ack_latency.to_json(),
            "delivery_latencies": [one.to_json() for one in self.delivery_latencies],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Read the object that `to_json` made."""
        latencies = {
            "ack_latency": Histogram.from_json(document["ack_latency"]),
            "delivery_latencies": [Histogram.from_json(one) for one in document["delivery_latencies"]],
        }
        return cls(**(document | latencies))

    @classmethod
    def merged(cls, reports: list["Report"]) -> "Report":
        """Merge the reports of all processes of a run; there is at least one."""
        sums = {name: sum(getattr(report, name) for report in reports) for name in _COUNTS}
        return cls(
            started_ns=min(report.started_ns for report in reports),
            ended_ns=max(report.ended_ns for report in reports),
            cpu_s=max(report.cpu_s for report in reports),
            ack_latency=Histogram.merged(report.ack_latency for report in reports),
            delivery_latencies=[
                Histogram.merged(one for one in period if one is not None)
                for period in itertools.zip_longest(*(report.delivery_latencies for report in reports))
            ],
            **sums,
        )

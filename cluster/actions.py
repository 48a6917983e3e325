"""What the protocol asks its driver to do, in this order, as values."""

from dataclasses import dataclass

from .frames import Frame, Records
from .shard_record import ShardRecord


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame to a member. It may be lost."""

    member: str
    frame: Frame


@dataclass(frozen=True, slots=True)
class Ship:
    """Read records of a log and send them as `Records`, one frame for each generation at least."""

    member: str
    log: str
    first: int
    end: int
    names: int
    """Count of topic names that the member has."""


@dataclass(frozen=True, slots=True)
class Append:
    """Write records of the leader, with their topic names numbered from `names_first` on. Flush them, and then report
    `durable`."""

    records: Records


@dataclass(frozen=True, slots=True)
class Cut:
    """Remove the records from an offset on and keep `names` topic names, durably. A flush that began before is not
    reported any more."""

    log: str
    offset: int
    names: int
    is_given_up: bool = False
    """Whether some of them were shown, and given up by command."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Remove all records and topic names of a log, durably; it begins at `start` from now on."""

    log: str
    start: int


@dataclass(frozen=True, slots=True)
class Show:
    """Show readers the records below an offset, and acknowledge them."""

    log: str
    committed: int


@dataclass(frozen=True, slots=True)
class Expire:
    """Delete records below an offset, when it suits: the leader has them no more. Report by `begins` what is gone."""

    log: str
    start: int


@dataclass(frozen=True, slots=True)
class Serve:
    """Take appends and answer reads, as the leader of a generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class StepDown:
    """Take no more appends for a generation, and fail those that wait: their outcome is unknown."""

    generation: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Put a record in the place of the one with this revision, by one transaction. Report what is there then by
    `record_seen`; `refused` only if etcd has answered that the transaction did not take place."""

    revision: int
    record: ShardRecord
    present: tuple[str, int] | None = None
    """Node and run that must be registered."""
    absent: tuple[str, int] | None = None
    """Node and run that must not be registered."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """Read the record from etcd, linearizably, and report it by `record_seen`."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Tell the operator that this replica stays out, and why."""

    reason: str


Action = Send | Ship | Append | Cut | Clear | Show | Expire | Serve | StepDown | Propose | Refresh | Alarm

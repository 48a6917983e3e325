"""What the protocol asks its driver to do, in this order, as values."""

import msgspec

from .frames import Frame, Records
from .shard_record import ShardRecord


class Send(msgspec.Struct, frozen=True):
    """Send a frame to a member. It may be lost."""

    member: str
    frame: Frame


class Ship(msgspec.Struct, frozen=True):
    """Read records of a log and send them as `Records`, one frame for each generation at least."""

    member: str
    log: str
    first: int
    end: int
    names: int
    """Count of topic names that the member has."""


class Append(msgspec.Struct, frozen=True):
    """Write records of the leader, with their topic names numbered from `names_first` on. Flush them, and then report
    `durable`."""

    records: Records


class Cut(msgspec.Struct, frozen=True):
    """Remove the records from an offset on and keep `names` topic names, durably. A flush that began before is not
    reported any more."""

    log: str
    offset: int
    names: int
    is_given_up: bool = False
    """Whether some of them were shown, and given up by command."""


class Clear(msgspec.Struct, frozen=True):
    """Remove all records and topic names of a log, durably; it begins at `start` from now on."""

    log: str
    start: int


class Show(msgspec.Struct, frozen=True):
    """Show readers the records below an offset, and acknowledge them."""

    log: str
    committed: int


class Expire(msgspec.Struct, frozen=True):
    """Delete records below an offset, when it suits: the leader has them no more. Report by `begins` what is gone."""

    log: str
    start: int


class Serve(msgspec.Struct, frozen=True):
    """Take appends and answer reads, as the leader of a generation."""

    generation: int


class StepDown(msgspec.Struct, frozen=True):
    """Take no more appends for a generation, and fail those that wait: their outcome is unknown."""

    generation: int


class Propose(msgspec.Struct, frozen=True):
    """Put a record in the place of the one with this revision, by one transaction. Report what is there then by
    `record_seen`; `refused` only if etcd has answered that the transaction did not take place."""

    revision: int
    record: ShardRecord
    present: tuple[str, int] | None = None
    """Node and run that must be registered."""
    absent: tuple[str, int] | None = None
    """Node and run that must not be registered."""
    why: str = ""
    """What it does, and its reason, for the log; empty for what is not worth a line."""


class Refresh(msgspec.Struct, frozen=True):
    """Read the record from etcd, linearizably, and report it by `record_seen`."""


class Alarm(msgspec.Struct, frozen=True):
    """Tell the operator that this replica stays out, and why."""

    reason: str


Action = Send | Ship | Append | Cut | Clear | Show | Expire | Serve | StepDown | Propose | Refresh | Alarm

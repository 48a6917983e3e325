"""Every error of tiering: one tree below the engine's, a new leaf only where a caller would decide differently."""

from timestone.errors import TimestoneError


class TieringError(TimestoneError):
    """The base of all errors of tiering; never raised itself."""


class BucketError(TieringError):
    """The base of what an object store answers instead of doing what it was asked; never raised itself."""


class BucketUnavailable(BucketError):
    """The object store did not answer, or answered that it cannot now. Try again later; nothing local is affected."""


class BucketRefused(BucketError):
    """The object store refuses the credentials, or lacks the right for this call. The same call will fail again until
    they are changed."""


class ObjectMissing(BucketError):
    """No object has this name."""


class ObjectExists(BucketError):
    """The object to create exists already."""


class UnfitBucket(TieringError):
    """The object store cannot do what tiering rests on: of several writers that make one object, exactly one may
    win. Use another server, or another version of it."""


class PrefixInUse(TieringError):
    """Another store uploads to this prefix, or has done so since this one did. Two would delete each other's
    history: stop the other one, or choose another prefix."""


class LeaderChanged(TieringError):
    """This replica of a log does not upload it any more: another one leads, or it leads in another generation."""


class NoHistory(TieringError):
    """The URL has no log, or not the one that was asked for."""


class HistoryDiverged(TieringError):
    """A log and its history in the bucket hold different records at the same offsets. Restore the log from the
    bucket, or choose another prefix."""


class DamagedObject(TieringError):
    """An object is not what was uploaded: wrong length, wrong checksum, or not in the expected format."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason

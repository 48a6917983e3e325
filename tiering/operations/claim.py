"""Taking over a prefix: after a restore, or when the store that uploaded before is gone for good."""

from pathlib import Path

import timestone
from timestone.disk.files import Files
from timestone.format.store_listing import logs_of_store

from ..buckets.bucket import Bucket
from ..errors import NoHistory
from ..uploading.ownership import ClaimFacts, Ownership, read_claim_facts


def claim_prefix(bucket: Bucket, directory: Path) -> ClaimFacts:
    """Let the store in `directory` continue the uploads below a prefix with its next start; who uploaded until now. A
    store that still uploads there stops when the next one begins.

    Raises NotAStore, StoreLocked while a process owns the store, NoHistory when no store has claimed the prefix,
    DamagedObject, BucketError, OSError."""
    logs_of_store(Files(), directory)
    with timestone.open(directory) as store:
        claim = Ownership(bucket, store.documents, store.now_us).adopt()
    if claim is None:
        raise NoHistory(
            f"{bucket.url}: no store has uploaded to this prefix, so there is nothing to take over"
        )
    return read_claim_facts(bucket, claim.generation)

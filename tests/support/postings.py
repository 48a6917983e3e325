"""Postings for tests."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import timestone
from timestone.spool.format import NO_TOPIC_NUMBER, Frame, Posting
from timestone.spool.producer import SpoolProducer

LOG = "commands"


def frame(values: Sequence[bytes], topic: str | None = "devices/1/cmd") -> Frame:
    """Return one frame of plain records."""
    count = len(values)
    return Frame(
        () if topic is None else (topic,),
        np.array([len(value) for value in values], dtype=np.uint32),
        np.full(count, NO_TOPIC_NUMBER if topic is None else 0, dtype=np.uint32),
        np.zeros(count, dtype=np.uint16),
        np.zeros(count, dtype=np.uint16),
        b"".join(values),
    )


def staged(
    path: Path, parts: Sequence[Sequence[Frame]], *, number: int = 0, remembered: bool = True
) -> Posting:
    """Return a posting whose parts are staged, ready to be posted."""
    poster = SpoolProducer(path, timestone.open)
    names = tuple(poster.stage("test", frames) for frames in parts)
    return Posting(LOG, 0, "producer", number, names, remembered)

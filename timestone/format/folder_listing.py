"""Which segments the folder of a log has, told from names alone."""

from collections.abc import Sequence
from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names
from timestone.format.deleted_files import deleted_up_to


def base_offsets(files: Files, folder: Path) -> tuple[list[int], list[str]]:
    """The base offsets that have an index or a segment in the folder, sorted, and the names of strangers. Those
    that retention has deleted are not among them, although some of their files may be there."""
    return listed_bases(files.names(folder))


def listed_bases(present: Sequence[str]) -> tuple[list[int], list[str]]:
    """The same of the names that a folder had when it was listed."""
    bases: set[int] = set()
    strangers = []
    deleted = deleted_up_to(present)
    for name in present:
        base = names.parse_pair_base(name)
        if base is not None:
            if base > deleted:
                bases.add(base)
        elif not _is_known(name):
            strangers.append(name)
    return sorted(bases), strangers


def is_of_a_log(present: Sequence[str]) -> bool:
    """May a folder with these names be a log's? Yes when it is empty: one that is just being made, or has lost all
    its files. No when it has files of strangers only."""
    return not present or any(_is_known(name) or names.parse_pair_base(name) is not None for name in present)


def is_begun(present: Sequence[str]) -> bool:
    """Is there nothing yet of what a log consists of? The dictionary of topics comes first, and appears whole."""
    return set(present) <= {names.TOPICS_NAME + names.TEMPORARY_SUFFIX}


def known_missing(present: Sequence[str]) -> list[tuple[int, int]]:
    """Of the names that a folder had: the offsets [first, end) that a recovery has found lost to damage, in order."""
    return sorted(found for name in present if (found := names.parse_missing(name)) is not None)


def _is_known(name: str) -> bool:
    """A file of ours beside the segments: of the log, or the unfinished index of a seal, what a recovery has put
    aside, what waits to be unlinked."""
    if name in (names.TOPICS_NAME, names.DOUBT_NAME) or names.parse_dictionary(name) is not None:
        return True
    if names.parse_missing(name) is not None:
        return True
    return name.endswith((names.TEMPORARY_SUFFIX, names.DELETED_SUFFIX)) or names.LOST_SUFFIX in name

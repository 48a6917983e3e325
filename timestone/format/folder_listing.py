"""Segments of a log by the file names in its folder."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from timestone.disk.files import Files
from timestone.format import names
from timestone.format.deleted_files import deleted_up_to


def base_offsets(files: Files, folder: Path) -> tuple[list[int], list[str]]:
    """Return the sorted base offsets with an index or a segment in the folder, and the names of foreign files.
    Deleted segments are excluded, although some of their files may exist."""
    return listed_bases(files.names(folder))


def listed_bases(present: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the same for the names of an earlier listing."""
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
    """Return whether a folder with these names may belong to a log. True for an empty one, which is being created or
    has lost all files; False if it has foreign files only."""
    return not present or any(_is_known(name) or names.parse_pair_base(name) is not None for name in present)


def is_begun(present: Sequence[str]) -> bool:
    """Return whether no part of a log exists yet. The topic dictionary is created first, and atomically."""
    return set(present) <= {names.TOPICS_NAME + names.TEMPORARY_SUFFIX}


def known_missing(present: Sequence[str]) -> list[tuple[int, int]]:
    """Return the offsets [first, end) recorded as lost to damage, in order."""
    return sorted(found for name in present if (found := names.parse_missing(name)) is not None)


def halves_aside(present: Sequence[str]) -> set[int]:
    """Return the base offsets of which one file was put aside by a recovery, or is not renamed yet. The other file
    alone does not prove a loss."""
    return {half[1] for name in present if (half := names.parse_aside(name)) is not None}


def _is_known(name: str) -> bool:
    """Return whether a file beside the segments belongs to the log: its dictionary, an unfinished index, a
    quarantined file, or one waiting to be unlinked."""
    if name in (names.TOPICS_NAME, names.DOUBT_NAME) or names.parse_dictionary(name) is not None:
        return True
    if names.parse_missing(name) is not None:
        return True
    return name.endswith((names.TEMPORARY_SUFFIX, names.DELETED_SUFFIX)) or names.LOST_SUFFIX in name


def newest_generations(present: Iterable[str]) -> dict[int, int]:
    """Return the segments that were rewritten, or are being rewritten, with the highest generation among their
    files."""
    newest: dict[int, int] = {}
    for name in present:
        # Counted first: of ten thousand names, few or none belong to rewritten segments.
        if name.count(".") > 1 and (segment := names.parse_segment(name)) is not None:
            newest[segment[0]] = max(segment[1], newest.get(segment[0], 0))
    return newest

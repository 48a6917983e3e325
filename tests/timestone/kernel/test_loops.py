"""The choice of a kernel, and the two kernels compared on generated inputs."""

import gc
import importlib.util
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timestone.kernel import loops, open_records, pure
from timestone.kernel.crc import crc32c
from timestone.kernel.entries import ENTRY_BYTES

BUILT = importlib.util.find_spec("timestone.kernel._kernel") is not None
native: Any = importlib.import_module("timestone.kernel._kernel") if BUILT else SimpleNamespace(INTERFACE=0)
needs_native = pytest.mark.skipif(not BUILT, reason="the compiled kernel was not built: make install")

FUNCTIONS = (
    "gathered",
    "drop_spare",
    "encoded_names",
    "pwritev",
    "fill_entries",
    "entry_crcs",
    "valid_count",
    "proven_count",
    "fitting",
)


@needs_native
@given(st.lists(st.tuples(st.integers(-(1 << 30), 1 << 50), st.integers(0, 1000))))
def test_twins_count_durations_alike(observed: list[tuple[int, int]]) -> None:
    ours, theirs = pure.DurationCounts(), native.DurationCounts()
    for twin in (ours, theirs):
        for duration_ns, count in observed:
            twin.observe(duration_ns, count)
        twin.observe(7)
        more = type(twin)()
        more.observe(9_000_000, 2)
        twin.add(more)
    assert (ours.counts, ours.sum_ns) == (theirs.counts, theirs.sum_ns)
    assert sum(ours.counts) == sum(count for _, count in observed) + 3


def name_in_a_new_process(**environment: str) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from timestone.kernel import loops; print(loops.NAME, loops.REASON, sep='|')",
        ],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_functions_of_the_chosen_kernel_are_offered() -> None:
    chosen = pure if loops.REASON else native
    assert [getattr(loops, name) for name in FUNCTIONS] == [getattr(chosen, name) for name in FUNCTIONS]
    chosen = open_records if loops.REASON else native
    assert (loops.OpenRecords, loops.SegmentRecords) == (chosen.OpenRecords, chosen.SegmentRecords)
    assert (loops.NAME == "native") is (loops.REASON == "")


def test_environment_variable_selects_python() -> None:
    assert name_in_a_new_process(TIMESTONE_PURE="1") == "pure Python|TIMESTONE_PURE is set"


@needs_native
@pytest.mark.parametrize("value", ["", "0", "no"])
def test_unset_environment_variable_keeps_the_compiled_kernel(value: str) -> None:
    assert name_in_a_new_process(TIMESTONE_PURE=value) == "native|"


@pytest.mark.slow
@pytest.mark.parametrize("package", ["timestone", "mqtt_front"])
def test_development_mode_reports_the_kernel_of_the_first_import(package: str) -> None:
    def reported(program: str, *options: str) -> str:
        words = [sys.executable, *options, "-c", program]
        return subprocess.run(words, stderr=subprocess.PIPE, text=True, check=True).stderr

    place = f"{package}.kernel in {Path(loops.__file__).parents[2] / package / 'kernel'}"
    program = f"import {package}.kernel.loops"
    kernel = importlib.import_module(f"{package}.kernel.loops")
    running = f"pure Python: {kernel.REASON}" if kernel.REASON else "compiled"
    assert f"{place}: {running}\n" in reported(program, "-X", "dev")
    if not loops.PURE_WANTED:
        hidden = f"import sys; sys.modules['{package}.kernel._kernel'] = None; {program}"
        assert f"{place}: pure Python: no compiled kernel was built\n" in reported(hidden, "-X", "dev")
    assert reported(program) == ""


def test_missing_kernel_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "PURE_WANTED", False)
    assert loops.choose("timestone._never_built", 1) == (None, "no compiled kernel was built")


def test_kernel_of_older_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """An editable install leaves the compiled module beside sources that continue changing."""
    stale = ModuleType("stale_kernel")
    stale.INTERFACE = 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stale_kernel", stale)
    monkeypatch.setattr(loops, "PURE_WANTED", False)
    assert loops.choose("stale_kernel", 2) == (None, "stale_kernel was built from other sources")
    assert loops.choose("stale_kernel", 1) == (stale, "")


# Differential fuzzing: the same arguments, good and bad, give the same bytes or the same kind of error.


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return call(*arguments, **options)
    except (ValueError, OverflowError, TypeError) as error:
        return type(error)


def assert_same(function: str, *arguments: Any, **options: Any) -> Any:
    expected = outcome(getattr(pure, function), *arguments, **options)
    assert outcome(getattr(native, function), *arguments, **options) == expected
    return expected


NUMBERS = st.integers(-2, 2**65) | st.sampled_from([0, 1, 2**16, 2**31, 2**32 - 1, 2**32, 2**63, 2**64])
SMALL = st.integers(0, 1000)
PAYLOADS = st.lists(st.binary(max_size=40), max_size=30)


def columns(kind: str, count: int) -> st.SearchStrategy[Any]:
    most = np.iinfo(kind).max
    each = st.lists(st.integers(0, int(most)), min_size=count, max_size=count)
    return st.integers(0, int(most)) | each.map(lambda values: np.array(values, dtype=kind))


@needs_native
@given(st.lists(st.binary(max_size=40) | st.none(), max_size=30).map(tuple) | PAYLOADS, st.integers(-1, 50))
def test_twins_gather_payloads_alike(payloads: Any, apart_bytes: int) -> None:
    assert_same("gathered", payloads, apart_bytes)


NAMES = st.text("abé/", max_size=3)


@needs_native
@given(
    st.lists(st.tuples(NAMES, st.integers(-1, 2**32)), max_size=80),
    st.lists(NAMES, max_size=80),
    st.sampled_from([None, 7, b"a", ["a"]]),
)
def test_twins_look_up_names_alike(added: list[tuple[str, int]], names: list[str], junk: Any) -> None:
    ours, theirs = pure.NumberedNames(), native.NumberedNames()

    def same(method: str, *arguments: Any) -> None:
        expected = outcome(getattr(ours, method), *arguments)
        assert outcome(getattr(theirs, method), *arguments) == expected

    for name, number in added:
        same("add", name, number)
        assert len(ours) == len(theirs)
        same("find", name)
    for name in names:
        same("find", name)
        same("find_all", tuple([name] * 40))
    same("find_all", tuple(names))
    same("find_all", tuple(name for name, number in added if number in range(2**32)) * 2)
    for method in ("add", "find", "find_all"):
        same(method, junk, *([1] if method == "add" else []))


@needs_native
@given(
    st.lists(st.none() | NAMES | st.just("é" * 40_000), max_size=9),
    st.integers(-1, 2**32),
    st.integers(-1, 2**32),
)
def test_twins_encode_names_alike(names: list[str | None], first_id: int, salt_crc: int) -> None:
    expected = outcome(pure.encoded_names, names, first_id, salt_crc)
    assert outcome(native.encoded_names, names, first_id, salt_crc) == expected


@st.composite
def pieces_of(draw: st.DrawFn, payloads: list[bytes]) -> tuple[bytes, ...]:
    """The payloads in pieces, mostly such that none lies across two."""
    cuts = sorted(draw(st.sets(st.integers(0, len(payloads)), max_size=4)))
    borders = [0, *cuts, len(payloads)]
    pieces = [b"".join(payloads[first:last]) for first, last in itertools.pairwise(borders)]
    if draw(st.integers(0, 9)) == 0:
        together, cut = b"".join(payloads), draw(st.integers(0, 40))
        pieces = [together[:cut], together[cut:]]
    return tuple(pieces)


@pytest.mark.slow
@needs_native
@given(st.data(), PAYLOADS)
def test_twins_make_the_same_entries_of_valid_batches(data: st.DataObject, payloads: list[bytes]) -> None:
    count = len(payloads)
    made = assert_same(
        "fill_entries",
        data.draw(pieces_of(payloads)),
        np.array([len(payload) for payload in payloads], dtype="<u4").tobytes(),
        data.draw(columns("<u4", count)),
        data.draw(columns("<u2", count)),
        data.draw(columns("<u2", count)),
        position=data.draw(st.integers(0, 2**32 - 1300)),
        timestamp_us=data.draw(st.integers(-(2**63), 2**63 - 1)),
        ordinal=data.draw(st.integers(0, 2**32 - 40)),
        salt_crc=data.draw(st.integers(0, 2**32 - 1)),
        data_crcs=data.draw(st.just(b"") | st.binary(min_size=4 * count, max_size=4 * count)),
    )
    assert made is ValueError or len(made) == count * ENTRY_BYTES


JUNK = st.binary(max_size=70) | NUMBERS | st.none() | st.just("text") | st.just(1.5)


@needs_native
@given(
    st.lists(st.binary(max_size=20), max_size=3).map(tuple),
    JUNK,
    JUNK,
    JUNK,
    JUNK,
    JUNK,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
)
def test_twins_refuse_invalid_batches_alike(
    pieces: tuple[bytes, ...],
    lengths: Any,
    topics: Any,
    headers: Any,
    flags: Any,
    crcs: Any,
    position: int,
    time: int,
    ordinal: int,
    salt: int,
) -> None:
    if isinstance(lengths, int):
        lengths = np.array([min(max(lengths, 0), sum(map(len, pieces)))], dtype="<u4").tobytes()
    options = {"position": position, "timestamp_us": time, "ordinal": ordinal, "salt_crc": salt}
    assert_same("fill_entries", pieces, lengths, topics, headers, flags, **options)
    assert_same("fill_entries", pieces, lengths, topics, headers, flags, data_crcs=crcs, **options)


def mutated(made: bytes, flips: list[tuple[int, int]], cut: int) -> bytes:
    raw = bytearray(made)
    for at, bits in flips:
        if raw:
            raw[at % len(raw)] ^= bits
    return bytes(raw[: max(0, len(raw) - cut)])


FLIPS = st.lists(st.tuples(SMALL, st.integers(0, 255)), max_size=3)
CUTS = st.sampled_from([0, 0, 0, 1, 32])


@needs_native
@given(PAYLOADS, FLIPS, CUTS, FLIPS, CUTS, st.integers(0, 40), st.integers(0, 40))
def test_twins_find_the_same_damage(
    payloads: list[bytes],
    flips: list[tuple[int, int]],
    cut: int,
    data_flips: list[tuple[int, int]],
    data_cut: int,
    position: int,
    ordinal: int,
) -> None:
    data = b"".join(payloads)
    lengths = np.array([len(payload) for payload in payloads], dtype="<u4").tobytes()
    made = pure.fill_entries((data,), lengths, 1, 0, 0, position=20, timestamp_us=9, ordinal=20, salt_crc=5)
    entries, stored = mutated(made, flips, cut), mutated(data, data_flips, data_cut)
    assert_same("entry_crcs", entries, 5, 20)
    assert_same("valid_count", entries, 5, 20)
    assert_same("valid_count", entries, 5, ordinal)
    assert_same("proven_count", entries, stored, 20)
    assert_same("proven_count", entries, stored, position)
    for count, place in ((len(entries) // ENTRY_BYTES, 0), (ordinal, position)):
        assert_same("fitting", entries, place, count, data_cut * 10)


@needs_native
@given(st.binary(max_size=200), NUMBERS, NUMBERS, st.binary(max_size=64))
def test_twins_judge_random_bytes_alike(entries: bytes, salt: int, ordinal: int, data: bytes) -> None:
    assert_same("entry_crcs", entries, 7, ordinal)
    assert_same("entry_crcs", entries, salt, 7)
    assert_same("valid_count", entries, 7, ordinal)
    assert_same("proven_count", entries, data, 0)
    assert_same("proven_count", b"", data, ordinal)


# The checksum, which the compiled kernel makes itself.


@needs_native
@given(st.binary(max_size=1200), st.binary(max_size=1200))
def test_compiled_checksum_can_be_continued(first: bytes, second: bytes) -> None:
    assert native.crc32c(second, crc32c(first)) == crc32c(first + second)


@needs_native
def test_both_compiled_checksums_agree_with_the_library() -> None:
    for size in (*range(1100), 2016, 12_287, 12_288, 12_289, 30_001, 300_000):
        data = np.random.default_rng(size).bytes(size)
        assert native.crc32c(data) == native.crc32c_portable(data) == crc32c(data), size


@needs_native
@pytest.mark.parametrize("skip", range(9))
def test_checksum_does_not_depend_on_alignment(skip: int) -> None:
    view = memoryview(np.random.default_rng(1).bytes(3000))[skip:]
    assert native.crc32c(view) == native.crc32c_portable(view) == crc32c(view)


# Memory of large results, which the compiled kernel uses again.

BATCH = [bytes([number % 251]) * 100 for number in range(1024)]


def gathered_batch(payloads: list[bytes] = BATCH) -> bytes:
    (piece,), *_ = native.gathered(payloads, 512)
    return bytes(piece)


@needs_native
def test_batch_memory_is_reused_when_no_reference_is_left() -> None:
    native.drop_spare()
    place = id(gathered_batch())
    assert id(gathered_batch()) == place
    held = memoryview(gathered_batch())[5:10]
    assert id(gathered_batch()) != place
    assert bytes(held) == BATCH[0][5:10]


@needs_native
def test_reused_memory_has_no_old_content() -> None:
    native.drop_spare()
    hash(gathered_batch())
    others = [bytes([7]) * 99] * 1024  # somewhat less
    piece = gathered_batch(others)
    copy = b"".join(others)
    assert (len(piece), piece, hash(piece)) == (len(copy), copy, hash(copy))


@needs_native
def test_list_of_payloads_may_be_cleared_by_the_garbage_collector() -> None:
    """The collector runs code of others, which may change the list that is being copied."""
    parts = [bytes([number]) * 99 for number in range(40)]
    payloads: list[bytes] = []

    def clear(*_: object) -> None:
        payloads.clear()

    thresholds = gc.get_threshold()
    gc.callbacks.append(clear)
    try:
        for times in (5, 50, 300, 1000, 3000):  # of some of these sizes, no batch was made before
            payloads[:] = [part * times for part in parts]
            gc.set_threshold(1)
            (piece,), *_ = native.gathered(payloads, 1 << 20)
            gc.set_threshold(*thresholds)
            assert piece == b"".join(part * times for part in parts), times
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(clear)


@needs_native
def test_kept_batch_does_not_prevent_reuse_of_others() -> None:
    native.drop_spare()
    kept = [gathered_batch(), gathered_batch()]
    places = {id(gathered_batch()) for _ in range(50)}
    assert len(places) == 1
    assert kept == [b"".join(BATCH)] * 2


@needs_native
def test_spare_memory_is_released_on_request() -> None:
    native.drop_spare()
    kept, gone = gathered_batch(), gathered_batch()
    size = len(gone)
    del gone
    assert size <= native.drop_spare() <= size * 5 // 4 + len(kept) * 5 // 4
    assert native.drop_spare() == 0
    assert kept == b"".join(BATCH)


@needs_native
def test_referenced_memory_is_never_overwritten() -> None:
    """Batches of all sizes are made and dropped in random order; the remaining ones must not change."""
    source = np.random.default_rng(5)
    held: dict[int, tuple[bytes, bytes]] = {}
    for number in range(2000):
        payloads = [source.bytes(int(source.integers(1, 400)))] * int(source.integers(2, 600))
        (piece,), lengths, _, crcs = native.gathered(payloads, 512)
        entries = native.fill_entries(
            (piece,), lengths, 1, 0, 0, position=0, timestamp_us=1, ordinal=0, salt_crc=7, data_crcs=crcs
        )
        assert native.proven_count(entries, piece, 0) == len(payloads)
        held[int(source.integers(0, 30))] = (entries, piece)
        if number % 100 == 0:
            native.drop_spare()
        assert all(native.proven_count(*one, 0) == len(one[0]) // ENTRY_BYTES for one in held.values())

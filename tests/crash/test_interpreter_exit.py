"""The exit of a program that has a store open: it ends, and the store is in the state of a clean stop.

A call in the `__del__` of a global is made after the threads of the store have stopped. Calls that need a thread waited
endlessly, including `append` at level `synced`. Therefore the store is closed before, and each such call raises an
error.
"""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import timestone
from timestone.repair.inspection import EXIT_CLEAN, inspect_store

pytestmark = pytest.mark.crash

TIMEOUT_S = 100

CALLS = {
    "append": 'log.append(b"late")',
    "append_many": 'log.append_many([b"late"], ack="written")',
    "submit": 'log.submit(draft([b"late"], 0xFFFFFFFF), ack="synced").wait()',
    "sync": "log.sync()",
    "roll": "log.roll()",
    "read": "log.read(0)",
    "wait": 'log.reader("latest").wait()',
    "new log": 'store.log("other")',
    "delete_log": 'store.delete_log("a")',
    "accept_postings": "store.accept_postings()",
    "scrub": "store.scrub()",
}


def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)


def test_process_ends_when_the_destructor_of_a_global_uses_an_open_store(tmp_path: Path) -> None:
    calls = ", ".join(f"{name!r}: lambda store, log, draft: {call}" for name, call in CALLS.items())
    ended = run(
        f"""
        import sys
        import timestone

        class Recorder:
            def __init__(self):
                self.modules = sys, timestone.WriteBatch, timestone.open
                self.store = timestone.open({str(tmp_path / "store")!r}, min_free_bytes=0)
                self.log = self.store.log("a")
                self.log.append(b"0")
                self.log.append(b"1", ack="written")

            def __del__(self):
                sys, draft, again = self.modules
                for name, call in {{{calls}}}.items():
                    try:
                        call(self.store, self.log, draft)
                    except Exception as error:
                        print(name, type(error).__name__)
                try:
                    again({str(tmp_path / "other")!r})
                except RuntimeError:
                    print("open refused")
                self.store.close()
                print("finalizing", sys.is_finalizing())

        recorder = Recorder()
        """
    )
    assert ended.stdout.splitlines() == [
        *(f"{name} StoreClosed" for name in CALLS),
        "open refused",
        "finalizing True",
    ]


@pytest.mark.parametrize(
    "end", ["pass", "raise SystemExit(0)", "import atexit; atexit.register(log.append, b'3')"]
)
def test_store_is_closed_when_the_program_ends_without_closing_it(tmp_path: Path, end: str) -> None:
    root = tmp_path / "store"
    ended = run(
        f"""
        import timestone
        store = timestone.open({str(root)!r}, min_free_bytes=0)
        log = store.log("a")
        log.append(b"0")
        log.append(b"1", ack="written")
        log.submit(timestone.WriteBatch([b"2"], 0xFFFFFFFF), ack="memory")
        {end}
        """,
        "-Walways::ResourceWarning",
    )
    assert f"ResourceWarning: unclosed store {root}" in ended.stderr
    assert inspect_store(root).exit_code == EXIT_CLEAN
    with timestone.open(root, min_free_bytes=0, recovery="strict") as store:
        expected = [b"0", b"1", b"2", *[b"3"] * ("atexit" in end)]
        assert [record.payload for record in store.log("a").reader()] == expected


def test_process_ends_when_daemon_threads_append_to_an_open_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    ended = run(
        f"""
        import os, sys, threading, time, types
        import timestone
        store = timestone.open({str(root)!r}, min_free_bytes=0, sync_interval_ms=1)
        log = store.log("a")

        def append(ack):
            while True:
                os.write(1, b"%d " % log.append(b"x", ack=ack))  # no lock that a thread may take along

        class Recorder:
            log = log

            def __del__(self, write=os.write, closed=timestone.StoreClosed):
                try:
                    self.log.append(b"late")
                except closed:
                    write(1, b"closed")

        # In a module of its own: threads that are stopped in a call keep the globals of this one.
        sys.modules["of its own"] = types.ModuleType("of its own")
        sys.modules["of its own"].recorder = Recorder()
        for ack in ("written", "synced") * 2:
            threading.Thread(target=append, args=[ack], daemon=True).start()
        while log.end_offset < 200:
            time.sleep(0.001)
        """
    )
    assert "closed" in ended.stdout  # perhaps with offsets behind it, of appends that had ended before
    assert inspect_store(root).exit_code == EXIT_CLEAN
    with timestone.open(root, min_free_bytes=0) as store:
        assert store.log("a").end_offset > max(map(int, re.findall(r"\d+", ended.stdout)))

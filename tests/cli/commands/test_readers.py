"""`timestone readers` as a process, beside an owner and without one."""

import json
import re
import shlex
import sqlite3
from pathlib import Path

import pytest

import timestone
from tests.cli.processes import timestone as command
from tests.support.stores import fill
from timestone import Pin, ReaderId

BILLING, AUDIT = ReaderId("telemetry", 0, "billing"), ReaderId("telemetry", 0, "audit")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A reader with a pin, one without, and one of another log."""
    fill(tmp_path / "data", 30)
    with timestone.open(tmp_path / "data") as store:
        store.log("other").append(b"x")
        store.commit_readers({BILLING: 10}, pin=Pin(max_bytes=5000))
        store.commit_readers({AUDIT: 30, BILLING._replace(log="other"): 1})
    return tmp_path / "data"


def test_readers_are_listed_with_what_they_pin(data: Path, tmp_path: Path) -> None:
    done = command("readers", "data", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    words = [line.split()[:4] for line in done.stdout.splitlines() if "telemetry-0" in line]
    assert ["audit", "telemetry-0", "30", "0"] in words
    assert ["billing", "telemetry-0", "10", "20"] in words
    assert "reader 'billing' of telemetry-0 pins retention at offset 10" in done.stdout
    assert "--release" in done.stdout
    assert "telemetry" not in command("readers", "data", "--log", "other", cwd=tmp_path).stdout


@pytest.mark.parametrize("words", [("inspect", "my data"), ("readers", "my data")])
def test_command_that_the_sentence_about_a_pin_names_releases_it(
    data: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    data.rename(tmp_path / "my data")
    printed = " ".join(command(*words, cwd=tmp_path).stdout.split())
    named = re.findall(r"release it with `timestone ([^`]*)`", printed)
    assert [shlex.split(one) for one in named] == [["readers", "my data", "--release", "billing"]]
    assert "pin released" in command(*shlex.split(named[0]), cwd=tmp_path).stdout


def test_pin_is_released_beside_the_owner_and_the_place_stays(data: Path, tmp_path: Path) -> None:
    with timestone.open(data) as store:
        store.commit_readers({BILLING: 10}, pin=Pin(max_bytes=5000), metadata={BILLING: "host 7"})
        done = command("readers", "data", "--release", "billing", cwd=tmp_path)
        assert done.stdout.splitlines() == [
            "reader 'billing' of other-0 has no pin",
            "reader 'billing' of telemetry-0: pin released; its position stays at offset 10",
        ]
        found = store.committed(BILLING)
        assert found is not None
        assert (found.offset, found.pin, found.metadata) == (10, None, "host 7")


def test_reader_is_forgotten_on_the_logs_that_were_named(data: Path, tmp_path: Path) -> None:
    done = command("readers", "data", "--forget", "billing", "--log", "telemetry", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "reader 'billing' of telemetry-0 forgotten\n")
    with timestone.view(data) as view:
        assert view.readers().keys() == {AUDIT, BILLING._replace(log="other")}


def test_a_reader_with_an_invalid_commit_is_reported_and_can_be_forgotten(data: Path, tmp_path: Path) -> None:
    with sqlite3.connect(data / "catalog.db") as connection:
        connection.execute(
            "UPDATE documents SET value = replace(value, '10', '12') WHERE key = 'telemetry-0/billing'"
        )
    connection.close()
    for words in ((), ("--forget", "billing")):
        done = command("readers", "data", *words, cwd=tmp_path)
        assert done.returncode == 1
        assert "catalog.db" in done.stderr
        assert "'telemetry-0/billing' of the space 'readers'" in done.stderr
    done = command("readers", "data", "--forget", "billing", "--log", "telemetry-0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "reader 'billing' of telemetry-0 forgotten\n")
    assert "audit" in command("readers", "data", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--release", "biling"), 1, "no reader 'biling'; the store has audit, billing"),
        (("--log", "nothing"), 1, "no log named 'nothing' in this store; it has other-0, telemetry-0"),
        (
            ("--forget", "billing", "--log", "nothing"),
            1,
            "no log named 'nothing' in this store; it has other-0",
        ),
        (
            ("--release", "billing", "--log", "nothing"),
            1,
            "no log named 'nothing' in this store; it has other-0",
        ),
        (("--forget", "billing", "--release", "billing"), 64, "--release and --forget exclude each other"),
    ],
)
def test_what_is_not_there_is_one_line(
    data: Path, tmp_path: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    for json_too in ((), ("--json",)):
        done = command("readers", "data", *words, *json_too, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, "")
        assert text in done.stderr
        assert done.stderr.count("\n") <= 2


def test_json_has_the_readers_as_inspect_has_them(data: Path, tmp_path: Path) -> None:
    done = command("readers", "data", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    inspected = json.loads(command("inspect", "data", "--json", cwd=tmp_path).stdout)
    assert found == {"path": "data", "readers": inspected["readers"]}
    (billing,) = (one for one in found["readers"] if (one["log"], one["name"]) == ("telemetry", "billing"))
    assert (billing["partition"], billing["offset"], billing["lag"], billing["missed"]) == (0, 10, 20, 0)
    assert billing["pin"] == {"max_age_ms": 0, "max_bytes": 5000}
    chosen = json.loads(command("readers", "data", "--log", "other", "--json", cwd=tmp_path).stdout)
    assert [one["log"] for one in chosen["readers"]] == ["other"]


def test_json_without_readers_is_an_empty_list(tmp_path: Path) -> None:
    fill(tmp_path / "data", 1)
    done = command("readers", "data", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {"path": "data", "readers": []}


def test_json_says_what_was_done_to_which_reader(data: Path, tmp_path: Path) -> None:
    done = command("readers", "data", "--release", "billing", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    billing = {"partition": 0, "name": "billing"}
    assert json.loads(done.stdout)["readers"] == [
        {**billing, "log": "other", "offset": 1, "is_released": False},
        {**billing, "log": "telemetry", "offset": 10, "is_released": True},
    ]
    done = command("readers", "data", "--forget", "billing", "--log", "telemetry", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["readers"] == [{**billing, "log": "telemetry", "is_forgotten": True}]
    with timestone.view(data) as view:
        assert view.readers().keys() == {AUDIT, BILLING._replace(log="other")}

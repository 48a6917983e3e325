"""`timestone tier` as a process, and its output."""

import json
from pathlib import Path

import pytest

import timestone
from tests.cli.processes import timestone as command
from tests.support.buckets import upload_store
from tests.support.s3_server import BUCKET, SECRET, S3Server
from tests.support.waiting import wait_for
from tests.tiering.conftest import append, s3, s3_environment  # noqa: F401 - fixtures
from timestone import LogConfig
from timestone_cli.main import main
from timestone_tiering.buckets.bucket_url import open_bucket


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A bucket with 30 records of `telemetry`, of the store `data`."""
    url = f"file://{tmp_path}/bucket"
    fill(tmp_path, url)
    return url


def fill(folder: Path, url: str) -> None:
    with timestone.open(folder / "data", log=LogConfig(segment_entries=10)) as store:
        append(store.log("telemetry"), 31)
        upload_store(store, open_bucket(url))
        store.log("telemetry").roll()


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["tier", *words])
    return code, capsys.readouterr().out


def test_status_of_a_bucket_and_of_a_store(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(capsys, "status", url)
    assert code == 0 and " ".join(out.split()).startswith(f"{url}: 1 log, ") and "not uploaded" not in out
    code, out = run(capsys, "status", str(tmp_path / "data"))
    assert code == 0 and "not uploaded" in out and "1 segment, " in out
    code, out = run(capsys, "status", str(tmp_path / "data"), "--json")
    (bucket,) = json.loads(out)["buckets"]
    assert bucket["url"] == url and bucket["is_own_claim"] is True
    assert bucket["logs"][0]["end_offset"] == 30
    assert bucket["logs"][0]["waiting"]["segment_count"] == 1


def test_verify_says_clean_or_names_object_and_offset(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(capsys, "verify", url)
    assert code == 0 and out.splitlines()[-1] == "clean: 9 objects verified"
    path = sorted((tmp_path / "bucket").rglob("*.segment"))[1]
    path.write_bytes(b"X" + path.read_bytes()[1:])
    code, out = run(capsys, "verify", url)
    assert code == 3
    assert path.name in out and "offset 10: " in " ".join(out.split())
    code, out = run(capsys, "verify", url, "--json", "--log", "telemetry")
    (damage,) = json.loads(out)["logs"][0]["damage"]
    assert code == 3
    assert (damage["first_offset"], damage["end_offset"]) == (10, 11)
    assert damage["object"].endswith(path.name)


def test_collect_lists_first_and_deletes_when_told(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "collect", url) == (0, "0 objects, 0 bytes, can be deleted with --delete\n")
    manifests = sorted((tmp_path / "bucket").rglob("manifest/*"))
    assert len(manifests) == 3
    code, out = run(capsys, "collect", url, "--older-than", "0")
    assert code == 0 and out.splitlines()[-1].startswith("2 objects, ")
    assert sorted((tmp_path / "bucket").rglob("manifest/*")) == manifests
    code, out = run(capsys, "collect", url, "--older-than", "0", "--json")
    assert len(json.loads(out)["logs"][0]["unused"]) == 2
    code, out = run(capsys, "collect", url, "--older-than", "0", "--delete")
    assert code == 0 and out.splitlines()[-1].endswith("deleted")
    assert sorted((tmp_path / "bucket").rglob("manifest/*")) == manifests[2:]


def test_forget_takes_only_a_log_that_the_store_has_deleted(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    done = command("tier", "forget", "data", "telemetry", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (64, "") and "delete it there first" in done.stderr
    assert main(["delete", data, "telemetry", "--yes"]) == 0
    capsys.readouterr()
    code, out = run(capsys, "forget", data, "telemetry", "--dry-run")
    assert code == 0 and out.startswith("telemetry-0: offsets [0, 30), ") and out.endswith("be forgotten\n")
    code, out = run(capsys, "forget", data, "telemetry", "--json")
    assert code == 0 and json.loads(out)["forgotten"] is True
    outputs: list[str] = []

    def is_empty() -> bool:
        code, out = run(capsys, "collect", url, "--older-than", "0", "--delete")
        assert code == 0
        outputs.append(out.splitlines()[-1])
        return not [path for path in (tmp_path / "bucket").rglob("*-0/**/*") if path.is_file()]

    wait_for(is_empty)  # what was replaced in the very moment of a collection is left to the next
    assert outputs[-1].startswith("1 object, "), "the manifest that hides the log goes last, by itself"


def test_download_is_read_like_a_store(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "copy")
    code, out = run(capsys, "download", url, target)
    assert code == 0
    assert out.splitlines() == [
        "telemetry-0: offsets [0, 30), 3 segments, 3 fetched now",
        f"complete: {target}",
    ]
    assert "nothing new" in run(capsys, "download", url, target)[1]
    assert json.loads(run(capsys, "download", url, target, "--json")[1])["logs"][0]["fetched_segments"] == 0
    assert main(["read", target, "telemetry", "--format", "raw"]) == 0
    assert capsys.readouterr().out.startswith("record 0")


def test_read_takes_the_url_of_a_bucket(url: str, tmp_path: Path) -> None:
    done = command("read", url, "telemetry", "--last", "2", "--format", "text", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "record 28\nrecord 29\n", "")
    for words, code, text in (
        ([url, "telemetr"], 1, f"no log 'telemetr' in {url}; did you mean 'telemetry'?"),
        ([url, "telemetry", "--follow"], 64, "--follow needs a store"),
        (["ftp://x/y", "telemetry"], 1, "invalid URL 'ftp://x/y'"),
    ):
        done = command("read", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, "")
        assert text in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_what_is_wrong_is_one_line_and_an_exit_code(url: str, tmp_path: Path) -> None:
    timestone.open(tmp_path / "empty").close()
    nothing = f"file://{tmp_path}/nothing"
    for words, code, text in (
        (["status", nothing], 64, "no log found there"),
        (["status", "nowhere"], 64, "nowhere is not a Timestone store"),
        (["status", ""], 64, "expected a path, got an empty text"),
        (["forget", "", "x"], 64, "expected a path, got an empty text"),
        (["status", "empty"], 64, "has not uploaded to a bucket"),
        (["status", "ftp://x/y"], 64, "invalid URL 'ftp://x/y'"),
        (["verify", nothing], 64, "no log found there"),
        (["verify", url, "--log", "x"], 64, "no log 'x'"),
        (["verify", "s3://"], 64, "expected the name of a bucket"),
        (["collect", nothing], 64, "no log found there"),
        (["download", url, "empty"], 1, "is a store"),
        (["claim", nothing, "empty"], 64, "nothing to take over"),
        (["claim", url, "nowhere"], 64, "nowhere is not a Timestone store"),
    ):
        done = command("tier", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, ""), words
        assert text in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_claim_says_whose_uploads_continue(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", url, str(tmp_path / "new")]) == 0
    capsys.readouterr()
    code, out = run(capsys, "claim", url, str(tmp_path / "new"))
    assert code == 0 and "continues the uploads to" in " ".join(out.split())
    code, out = run(capsys, "status", str(tmp_path / "new"))
    assert "which is this store" in " ".join(out.split())


@pytest.mark.slow
def test_commands_work_with_a_real_server_and_never_show_the_secret(
    s3_environment: S3Server,  # noqa: F811
    tmp_path: Path,
) -> None:
    url = f"s3://{BUCKET}/tier-commands"
    fill(tmp_path, url)
    texts = []
    for words, code in (
        (["tier", "status", url], 0),
        (["tier", "status", "data", "--json"], 0),
        (["tier", "verify", url], 0),
        (["tier", "collect", url, "--older-than", "0", "--delete"], 0),
        (["tier", "download", url, "copy"], 0),
        (["restore", url, "new"], 0),
        (["inspect", "new", "--deep"], 0),
        (["tier", "claim", url, "new"], 0),
        (["tier", "status", "s3://no-such-bucket/x", "--debug"], 1),
        (["tier", "status", url, "--endpoint", "http://127.0.0.1:1", "--debug"], 1),
    ):
        done = command(*words, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        texts += [done.stdout, done.stderr]
    wrong = {"AWS_SECRET_ACCESS_KEY": "canary-of-a-secret"}
    done = command("tier", "verify", url, "--debug", cwd=tmp_path, environment=wrong)
    assert done.returncode == 74
    texts += [done.stdout, done.stderr]
    for text in texts:
        assert SECRET not in text and "canary" not in text
    assert command("read", "new", "telemetry", "--format", "raw", cwd=tmp_path).stdout.count("record") == 30


def test_inspect_shows_a_bucket_as_a_store(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", url, "--segments", "--deep"]) == 0
    out = "".join(capsys.readouterr().out.split())  # a long path is broken anywhere
    assert out.startswith(f"{url}:1log,generation1,host") and "offsets[0,30)" in out
    assert main(["inspect", url, "--json", "--entries"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["base_offset"] for one in found["logs"][0]["segments"]] == [0, 10, 20]
    assert [one["offset"] for one in found["entries"]["telemetry-0"]] == list(range(30))
    assert main(["inspect", url, "--log", "other"]) == 64
    assert main(["inspect", f"file://{tmp_path}/nothing"]) == 64
    assert "no log found there" in capsys.readouterr().err


def test_named_readers_have_missed_nothing_that_the_bucket_has(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with timestone.open(tmp_path / "data") as store:
        log = store.log("telemetry")
        log.reader(name="late").commit(5)
        log.configure(local_retention_bytes=1)
        upload_store(store, open_bucket(url))
        log.apply_retention()
        assert log.local_start_offset > 5
    for words in (
        ["inspect", str(tmp_path / "data"), "--json"],
        ["readers", str(tmp_path / "data"), "--json"],
    ):
        assert main(words) == 0
        (reader,) = json.loads(capsys.readouterr().out)["readers"]
        assert reader["missed"] == 0
    assert main(["inspect", str(tmp_path / "data"), "--segments"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "in the bucket only" in out
    assert "log up to not uploaded" in out and "telemetry-0 31 nothing" in out
    with timestone.open(tmp_path / "data") as store:
        store.log("telemetry").append(b"new")
    assert main(["inspect", str(tmp_path / "data")]) == 0
    assert "telemetry-0 31 1 newest record" in " ".join(capsys.readouterr().out.split())

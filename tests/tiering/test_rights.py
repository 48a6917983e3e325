"""The requests that a store with a bucket makes: as many as docs/buckets.md counts, and with the rights that it names.

SeaweedFS has rights `Read`, `Write` (which is also deletion) and `List` in the place of single actions, so the actions
of a policy are compared with what a proxy has recorded."""

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

import timestone
from tests.house.pages import blocks
from tests.support.s3_proxy import S3Proxy, s3_proxy
from tests.support.s3_server import BUCKET, Identity, S3Server, s3_server
from tests.support.waiting import wait_for
from timestone import LogConfig
from timestone_cli.main import main
from timestone_tiering.config import TierConfig
from timestone_tiering.errors import BucketRefused
from timestone_tiering.tier import StoreTier

pytestmark = pytest.mark.slow
LIST = f"List:{BUCKET}"
OWNER = Identity("owner", {"owner-key": "secret"}, [LIST, f"Read:{BUCKET}/site*", f"Write:{BUCKET}/site*"])
READER = Identity("reader", {"reader-key": "secret"}, [LIST, f"Read:{BUCKET}/site*"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3"), OWNER, READER) as server:
        yield server


@pytest.fixture
def proxy(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    with s3_proxy(server.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


@contextmanager
def acting_as(user: Identity) -> Iterator[None]:
    ((key, secret),) = user.keys.items()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        yield


def policies() -> list[set[str]]:
    """The actions of the documents on the page: those of the owner, then those of a reader."""
    documents = [one.text for one in blocks(Path("docs/buckets.md")) if one.language == "json"]
    return [
        {
            action
            for statement in json.loads(one)["Statement"]
            for action in (
                [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
            )
        }
        for one in documents
    ]


def action_of(request: str) -> str:
    """What a policy calls a request."""
    method, _, rest = request.partition(" ")
    path, query = urlsplit(rest).path, parse_qs(urlsplit(rest).query, keep_blank_values=True)
    if "list-type" in query:
        return "s3:ListBucket"
    if method == "DELETE" and "uploadId" in query:
        return "s3:AbortMultipartUpload"
    if method == "DELETE" or (method == "POST" and "delete" in query):
        return "s3:DeleteObject"
    assert path.startswith(f"/{BUCKET}/site-"), request
    return {"GET": "s3:GetObject", "HEAD": "s3:GetObject"}.get(method, "s3:PutObject")


def actions_of(proxy: S3Proxy) -> set[str]:
    return {action_of(one) for one in proxy.requests}


def test_owner_and_reader_need_the_rights_of_the_page_and_no_others(
    proxy: S3Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"s3://{BUCKET}/site-{secrets.token_hex(4)}"
    owner, reader = policies()
    data, config = tmp_path / "data", TierConfig(url=url, remote_delete_delay_ms=0)
    with acting_as(OWNER), timestone.open(data, log=LogConfig(segment_bytes=12 << 20)) as store:
        log = store.log("telemetry")
        with StoreTier(store, config) as tier:
            for _ in range(3):
                log.append_many([b"x" * (1 << 20)] * 11, topic="a")
            wait_for(lambda: [one.segment_count for one in tier.log_status()] == [2])
            log.configure(retention_bytes=25 << 20)
            log.append(b"x" * (2 << 20))  # and the first segment goes
            wait_for(lambda: tier.status().deleted_objects > 0)
    # An upload that fails in its middle is aborted; that it was, the other tests do not have to wait for.
    assert actions_of(proxy) | {"s3:AbortMultipartUpload"} == owner

    proxy.requests.clear()
    with acting_as(READER):
        with timestone.view(url) as view:
            assert len(view.log("telemetry").read(view.log("telemetry").start_offset, max_records=1)) == 1
        for words in (["status"], ["verify"], ["collect"]):
            assert main(["tier", *words, url]) == 0, capsys.readouterr().err
        assert main(["tier", "download", url, str(tmp_path / "copy")]) == 0
        assert main(["restore", url, str(tmp_path / "new")]) == 0
        assert actions_of(proxy) == reader
        assert main(["tier", "collect", url, "--delete"]) != 0
        assert "AccessDenied" in capsys.readouterr().err
        with (
            timestone.open(tmp_path / "other") as other,
            pytest.raises(BucketRefused, match="AccessDenied"),
        ):
            StoreTier(other, TierConfig(url=f"{url}-2")).start()

    with acting_as(OWNER):
        proxy.requests.clear()
        assert main(["tier", "claim", url, str(tmp_path / "new")]) == 0
        assert main(["tier", "forget", url, "telemetry"]) == 0
        assert main(["tier", "collect", url, "--delete", "--older-than", "0"]) == 0
        assert actions_of(proxy) <= owner
        with timestone.open(tmp_path / "other") as other, pytest.raises(BucketRefused, match="AccessDenied"):
            StoreTier(other, TierConfig(url=f"s3://{BUCKET}/elsewhere")).start()


def test_a_segment_costs_the_requests_of_the_page(proxy: S3Proxy, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/site-{secrets.token_hex(4)}"
    with timestone.open(tmp_path / "data", log=LogConfig(segment_entries=10)) as store:
        log = store.log("telemetry")
        with StoreTier(store, TierConfig(url=url)) as tier:
            log.append_many([b"x"] * 10, topic="devices/0")
            log.append(b"x", topic="devices/0")
            wait_for(lambda: [one.end for one in tier.log_status()] == [10] and tier.status().state == "idle")
            assert len(proxy.requests) < 40
            proxy.requests.clear()
            log.append_many([b"x"] * 9, topic="devices/0")
            log.append_many([b"x"], topic="devices/0")
            wait_for(lambda: [one.end for one in tier.log_status()] == [20] and tier.status().state == "idle")
    kinds = [re.sub(r"/[^ ]*?(\.segment|\.index|\.zst|\?list).*", r"\1", one) for one in proxy.requests]
    assert kinds == ["PUT .segment", "PUT .index", "HEAD .segment", "HEAD .index", "GET ?list", "PUT .zst"]

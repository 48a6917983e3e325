"""Answers that etcd does not give: each is one error in one line."""

import asyncio

import pytest

from tests.cluster.etcd_server import answering
from timestone_cluster.errors import EtcdUnavailable, WatchEnded
from timestone_cluster.etcd import client
from timestone_cluster.etcd.client import EtcdClient

ODD = {
    "no JSON": b"<html>",
    "half of it": b'{"header": {"revision": "1"',
    "a list": b"[]",
    "nothing": b"null",
    "an error": b'{"error": "no", "code": 2}',
    "no revision": b'{"header": {}}',
    "a revision of letters": b'{"header": {"revision": "x"}, "ID": "x"}',
    "a key that is no base64": b'{"header": {"revision": "1"}, "kvs": [{"key": "?", "mod_revision": "1"}]}',
    "a pair without revisions": b'{"header": {"revision": "1"}, "kvs": [{"key": "YQ=="}], "responses": [{}, 1]}',
    "no responses": b'{"responses": [], "succeeded": true}',
    "no bytes of text": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "null in all fields": b'{"header": null, "kvs": null, "result": null, "ID": null, "responses": null}',
    "events of another kind": b'{"result": {"events": [1], "TTL": "x"}}',
    "too long": b'"' + b" " * (1 << 20),
}


@pytest.mark.parametrize("answer", ODD.values(), ids=ODD)
def test_odd_answer_is_refused_in_one_line_by(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_ANSWER_BYTES", 1 << 19)

    async def run() -> None:
        async with answering(answer) as url, EtcdClient([url]) as etcd:
            calls = [etcd.read("a/"), etcd.put("a/b", b""), etcd.grant(3), etcd.keep_alive(1)]
            *found, watch = await asyncio.gather(*calls, read_watch(etcd), return_exceptions=True)
            assert [type(one) for one in found] == [EtcdUnavailable] * 4, found
            assert isinstance(watch, EtcdUnavailable | WatchEnded)
            assert all(len(f"{one}") < 400 and "\n" not in f"{one}" for one in [*found, watch])

    asyncio.run(run())


async def read_watch(etcd: EtcdClient) -> None:
    async for _ in etcd.watch("a/", 1):
        pass

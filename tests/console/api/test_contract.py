"""The API answers requests as its OpenAPI document describes, also those that the document rules out."""

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from hypothesis import settings
from openapi_spec_validator import validate
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.support.console_client import Console, write_samples
from tests.support.control_server import controlled_server
from tests.support.stores import LOG, fill
from timestone_console.api.openapi import openapi_document
from timestone_console.api.routes import ROUTES
from timestone_console.http import gate

pytestmark = pytest.mark.slow
EXAMPLES = int(os.environ.get("TIMESTONE_API_EXAMPLES", "3"))
"""Random requests a call, beside those at the bounds of its parameters."""
DOCUMENT = json.loads(msgspec.json.encode(openapi_document(ROUTES, "1.2.3")))
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    path = tmp_path_factory.mktemp("contract") / "data"
    write_samples(path, 10)
    fill(path, 100)
    with controlled_server(path), Console(path) as console, pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "REQUESTS_PER_S", 1e9)  # the test is one session, and has no pauses
        patch.setattr(gate, "_BURST", 1e9)
        yield console


@pytest.mark.slow
def test_document_is_valid() -> None:
    validate(DOCUMENT)


@SCHEMA.exclude(path_regex="/(stream|logout)$").parametrize()
@settings(max_examples=EXAMPLES)
def test_call_answers_as_documented(case: schemathesis.Case[Any], console: Console) -> None:
    words = case.as_transport_kwargs(base_url="http://127.0.0.1:9465")
    words.pop("cookies", None)  # those of the session are sent
    words["headers"] = {**words["headers"], "X-Timestone-Token": console.token}
    try:
        response = console.http.request(**words)
    except httpx.InvalidURL:
        return  # the client refuses it: far above the limit of the console
    if response.status_code not in (413, 414):  # too large
        # Parameters may exclude each other, and a cursor is only one that the API gave: a schema cannot say that.
        case.validate_response(response, excluded_checks=[positive_data_acceptance])


def test_links_of_the_document_lead_through_all_pages_of_a_list(console: Console) -> None:
    known: dict[str, Any] = {
        "log": LOG,
        "partition": 0,
        "filter": "#",
        "id": "anna",
        "topic": "devices/1/state",
        "under": "devices",
    }
    lengths = {}
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            link = operation["responses"]["200"].get("links", {}).get("next")
            if link is None or "pipeline" in path:  # there is none
                continue
            assert link["operationId"] == operation["operationId"]
            (cursor,) = (name for name, value in link["parameters"].items() if "$response" in value)
            names = {one["name"] for one in operation["parameters"] if one["in"] == "query"}
            asked: dict[str, Any] = {
                name: value for name, value in {**known, "limit": 1}.items() if name in names
            }
            in_path = path.removeprefix("/api/v1/").format(**known)
            pages = [console.get(in_path, **asked)]
            while (after := pages[-1]["next"]) is not None and len(pages) < 5:
                pages.append(console.get(in_path, **asked, **{cursor: after}))
            assert len({json.dumps(one, sort_keys=True) for one in pages}) == len(pages), path
            lengths[operation["operationId"]] = len(pages)
    assert len(lengths) >= 8, lengths
    assert lengths["logs"] > 1 and lengths["topics"] > 1, lengths

import json

import msgspec

from timestone_console.api.openapi import openapi_document
from timestone_console.api.route import PREFIX
from timestone_console.api.routes import ROUTES


def test_document_has_each_call_with_its_parameters_and_every_schema_it_refers_to() -> None:
    document = json.loads(msgspec.json.encode(openapi_document(ROUTES, "1.2.3")))
    assert document["openapi"].startswith("3.1") and document["info"]["version"] == "1.2.3"
    calls = {
        (path.removeprefix(PREFIX), method.upper())
        for path, one in document["paths"].items()
        for method in one
    }
    assert calls == {(route.path, route.method) for route in ROUTES}
    parameters = document["paths"][f"{PREFIX}/logs/{{log}}/segments"]["get"]["parameters"]
    assert {one["name"]: (one["in"], one["required"]) for one in parameters} == {
        "log": ("path", True), "partition": ("query", False), "order": ("query", False), "at": ("query", False),
        "after": ("query", False), "limit": ("query", False), "format": ("query", False),
    }  # fmt: skip
    text = json.dumps(document)
    names = set(document["components"]["schemas"])
    referred = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert referred == names

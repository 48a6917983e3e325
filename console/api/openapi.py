"""The OpenAPI document of the API, made from the table of routes: what the table has is what is documented."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ..config import Role
from .csv_table import NEXT_HEADER
from .route import FORMAT, FORMATS, PREFIX, Route

CURSOR = "`next` of the page before"
_REF = "#/components/schemas/{name}"
_PROBLEMS = {
    "400": "invalid parameters",
    "401": "login required",
    "403": "not allowed",
    "404": "not found",
}


def openapi_document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """Return the document. version: of Timestone."""
    types = [
        one for route in routes for one in (route.query, *([route.reply] if route.kind == "json" else []))
    ]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    queries = iter(schemas)
    paths: dict[str, Any] = {}
    for route in routes:
        query = next(queries)
        reply = next(queries) if route.kind == "json" else None
        operation = _operation(route, query, reply, components)
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = operation
    used = _used(paths, components)
    components = {name: schema for name, schema in components.items() if name in used}
    components["Problem"] = _PROBLEM
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Timestone console",
            "version": version,
            "description": "A store, its server and its clients. Times are microseconds since 1970 (`_us`), durations "
            "seconds (`_s`), sizes bytes.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _operation(route: Route, query: Any, reply: Any, components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "security": [] if route.role is Role.NONE else [{"basic": []}, {}],
        "x-role": route.role.word,
    }
    if route.method == "GET":
        found["parameters"] = _parameters(route, components[query["$ref"].rpartition("/")[2]])
        if route.rows:
            found["parameters"].append(
                {
                    "name": FORMAT,
                    "in": "query",
                    "required": False,
                    "description": f"csv: only `{route.rows}`, with the cursor in the header {NEXT_HEADER}",
                    "schema": {"enum": list(FORMATS), "default": FORMATS[0]},
                }
            )
    else:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": query}}}
    content: dict[str, Any]
    if route.kind == "json":
        content = {"application/json": {"schema": reply}}
    elif route.kind == "stream":
        content = {"text/event-stream": {"schema": {"type": "string"}}}
    else:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    if route.rows:
        content["text/csv"] = {"schema": {"type": "string"}}
    ok: dict[str, Any] = {"description": "the result", "content": content}
    if links := _links(found):
        ok["links"] = links
    problem = {"application/problem+json": {"schema": {"$ref": _REF.format(name="Problem")}}}
    found["responses"] = {
        "200": ok,
        **{status: {"description": text, "content": problem} for status, text in _PROBLEMS.items()},
        "default": {"description": "another problem", "content": problem},
    }
    return found


def _links(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the link to the following page, if the operation takes the cursor `next` of a reply."""
    parameters = operation.get("parameters", [])
    if not any(one.get("description") == CURSOR for one in parameters):
        return {}
    return {
        "next": {
            "operationId": operation["operationId"],
            "description": "the following page, unless next is null",
            "parameters": {
                one["name"]: "$response.body#/next"
                if one.get("description") == CURSOR
                else f"$request.{one['in']}.{one['name']}"
                for one in parameters
                if one["required"] or one.get("description") == CURSOR
            },
        }
    }


def _parameters(route: Route, schema: dict[str, Any]) -> list[dict[str, Any]]:
    in_path = set(re.findall(r"{(\w+)}", route.path))
    required = set(schema.get("required", ()))
    found = []
    for name, one in schema.get("properties", {}).items():
        text = one.get("description")
        found.append(
            {
                "name": name,
                "in": "path" if name in in_path else "query",
                "required": name in in_path or name in required,
                **({"description": text} if text else {}),
                "schema": {key: value for key, value in one.items() if key != "description"},
            }
        )
    return found


def _used(document: Any, components: dict[str, Any]) -> set[str]:
    """Return the names of the schemas that a document refers to, directly or through others."""
    used: set[str] = set()
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.values()
            name = str(one.get("$ref", "")).rpartition("/")[2]
            if name and name not in used and name in components:
                used.add(name)
                waiting.append(components[name])
    return used


_PROBLEM = {
    "title": "Problem",
    "description": "What went wrong, as RFC 9457 describes it.",
    "type": "object",
    "properties": {
        "type": {"type": "string", "description": "stable, for programs"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
}

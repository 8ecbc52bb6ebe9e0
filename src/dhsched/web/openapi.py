"""The OpenAPI 3.1 document, made from the served endpoints, so that document and decoding cannot differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dhsched.web.endpoints import NoParameters, Operation, required_fields
from dhsched.web.problems import MEDIA_TYPE, PROBLEMS, schema

EVENTS = "text/event-stream"
TEXT = {"type": "string"}
STREAMS: dict[str, dict[str, Any]] = {
    "WebSocket": {"101": {"description": "The connection is a WebSocket from here on."}},
    "server-sent events": {
        "200": {"description": "Events, for as long as there are any.", "content": {EVENTS: {"schema": TEXT}}}
    },
}
"""The success of an operation whose connection stays."""
REF = "#/components/schemas/{name}"


def document(title: str, version: str, endpoints: Sequence[Operation]) -> dict[str, Any]:
    """Return the whole OpenAPI document."""
    components = {"Problem": schema()}
    schemas = _schemas(endpoints, components)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": components},
    }


class _Schemas(dict[Any, dict[str, Any]]):
    """The schema of each type that an endpoint names."""


def _schemas(endpoints: Iterable[Operation], components: dict[str, Any]) -> _Schemas:
    kinds: list[Any] = []
    for endpoint in endpoints:
        named = [endpoint.body, *endpoint.replies.values(), *(header.type for header in endpoint.headers)]
        for parameters in (endpoint.path_type, endpoint.query):
            named += [each.type for each in msgspec.structs.fields(parameters)]
        kinds += [kind for kind in named if kind is not None and kind not in kinds]
    made, shared = msgspec.json.schema_components(kinds, ref_template=REF)
    components.update(shared)
    return _Schemas(zip(kinds, made, strict=True))


def _operation(endpoint: Operation, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint, schemas),
        "responses": {**_replies(endpoint, schemas), **_problems(endpoint)},
    }
    if endpoint.tag:
        operation["tags"] = [endpoint.tag]
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": not endpoint.body_optional,
            "content": {"application/json": {"schema": schemas[endpoint.body]}},
        }
    return operation


def _parameters(endpoint: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for place, kind in (("path", endpoint.path_type), ("query", endpoint.query)):
        if kind is NoParameters:
            continue
        required = required_fields(kind)
        for each in msgspec.structs.fields(kind):
            schema_of = dict(schemas[each.type])
            if not each.required and each.default not in (msgspec.UNSET, msgspec.NODEFAULT):
                schema_of["default"] = each.default
            found.append({"name": each.name, "in": place, "required": each.name in required, "schema": schema_of})
    for header in endpoint.headers:
        found.append(
            {
                "name": header.name,
                "in": "header",
                "required": False,
                "description": header.description,
                "schema": schemas[header.type],
            }
        )
    return found


def _replies(endpoint: Operation, schemas: _Schemas) -> dict[str, Any]:
    replies: dict[str, Any] = {**STREAMS.get(endpoint.streams, {})}
    for status, kind in endpoint.replies.items():
        reply: dict[str, Any] = {"description": _first_sentence(kind)}
        if kind is not None:
            reply["content"] = {"application/json": {"schema": schemas[kind]}}
        replies[str(status)] = reply
    return replies


def _problems(endpoint: Operation) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in endpoint.all_problems():
        by_status.setdefault(PROBLEMS[code].status, []).append(code)
    return {str(status): _problem(codes) for status, codes in sorted(by_status.items())}


def _problem(codes: list[str]) -> dict[str, Any]:
    narrowed = {"properties": {"code": {"enum": codes}}}
    reply: dict[str, Any] = {
        "description": "; ".join(f"{code}: {PROBLEMS[code].title}" for code in codes),
        "content": {MEDIA_TYPE: {"schema": {"allOf": [{"$ref": REF.format(name="Problem")}, narrowed]}}},
    }
    if any(PROBLEMS[code].retry_after_s is not None for code in codes):
        reply["headers"] = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
    return reply


def _first_sentence(kind: Any) -> str:
    text = (getattr(kind, "__doc__", None) or "").strip() if kind is not None else "Done."
    return re.split(r"(?<=[.])\s", text)[0] if text else "The answer."

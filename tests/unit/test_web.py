"""The shared HTTP layer: strict decoding that names the field, problems, bounds, and documents that match."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from dhsched.errors import StoreRefused, StoreUnavailable
from dhsched.types import Id
from dhsched.web import (
    Endpoint,
    HeaderParameter,
    Problem,
    Reply,
    Request,
    Service,
    document,
    make_app,
    problem_from,
    server,
)
from dhsched.web.logs import add_trace
from dhsched.web.problems import PROBLEMS
from dhsched.web.shares import Load

JSON = {"Content-Type": "application/json"}


class Thing(msgspec.Struct, forbid_unknown_fields=True):
    """A thing."""

    name: Id
    size: int = 0


class ThingPath(msgspec.Struct, forbid_unknown_fields=True):
    name: Id


class ThingQuery(msgspec.Struct, forbid_unknown_fields=True):
    limit: int = 10


async def put(asked: Request) -> Any:
    if asked.body.size == 13:
        raise RuntimeError("a secret")
    if asked.body.size == 7:
        raise Problem("FULL", "no free slot for seven", load=7)
    await asyncio.sleep(asked.body.size / 1000)
    return Reply(asked.body, status=201)


async def get(asked: Request) -> Thing:
    return Thing(asked.path.name, asked.query.limit)


ENDPOINTS = [
    Endpoint(
        name="put_thing",
        method="POST",
        path="/things",
        handler=put,
        summary="Put.",
        body=Thing,
        replies={201: Thing},
        problems=["FULL"],
        headers=[HeaderParameter("Idempotency-Key", Id)],
    ),
    Endpoint(
        name="get_thing",
        method="GET",
        path="/things/{name}",
        handler=get,
        summary="Get.",
        path_type=ThingPath,
        query=ThingQuery,
        replies={200: Thing},
    ),
]


def service(**settings: Any) -> Service:
    async def ready() -> list[str]:
        return []

    return Service(role="test", instance="t1", ready=ready, **settings)


@pytest.fixture
async def client() -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(make_app(service(load=Load(4)), ENDPOINTS))) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b'{"name": 7}', 400, "$.name"),
        (b'{"name": "a", "sise": 1}', 400, "$.sise"),
        (b"{}", 400, "$.name"),
        (b"", 400, "$"),
        (b'{"name": "a b"}', 400, "$.name"),
        (b'{"name": "a", "size": 1.5}', 400, "$.size"),
        (b"[1, 2]", 400, "$"),
        (b"\xff\xfe", 400, "$"),
        (b'{"name": "\\ud800"}', 400, "$"),
        (b"[" * 60_000, 400, "$"),
        (b'{"name": "' + b"a" * 70_000 + b'"}', 413, None),
    ],
)
async def test_a_bad_body_is_refused_by_the_name_of_its_field(
    client: TestClient[Any, Any], body: bytes, status: int, field: str | None
) -> None:
    response = await client.post("/things", data=body, headers=JSON)
    document = await response.json(content_type="application/problem+json")
    assert (response.status, document["status"], document.get("field")) == (status, status, field)
    assert document["code"] in PROBLEMS and document["request_id"] == response.headers["X-Request-Id"]


async def test_a_chunked_body_is_bounded_too(client: TestClient[Any, Any]) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"a" * 1000

    response = await client.post("/things", data=pieces(), headers=JSON)
    assert response.status == 413


@pytest.mark.parametrize("query", ["limit=x", "limits=3", "limit=1&limit=2"])
async def test_a_bad_query_is_refused(client: TestClient[Any, Any], query: str) -> None:
    response = await client.get(f"/things/a?{query}")
    assert response.status == 400


async def test_a_whole_number_may_be_written_as_a_fraction(client: TestClient[Any, Any]) -> None:
    response = await client.post("/things", data=b'{"name": "a", "size": 2.0}', headers=JSON)
    assert (response.status, await response.json()) == (201, {"name": "a", "size": 2})


async def test_what_fits_is_answered(client: TestClient[Any, Any]) -> None:
    response = await client.post("/things", data=b'{"name": "a"}', headers={**JSON, "X-Request-Id": "mine"})
    assert (response.status, await response.json()) == (201, {"name": "a", "size": 0})
    assert response.headers["X-Request-Id"] == "mine"
    response = await client.get("/things/a?limit=3")
    assert await response.json() == {"name": "a", "size": 3}
    assert (await client.head("/things/a")).status == 200


async def test_a_header_that_does_not_fit_is_named(client: TestClient[Any, Any]) -> None:
    response = await client.post("/things", data=b'{"name": "a"}', headers={**JSON, "Idempotency-Key": "a/b"})
    assert (response.status, (await response.json(content_type=None))["field"]) == (400, "Idempotency-Key")


async def test_a_problem_carries_its_numbers_and_when_to_come_back(client: TestClient[Any, Any]) -> None:
    response = await client.post("/things", data=b'{"name": "a", "size": 7}', headers=JSON)
    found = await response.json(content_type=None)
    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert (found["code"], found["detail"], found["load"]) == ("FULL", "no free slot for seven", 7)


async def test_a_bug_is_a_500_that_gives_nothing_away(client: TestClient[Any, Any]) -> None:
    response = await client.post("/things", data=b'{"name": "a", "size": 13}', headers=JSON)
    text = await response.text()
    assert response.status == 500 and "a secret" not in text and json.loads(text)["code"] == "INTERNAL"


async def test_unknown_paths_and_methods_are_problems(client: TestClient[Any, Any]) -> None:
    response = await client.get("/no-such-thing")
    assert (response.status, (await response.json(content_type=None))["code"]) == (404, "NOT_FOUND")
    response = await client.delete("/things/a")
    assert (response.status, response.headers["Allow"]) == (405, "GET")


async def test_past_its_bound_a_replica_says_busy(client: TestClient[Any, Any]) -> None:
    asked = [client.post("/things", data=b'{"name": "a", "size": 200}', headers=JSON) for _ in range(8)]
    statuses = sorted(response.status for response in await asyncio.gather(*asked))
    assert statuses == [201] * 4 + [503] * 4


async def test_health_metrics_and_the_document(client: TestClient[Any, Any]) -> None:
    await client.get("/things/a")
    assert (await client.get("/healthz")).status == 200
    assert (await client.get("/readyz")).status == 200
    metrics = await (await client.get("/metrics")).text()
    assert 'dhsched_requests_total{endpoint="get_thing",status="200"} 1.0' in metrics
    described = await (await client.get("/openapi.json")).json()
    assert set(described["paths"]) == {"/things", "/things/{name}"}


async def test_a_replica_that_misses_something_is_not_ready() -> None:
    async def ready() -> list[str]:
        return ["the store cannot be reached"]

    unready = Service(role="test", instance="t1", ready=ready)
    async with TestClient(TestServer(make_app(unready, []))) as client:
        response = await client.get("/readyz")
        assert (response.status, (await response.json(content_type=None))["code"]) == (503, "NOT_READY")


def test_the_document_has_every_problem_of_an_endpoint() -> None:
    described = document("t", "1", ENDPOINTS)
    responses = described["paths"]["/things"]["post"]["responses"]
    assert sorted(responses) == ["201", "400", "401", "403", "408", "413", "415", "429", "500", "503"]
    codes = responses["503"]["content"]["application/problem+json"]["schema"]["allOf"][1]["properties"]["code"]["enum"]
    assert codes == ["BUSY", "FULL", "STORE_UNAVAILABLE"]
    assert described["components"]["schemas"]["Thing"]["additionalProperties"] is False


def test_errors_of_the_store_have_codes_of_their_own() -> None:
    assert getattr(problem_from(StoreUnavailable("gone", unknown=True)), "code", "") == "STORE_UNAVAILABLE"
    assert getattr(problem_from(StoreRefused("full", code="OOM")), "code", "") == "STORE_FULL"
    assert problem_from(RuntimeError("a bug")) is None


async def test_log_lines_of_a_traced_request_have_the_trace_and_those_of_the_next_request_have_not() -> None:
    """All requests come on one connection, which is one task."""
    lines: list[Any] = []

    async def logs(asked: Request) -> Thing:
        lines.append(dict(add_trace(None, "info", {"event": "asked"})).get("trace_id"))
        return Thing("a", 1)

    endpoint = Endpoint(
        name="get_thing", method="GET", path="/logs", handler=logs, summary="Log.", replies={200: Thing}
    )
    trace = "0af7651916cd43dd8448eb211c80319c"
    whole = f"00-{trace}-b7ad6b7169203331-01"
    async with TestClient(TestServer(make_app(service(load=Load(4)), [endpoint]))) as client:
        for given in (None, whole, None, whole + "-more", "00-" + "0" * 32 + whole[35:], "x" * 5_000, whole):
            response = await client.get("/logs", headers={} if given is None else {"traceparent": given})
            assert response.status == 200, given
    assert lines == [None, trace, None, None, None, None, trace]


async def test_nothing_is_kept_of_a_request_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    class Untouched:
        """The variable of a request's trace, which must only be read."""

        def get(self) -> str:
            return ""

    monkeypatch.setattr(server, "GIVEN", Untouched())
    async with TestClient(TestServer(make_app(service(load=Load(4)), ENDPOINTS))) as client:
        assert (await client.get("/things/a")).status == 200
        traced = await client.get("/things/a", headers={"traceparent": "x"})
        assert traced.status == 500, "where there is a header, the variable is set: this test would notice"

"""The server around a role's endpoints: routes, bounds, metrics, request ids and health.

One wrapper around each handler counts and bounds the requests in flight, decodes, turns whatever is raised into a
problem, and measures. Before that a request passes the door (origins.py) and, where access is by keys, the gate
(access/gate.py); this holds for endpoints, WebSockets and unknown paths alike. An unexpected error is a 500 with a
request id, and its traceback is in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST

import dhsched
from dhsched.access.callers import BY, NOBODY, OPEN, Caller
from dhsched.access.gate import TENANT_HEADER, Gate, for_tenant
from dhsched.access.quotas import Quotas
from dhsched.durations import SECONDS_BUCKETS
from dhsched.errors import BadId, Forbidden, OverQuota, TooManyRequests, Unauthorized
from dhsched.store.records.audit import AuditedRequest
from dhsched.types import check_id
from dhsched.web.endpoints import BODY_BYTES_MAX, JSON, Decode, Endpoint, Operation, Reply, Request
from dhsched.web.figures import Figures, MetricsPage
from dhsched.web.openapi import document
from dhsched.web.origins import Door, mark_allowed
from dhsched.web.problems import Problem, problem_from
from dhsched.web.shares import Connections, Load
from dhsched.web.traceparent import GIVEN, HEADER, LENGTH
from dhsched.web.turns import STRANGERS

log = structlog.get_logger(__name__)

disable_created_metrics()  # type: ignore[no-untyped-call]  # They would double the lines, and are not used.

WORTH_LOGGING = frozenset({"INTERNAL", "STORE_UNAVAILABLE", "STORE_FULL"})
PATH_MAX = 256  # Characters of the path in the audit trail; a longer path is cut off.
HSTS = "max-age=31536000"  # A browser that has seen TLS here asks for nothing less for a year.


@dataclass(slots=True, kw_only=True)
class Service:
    """One replica of one role. `ready` returns why the replica should get no traffic; nothing when it may."""

    role: str
    instance: str
    ready: Callable[[], Awaitable[Sequence[str]]]
    load: Load = field(default_factory=lambda: Load(512))
    connections: Connections = field(default_factory=lambda: Connections(10_000))
    body_s: float = 10.0
    gate: Gate | None = None
    """None where access is open, and in a room."""
    quotas: Quotas = field(default_factory=Quotas)
    """The limits of tenants; without any in a role that does not report."""
    own_tokens: bool = False
    """Whether the handlers check tokens of another kind by themselves: a room's, of viewers."""
    passed_on: frozenset[str] = frozenset()
    """Endpoints that another role serves for this one. That role counts their requests against rates, so this one does
    not: otherwise each would count twice."""
    public_metrics: bool = True
    """Whether /metrics is on the same listener as everything else; if not, `make_metrics_app` serves it."""
    cells: Callable[[], Mapping[str, str]] | None = None
    """Returns each cell and why it is not ready, for /readyz; None where there is only one."""
    door: Door = field(default_factory=Door)
    audit: Callable[[AuditedRequest], None] | None = None
    """Is told of each request that changes something; None for a role that changes nothing."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when the role stops, before its connections are closed."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _page: MetricsPage = field(init=False)

    def __post_init__(self) -> None:
        self._page = MetricsPage(self.registry)

    @property
    def stopping(self) -> bool:
        return self.stop.is_set()

    @property
    def open_to_all(self) -> bool:
        """Return whether requests need no token of any kind."""
        return self.gate is None and not self.own_tokens

    def refuse_connection(self, caller: Caller) -> None:
        """Raise BUSY if the caller's key has as many long connections at this replica as it may have."""
        open_now, most = self.connections.of(caller.key), self.connections.most_per_key
        if self.gate is not None and open_now >= most:
            raise Problem(
                "BUSY",
                f"key {caller.key} has {open_now} connections at replica {self.instance}, and its limit is {most}; use "
                "another replica, or another key",
                connections=open_now,
                connections_max=most,
            )

    def request_id(self, request: web.Request) -> str:
        """Return the caller's X-Request-Id if it is a valid id, else a new one."""
        given = request.headers.get("X-Request-Id")
        if given is not None:
            with contextlib.suppress(BadId):
                return check_id(given, "X-Request-Id")
        return f"{self.instance}-{next(self._numbers)}"

    async def admit(self, request: web.Request, name: str) -> Caller | web.Response:
        """Return the caller of the endpoint with this name, or the door's response to a request that goes no further;
        raise if the caller may not use the endpoint."""
        if (at_the_door := self.door.answer(request, open_to_all=self.open_to_all)) is not None:
            return at_the_door
        if self.gate is not None:
            counted = name not in self.passed_on
            caller = await self.gate.admit(request.headers, name, counted=counted)
            if counted and name != "mint_token":  # Clients mint by themselves; the key's own rate limits that.
                self.quotas.take(caller)
            return caller
        tenant = request.headers.get(TENANT_HEADER)
        return OPEN if tenant is None else for_tenant(OPEN, tenant)

    def slow(self, caller: Caller, items: int) -> float:
        """Return for how many seconds not to read from a caller that has sent so many items over a socket."""
        if self.gate is None:
            return 0.0
        return max(self.gate.slow(caller, items), self.quotas.slow(caller, items))

    def metrics(self) -> web.Response:
        return web.Response(body=self._page.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def open_while(self, caller: Caller, request: web.Request) -> AbstractContextManager[None]:
        """Return a context for a long connection: while it is open, revoking the caller's key aborts the connection."""

        def cut() -> None:
            if request.transport is not None:
                request.transport.abort()

        return contextlib.nullcontext() if self.gate is None else self.gate.open_while(caller, cut)


class Measures:
    """The metrics of all requests: rate, errors and duration per endpoint."""

    def __init__(self, service: Service) -> None:
        registry = service.registry
        self.requests = Counter(
            "dhsched_requests_total",
            "Requests answered, by endpoint and status.",
            ["endpoint", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "dhsched_request_seconds",
            "Time to answer, by endpoint.",
            ["endpoint"],
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        in_flight = Gauge("dhsched_requests_in_flight", "Requests being worked on.", registry=registry)
        in_flight.set_function(lambda: service.load.total)
        over_share = "Requests refused because their key or tenant had its share of the requests in flight."
        waited = "Requests and frames that waited because others of their tenant were before them."
        registry.register(
            Figures(
                [
                    ("dhsched_requests_over_share_total", over_share, lambda: service.load.over_share),
                    ("dhsched_requests_waited_total", waited, lambda: service.load.turns.waited),
                ]
            )
        )


def make_app(
    service: Service,
    endpoints: Sequence[Endpoint],
    raw: Sequence[web.AbstractRouteDef] = (),
    described: Sequence[Operation] = (),
) -> web.Application:
    """Return the application with all endpoints, the `raw` routes (WebSockets), and the routes that every role has.
    `described` are the operations of raw routes, for /openapi.json."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    measures = Measures(service)
    by_path: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = _wrap(endpoint, service, measures)
    for path, handlers in {**by_path, **_own_routes(service, [*endpoints, *described])}.items():
        resource = app.router.add_resource(path)
        for method, handler in handlers.items():
            resource.add_route(method, handler)
        if "GET" in handlers and "HEAD" not in handlers:
            resource.add_route("HEAD", handlers["GET"])
        resource.add_route("*", _guard(service, "elsewhere", _method_refused(sorted(handlers))))
    for route in raw:
        app.add_routes([guarded(service, route)])
    app.router.add_route("*", "/{path:.*}", _guard(service, "elsewhere", _not_found))

    async def stopping(_app: web.Application) -> None:
        service.stop.set()

    async def marked(request: web.Request, response: web.StreamResponse) -> None:
        headers = response.headers
        headers.popall("Server", None)  # Which library answers, and of which version, helps nobody but an attacker.
        headers.setdefault("X-Content-Type-Options", "nosniff")
        if headers.get("Content-Type", "").endswith("json"):
            headers.setdefault("Cache-Control", "no-store")
        if request.secure:
            headers.setdefault("Strict-Transport-Security", HSTS)
        if (origin := request.headers.get("Origin")) is not None:
            mark_allowed(service.door, origin, response)

    app.on_response_prepare.append(marked)
    app.on_shutdown.append(stopping)
    return app


def make_metrics_app(service: Service) -> web.Application:
    """Return the application of a listener of its own for /metrics, which strangers do not reach."""
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        return service.door.answer(request, open_to_all=True) or service.metrics()

    app.router.add_get("/metrics", answer)
    return app


Answer = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]
CALLER = web.RequestKey("caller", Caller)
CODE = web.ResponseKey("code", str)
"""The problem that a request was refused with."""


def guarded(service: Service, route: web.AbstractRouteDef) -> web.RouteDef:
    """Return a raw route behind door and gate. Its name selects its access rule; without a rule it is for admins."""
    if not isinstance(route, web.RouteDef):
        raise TypeError(f"{route} is no raw route; make it with web.get or the like, with a name")
    handler: Any = route.handler
    named = _guard(service, str(route.kwargs.get("name", route.path)), handler, long=True)
    return web.RouteDef(route.method, route.path, named, route.kwargs)


def _guard(service: Service, name: str, handler: Answer, *, long: bool = False) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        request_id = service.request_id(request)
        try:
            caller = await service.admit(request, name)
            if isinstance(caller, web.Response):
                return caller
            request[CALLER] = caller
            BY.set(caller)
            if caller is not NOBODY:
                await service.load.turn(caller.tenant)
            if long:
                service.refuse_connection(caller)
        except Exception as error:
            return await refuse_in_turn(service, error, request_id, name)
        if not long:
            return await handler(request)
        with service.connections.counted(caller.key):
            return await handler(request)

    return answer


def caller_of(request: web.Request) -> Caller:
    """Return the caller, in the handler of a raw route."""
    return request[CALLER]


def _wrap(
    endpoint: Endpoint, service: Service, measures: Measures
) -> Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]:
    decode, handler, load = Decode(endpoint), endpoint.handler, service.load
    audit = service.audit if endpoint.audited and endpoint.method != "GET" else None
    seconds = measures.seconds.labels(endpoint.name)
    statuses: dict[int, Counter] = {}

    async def answer(request: web.Request) -> web.StreamResponse:
        began = time.perf_counter()
        request_id = service.request_id(request)
        caller: Caller | None = None
        try:
            # Before the request counts as in flight: one without a token, or whose body is not complete, must not take
            # the place of others.
            admitted = await service.admit(request, endpoint.name)
            if isinstance(admitted, web.Response):
                return admitted
            caller = admitted
            BY.set(caller)
            # A connection is one task, so a header of the request before may still be there.
            if (given := request.headers.get(HEADER, "")) or GIVEN.get():
                GIVEN.set(given[: LENGTH + 1])
            if load.crowded or load.turns.waiting:
                load.refuse(caller)
            path, query, raw = await decode.receive(request, service.body_s)
            await load.enter(caller)
            try:
                asked = Request(request, path, query, decode.body(raw), request_id, service, caller)
                answered = await handler(asked)
            finally:
                load.leave(caller)
            if isinstance(answered, web.StreamResponse):
                return answered  # A stream lasts as long as its reader stays: its duration is not measured.
            response = respond(answered, request_id)
        except Exception as error:
            response = await refuse_in_turn(service, error, request_id, endpoint.name)
            if isinstance(error, Forbidden) and caller is None:
                caller = error.caller
        # What nobody has proven who asked for is noted only if it was done: such requests may come in any number.
        if audit is not None and caller is not None and (caller is not NOBODY or response.status < 400):
            audit(
                AuditedRequest(
                    endpoint=endpoint.name,
                    path=request.path[:PATH_MAX],
                    status=response.status,
                    request_id=request_id,
                    replica=service.instance,
                    code=response.get(CODE, ""),
                    key=caller.key,
                    role=caller.role,
                    tenant=caller.tenant,
                    worker=caller.worker,
                    address=request.remote or "",
                )
            )
        counter = statuses.get(response.status)
        if counter is None:
            counter = statuses[response.status] = measures.requests.labels(endpoint.name, str(response.status))
        counter.inc()
        seconds.observe(time.perf_counter() - began)
        return response

    return answer


def respond(answered: Any, request_id: str) -> web.Response:
    if not isinstance(answered, Reply):
        answered = Reply(answered)
    headers = {"Content-Type": JSON, "X-Request-Id": request_id, **answered.headers}
    if answered.body is None:
        del headers["Content-Type"]
        return web.Response(status=answered.status, headers=headers)
    return web.Response(status=answered.status, body=msgspec.json.encode(answered.body), headers=headers)


async def refuse_in_turn(service: Service, error: Exception, request_id: str, endpoint: str) -> web.Response:
    """Return the response for the error. A caller without a valid token, or over its rate, waits for its turn: refusals
    are cheap, and thousands at once are not."""
    if isinstance(error, Unauthorized | TooManyRequests | OverQuota):
        await service.load.turn(STRANGERS)
    return refuse(error, request_id, endpoint)


def refuse(error: Exception, request_id: str, endpoint: str) -> web.Response:
    """Return the response for the error that a request ended with, and log it if an operator should see it."""
    problem = problem_from(error)
    if problem is None:
        log.error("unforeseen error", endpoint=endpoint, request_id=request_id, exc_info=error)
        problem = Problem(
            "INTERNAL", f"request {request_id} met a bug in dhsched; its traceback is in the log of this replica"
        )
    if problem.code == "UNAUTHORIZED":
        return problem.response()  # Without the request's id, which has this replica's name in it.
    problem.numbers.setdefault("request_id", request_id)
    # Refusals under load come by the thousand, and are counted: only those that need an operator are warnings.
    say = log.warning if problem.code in WORTH_LOGGING else log.debug
    say("refused", endpoint=endpoint, code=problem.code, request_id=request_id, detail=problem.detail)
    response = problem.response(request_id)
    response[CODE] = problem.code
    return response


# -- the routes of every role


def _own_routes(service: Service, operations: Sequence[Operation]) -> dict[str, dict[str, Any]]:
    described = msgspec.json.encode(document(f"dhsched {service.role}", dhsched.__version__, operations))

    # Probes have no key, so where there are keys they learn only whether the replica is healthy or ready.
    async def healthz(_request: web.Request) -> web.Response:
        if not service.open_to_all:
            return _json({})
        return _json({"role": service.role, "instance": service.instance, "version": dhsched.__version__})

    async def readyz(request: web.Request) -> web.Response:
        missing = ["it is stopping"] if service.stopping else await service.ready()
        if missing:
            if not service.open_to_all:
                log.warning("not ready", reason=missing)
                return Problem("NOT_READY", "this replica is not ready; its log says why").response()
            problem = Problem("NOT_READY", f"replica {service.instance} is not ready: {'; '.join(missing)}")
            return problem.response(service.request_id(request))
        if not service.open_to_all:
            return _json({})
        told: dict[str, Any] = {"role": service.role, "instance": service.instance, "ready": True}
        return _json(told | ({"cells": service.cells()} if service.cells is not None else {}))

    async def metrics(_request: web.Request) -> web.Response:
        return service.metrics()

    async def openapi(_request: web.Request) -> web.Response:
        return web.Response(body=described, headers={"Content-Type": JSON})

    served = {"healthz": healthz, "readyz": readyz, "openapi": openapi}
    if service.public_metrics:
        served["metrics"] = metrics
    paths = {name: f"/{name}" for name in served} | {"openapi": "/openapi.json"}
    return {paths[name]: {"GET": _guard(service, name, handler)} for name, handler in served.items()}


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), headers={"Content-Type": JSON})


def _method_refused(allowed: list[str]) -> Callable[[web.Request], Coroutine[Any, Any, web.Response]]:
    async def refused(request: web.Request) -> web.Response:
        detail = f"{request.method} is not allowed on {request.path}; use {' or '.join(allowed)}"
        return Problem("METHOD", detail, allowed=allowed).response()

    return refused


async def _not_found(request: web.Request) -> web.Response:
    return Problem("NOT_FOUND", f"nothing is served at {request.path}; /openapi.json lists the paths").response()

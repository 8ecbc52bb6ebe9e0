"""Every cell of role x endpoint, by asking; and tenants to whom each other's lives never were."""

from __future__ import annotations

import re
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from dhsched.access.callers import ROLES
from dhsched.access.rules import RULES
from dhsched.dispatch.app import Replica
from dhsched.infer import push
from dhsched.store.link.address import Address
from dhsched.tokens import Boot, Tokens
from dhsched.web import MINT, Endpoint
from tests.harness.keyed import Keyed, bearer, keyed

CELLS = {
    "create_live": "app",
    **dict.fromkeys(
        (
            "list_lives",
            "get_history",
            "get_logs",
            "get_state",
            "list_dead_letters",
            "watch_live",
            "get_usage",
            "follow_changes",
        ),
        "app reader operator",
    ),
    **dict.fromkeys(
        ("change_live", "end_live", "end_lives", "drop_dead_letter", "push_dead_letter_again"), "app operator"
    ),
    "get_live": "app room reader operator",
    "mint_viewer_token": "app",
    **dict.fromkeys(("show_publishing", "list_viewer_keys"), "room"),
    **dict.fromkeys(("push_text", "push_stream", "push_streams"), "app room"),
    **dict.fromkeys(("get_why", "list_workers", "get_worker", "get_drain", "list_recoveries"), "reader operator"),
    **dict.fromkeys(("list_events", "get_rebalance", "get_store", "list_pools", "get_pool"), "reader operator"),
    **dict.fromkeys(("get_summary", "list_replicas"), "reader operator"),
    **dict.fromkeys(("list_digital_ids", "get_digital_id", "list_tenants", "get_tenant"), "reader operator"),
    **dict.fromkeys(("reassign_live", "cordon_worker", "uncordon_worker"), "operator"),
    **dict.fromkeys(("drain_worker", "undrain_worker", "even_out_pool"), "operator"),
    **dict.fromkeys(("put_pool", "delete_pool", "put_digital_id", "delete_digital_id", "begin_term"), ""),
    **dict.fromkeys(("put_tenant", "delete_tenant"), ""),
    **dict.fromkeys(("list_audit", "list_keys", "create_key", "revoke_key", "rotate_secret"), ""),
    **dict.fromkeys(("create_join_token", "list_bans", "ban_worker", "unban_worker"), ""),
    "list_cells": "worker reader operator",
    "worker_link": "worker boot",
    "pull_link": "boot",
    "say_blocked": "boot",
    "metrics": "metrics reader operator",
    **dict.fromkeys(("openapi", "elsewhere"), "app worker room metrics reader operator"),
    **dict.fromkeys(
        ("healthz", "readyz", "join", "end_session", "console_page", "console_file"),
        "nobody app worker room metrics reader operator boot",
    ),
    **dict.fromkeys(("mint_token", "begin_session"), "nobody's token: only a key"),
}
"""Who, beside an admin, may use what. A new endpoint needs a row here and one in access/rules.py."""
NO_TOKEN = ("mint_token", "begin_session", "pull_link", "say_blocked")
"""Where a key's token is worth nothing, not even an admin's."""
FILLED = {
    "live_id": "nope",
    "worker": "w%231",
    "letter": "0" * 16,
    "key_id": "0" * 12,
    "kind": "boot",
    "name": "nope",
    "pool": "nope",
    "digital_id": "nope",
    "tenant": "default",
}
OWN = {"/healthz": "healthz", "/readyz": "readyz", "/metrics": "metrics", "/openapi.json": "openapi"}


def served(app: web.Application, described: list[Endpoint]) -> list[tuple[str, str, str]]:
    """Every (name, method, path) of an application, from its router: nothing that is served can be left out."""
    named: dict[tuple[str, str], str] = {(each.method, each.path): each.name for each in described}
    found = []
    for route in app.router.routes():
        if route.method in ("*", "HEAD") or route.resource is None:
            continue
        path = route.resource.canonical
        name = named.get((route.method, path)) or OWN.get(path) or route.resource.name or path
        found.append((name, route.method, path))
    return [*found, ("elsewhere", "GET", "/nowhere"), ("elsewhere", "PATCH", "/v1/lives")]


async def test_every_cell(server: Address) -> None:
    async with keyed(server) as k:
        tokens: dict[str, dict[str, str]] = {role: await k.role(role) for role in ROLES}
        boots = Tokens(k.ring)
        tokens["boot"] = bearer(boots.issue(Boot("w#1", "b", "w", "gpu", 1)))
        described = {
            "dispatch": Replica(k.api.context).endpoints(),
            "infer": [*push.endpoints(cast(Any, None)), MINT],
        }
        everything = {at: served(app, described[at]) for at, app in k.apps.items()}
        names = {name for routes in everything.values() for name, _, _ in routes}
        assert names == set(CELLS), "an endpoint has no row in CELLS"
        assert names == set(RULES), "an endpoint has no rule, or a rule no endpoint"
        for at, routes in everything.items():
            for name, method, path in routes:
                await check_row(k, at, name, method, path, tokens)


async def check_row(k: Keyed, at: str, name: str, method: str, path: str, tokens: dict[str, dict[str, str]]) -> None:
    target = re.sub(r"{(\w+)}", lambda found: FILLED[found[1]], path)
    body: Any = {} if method in ("POST", "PUT") else None
    allowed = CELLS[name].split()
    url = k.clients[at].make_url("/").origin()
    for who, shown in {"nobody": {}, **tokens}.items():
        exact = URL(f"{url}{target}", encoded=True)  # As it is written: the client would take the %23 apart.
        async with k.clients[at].session.request(method, exact, json=body, headers=shown) as response:
            status = response.status
        cell = f"{who} at {name} ({at} {method} {path}): {status}"
        if who in allowed or (who == "admin" and name not in NO_TOKEN):
            assert status not in (401, 403, 429, 500), cell
        elif who in ("nobody", "boot") or name in NO_TOKEN:
            assert status == 401, cell
        else:
            assert status == 403, cell


async def test_a_key_is_for_minting_and_metrics_only(server: Address) -> None:
    async with keyed(server) as k:
        key = await k.key("admin")
        assert (await k.ask("GET", "/v1/lives", bearer(key)))[0] == 401
        async with k.api.client.get("/metrics", headers=bearer(await k.key("metrics"))) as response:
            assert response.status == 200, "for what scrapes, and cannot mint"
        for at in ("dispatch", "infer"):
            assert await k.token(key, at=at)


async def test_tokens_can_be_narrowed_and_not_widened(server: Address) -> None:
    async with keyed(server) as k:
        admin, app = await k.key("admin"), await k.key("app", tenant="acme")
        reader = bearer(await k.token(app, scopes=["lives:read"]))
        assert (await k.ask("GET", "/v1/lives", reader))[0] == 200
        assert (await k.ask("POST", "/v1/lives", reader, {"digital_id": "x"}))[0] == 403
        other = bearer(await k.token(admin, role="app", tenant="acme"))
        assert (await k.ask("GET", "/v1/lives", other))[0] == 200
        assert (await k.ask("GET", "/v1/workers", other))[0] == 403
        for wider in ({"role": "admin"}, {"tenant": "other"}, {"scopes": ["admin"]}):
            status, problem = await k.ask("POST", "/v1/tokens", bearer(app), wider)
            assert (status, problem["code"]) == (403, "FORBIDDEN"), wider
        status, problem = await k.ask("POST", "/v1/tokens", bearer(app), {"ttl_s": 3601})
        assert status == 400


async def test_tenants_apart(server: Address) -> None:
    async with keyed(server) as k:
        admin, a, b = await k.role("admin"), await k.role("app", tenant="a"), await k.role("app", tenant="b")
        assert (await k.ask("PUT", "/v1/pools/gpu", admin, {}))[0] == 201
        assert (await k.ask("PUT", "/v1/digital-ids/anna", admin, {"pools": [{"pool": "gpu"}]}))[0] == 201
        await k.api.workers(2, capacity=10)
        for who, metadata in ((a, {"of": "a"}), (b, {"of": "b"})):
            body = {"digital_id": "anna", "live_id": "same", "metadata": metadata}
            assert (await k.ask("POST", "/v1/lives", who, body))[0] == 201, "the same id is another live"
        assert (await k.ask("POST", "/v1/lives", a, {"digital_id": "anna", "live_id": "only-a"}))[0] == 201
        assert (await k.ask("GET", "/v1/lives/same", b))[1]["metadata"] == {"of": "b"}
        assert [row["live_id"] for row in (await k.ask("GET", "/v1/lives", b))[1]["lives"]] == ["same"]
        ways = [
            *(("GET", "", None, "dispatch"), ("GET", "/history", None, "dispatch"), ("POST", "/end", {}, "dispatch")),
            *(("GET", "/dead-letters", None, "dispatch"), ("GET", "/events", None, "infer")),
            ("POST", "/text", {"text": "x"}, "infer"),
        ]
        for method, path, json, at in ways:
            answers = []
            for live in ("only-a", "never-was"):
                status, problem = await k.ask(method, f"/v1/lives/{live}{path}", b, json, at=at)
                answers.append((status, problem["code"], problem["detail"].replace(live, "L")))
            assert answers[0] == answers[1] and answers[0][0] == 404, (method, path, answers)
        async with k.infer.ws_connect("/v1/stream", headers=b) as socket:
            await socket.send_json({"live": "only-a", "text": "x"})
            assert (await socket.receive_json())[0]["problem"]["code"] == "NOT_FOUND"
        assert (await k.ask("GET", "/v1/lives/only-a", {**b, "X-Tenant": "a"}))[0] == 403
        assert (await k.ask("GET", "/v1/lives?tenant=a", b))[0] == 403
        assert (await k.ask("GET", "/v1/lives/only-a", {**admin, "X-Tenant": "a"}))[0] == 200
        assert len((await k.ask("GET", "/v1/lives?tenant=a", admin))[1]["lives"]) == 2
        assert (await k.ask("POST", "/v1/lives?explain=1", a, {"digital_id": "anna"}))[0] == 403
        assert (await k.ask("POST", "/v1/lives/only-a/text", a, {"text": "x"}, at="infer"))[0] == 200


@pytest.mark.parametrize("path", ["/v1/stream", "/v1/lives/x/stream", "/v1/pull", "/v1/workers/link"])
async def test_no_socket_opens_without_a_token(server: Address, path: str) -> None:
    async with keyed(server) as k:
        for client in k.clients.values():
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await client.ws_connect(path)
            assert caught.value.status == 401

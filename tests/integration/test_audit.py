"""The audit trail: every request that changes something is there, with who asked and what came of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from dhsched import cli
from dhsched.dispatch.app import Replica
from dhsched.errors import StoreUnavailable
from dhsched.store.link.address import Address
from dhsched.store.records import writer
from dhsched.store.records.audit import AuditedRequest
from dhsched.store.records.writer import BATCH_MAX, UNWRITTEN_MAX
from tests.harness.keyed import Keyed, keyed
from tests.harness.serving import serving


def asked(path: str) -> AuditedRequest:
    return AuditedRequest(endpoint="e", path=path, status=200, request_id="r", replica="d")


async def trail(k: Keyed, admin: dict[str, str], query: str = "") -> list[dict[str, Any]]:
    await k.api.context.audit.written()
    status, found = await k.ask("GET", f"/v1/audit{query}", admin)
    assert status == 200, found
    entries: list[dict[str, Any]] = found["entries"]
    return entries


async def test_the_audit_trail_has_who_asked_for_what_from_where(server: Address) -> None:
    async with keyed(server) as k:
        admin, app = await k.role("admin"), await k.role("app", tenant="acme")
        await k.configure(admin)
        assert (await k.ask("POST", "/v1/lives", app, {"digital_id": "anna", "live_id": "L"}))[0] == 503
        assert (await k.ask("POST", "/v1/lives/L/end", app, {}))[0] == 404
        assert (await k.ask("PUT", "/v1/pools/other", app, {}))[0] == 403
        assert (await k.ask("GET", "/v1/lives", app))[0] == 200
        found = await trail(k, admin)
        names = ["put_pool", "end_live", "create_live", "put_digital_id", "put_pool"]
        assert [entry["endpoint"] for entry in found] == names
        refused, ended, created, _, made = found
        assert (refused["role"], refused["code"], refused["status"]) == ("app", "FORBIDDEN", 403)
        assert (ended["code"], ended["path"], ended["tenant"]) == ("NOT_FOUND", "/v1/lives/L/end", "acme")
        assert (created["status"], created["code"]) == (503, "FULL")
        assert (made["status"], made["code"], made["role"], made["path"]) == (201, "", "admin", "/v1/pools/gpu")
        assert {entry["address"] for entry in found} == {"127.0.0.1"}
        assert all(entry["key"] and entry["request_id"] and entry["replica"] == "d1" for entry in found)
        assert made["key"] != created["key"] == refused["key"]


async def test_the_audit_trail_is_filtered_and_read_page_by_page(server: Address) -> None:
    async with keyed(server) as k:
        admin = await k.role("admin")
        for n in range(5):
            await k.ask("PUT", f"/v1/pools/p{n}", admin, {})
        await k.ask("DELETE", "/v1/pools/p0", admin)
        [deleted] = await trail(k, admin, "?endpoint=delete_pool")
        assert deleted["path"] == "/v1/pools/p0"
        assert len(await trail(k, admin, f"?key={deleted['key']}")) == 6
        assert await trail(k, admin, "?key=somebody") == [] == await trail(k, admin, "?tenant=acme")
        paths, cursor = [], ""
        while True:
            _, page = await k.ask("GET", f"/v1/audit?limit=2{cursor}", admin)
            paths += [entry["path"] for entry in page["entries"]]
            if page["next"] is None:
                break
            cursor = f"&before={page['next']}"
        assert paths == ["/v1/pools/p0", *(f"/v1/pools/p{n}" for n in (4, 3, 2, 1, 0))]


async def test_what_nobody_has_proven_to_have_asked_is_not_in_the_audit_trail(server: Address) -> None:
    async with keyed(server) as k:
        admin = await k.role("admin")
        assert (await k.ask("PUT", "/v1/pools/gpu", {"Authorization": "Bearer forged"}, {}))[0] == 401
        assert (await k.ask("PUT", "/v1/pools/gpu", None, {}))[0] == 401
        assert (await k.ask("POST", "/v1/join", None, {"token": "dhj_000000000000_no"}))[0] >= 400
        assert await trail(k, admin) == []


async def test_a_path_of_any_length_is_cut_in_the_audit_trail(server: Address) -> None:
    async with keyed(server) as k:
        admin = await k.role("admin")
        await k.ask("DELETE", f"/v1/pools/{'x' * 3_000}", admin)
        [entry] = await trail(k, admin)
        assert len(entry["path"]) == 256 and entry["status"] == 400


async def test_an_audit_trail_that_cannot_be_written_is_counted_and_holds_up_nobody(
    server: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "monotonic", lambda: 0.0)  # No entry is too old, however slow the machine is.
    async with serving(server) as api:
        audit = api.context.audit
        calls: list[tuple[int, asyncio.Future[Any]]] = []

        def write(entries: Sequence[AuditedRequest], **_: Any) -> asyncio.Future[Any]:
            calls.append((len(entries), asyncio.get_running_loop().create_future()))
            return calls[-1][1]

        audit._writer._write = write
        for _ in range(UNWRITTEN_MAX + 3):
            audit.note(asked("/"))
        # One call at a time: the first has what was there when it was made, the next what came meanwhile.
        assert audit.dropped._value.get() == 3 and [entries for entries, _ in calls] == [1]
        calls[0][1].set_exception(StoreUnavailable("gone", unknown=True))
        await asyncio.sleep(0)
        assert audit.dropped._value.get() == 4 and [entries for entries, _ in calls] == [1, BATCH_MAX]
        calls[1][1].set_result(BATCH_MAX)
        await asyncio.sleep(0)
        assert audit.dropped._value.get() == 4 and len(calls) == 3
        while not calls[-1][1].done():
            calls[-1][1].cancel()
            await asyncio.sleep(0)
        assert sum(entries for entries, _ in calls) == UNWRITTEN_MAX
        assert audit.dropped._value.get() == 4 + UNWRITTEN_MAX - 1 - BATCH_MAX


async def test_entries_of_one_call_keep_their_order_in_the_audit_trail(server: Address) -> None:
    async with keyed(server) as k:
        admin = await k.role("admin")
        for n in range(150):
            k.api.context.audit.note(asked(f"/{n}"))
        found = await trail(k, admin, "?endpoint=e&limit=200")
        assert [entry["path"] for entry in found] == [f"/{n}" for n in reversed(range(150))]
        assert len({entry["id"] for entry in found}) == 150


async def test_events_say_who_asked(server: Address) -> None:
    async with keyed(server) as k:
        admin, operator = await k.role("admin"), await k.role("operator")
        await k.configure(admin)
        [worker] = await k.api.workers(1, capacity=4)
        assert (await k.ask("POST", f"/v1/workers/{worker.replace('#', '%23')}/cordon", operator))[0] == 200
        k.api.context.events.say("brake_on", silent=5)
        await k.api.context.events.written()
        _, found = await k.ask("GET", "/v1/events", operator)
        by = {event["kind"]: event["by"] for event in found["events"]}
        [cordoned] = await trail(k, admin, "?endpoint=cordon_worker")
        assert by["worker_cordoned"] == cordoned["key"] != "" and by["brake_on"] == ""


async def test_dhsched_audit_fits_a_terminal(server: Address) -> None:
    async with serving(server) as api:
        await api.configure()
        await api.context.audit.written()
        env = {"DHSCHED_URL": f"http://127.0.0.1:{api.client.port}", "COLUMNS": "80"}
        shown = await asyncio.to_thread(CliRunner().invoke, cli.app, ["audit"], env=env)
        assert shown.exit_code == 0 and "put_pool" in shown.output and "(open)" in shown.output
        printed = await asyncio.to_thread(CliRunner().invoke, cli.app, ["audit", "--json", "--limit", "1"], env=env)
        assert len(json.loads(printed.stdout)["entries"]) == 1


async def test_every_endpoint_that_changes_something_is_audited(server: Address) -> None:
    async with serving(server) as api:
        endpoints = Replica(api.context).endpoints()
    silent = {each.name for each in endpoints if each.method != "GET" and not each.audited}
    assert silent == {"mint_token", "show_publishing", "say_blocked", "end_session"}

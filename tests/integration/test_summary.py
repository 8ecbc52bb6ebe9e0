"""The deployment in one document, who serves it, and the feed of changes: over HTTP, on a real store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from typer.testing import CliRunner

from dhsched import cli
from dhsched.client import Client
from dhsched.client.models.summary import AllWorkers, Changes
from dhsched.dispatch.api import summary
from dhsched.store.records.replicas import ReplicaReport, SafetyCounts
from tests.harness.fleet import Record, fleet, until_so
from tests.harness.keyed import bearer, keyed
from tests.harness.servers import empty_server
from tests.harness.serving import serving

STREAM = {"Accept": "text/event-stream"}


async def sent(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, Any]]:
    """The events of a stream: id, name and data."""
    number = name = ""
    async for line in response.content:
        key, _, value = line.decode().rstrip("\n").partition(": ")
        number, name = (value if key == "id" else number), (value if key == "event" else name)
        if key == "data":
            yield number, name, json.loads(value)


async def test_the_summary_counts_lives_slots_and_pools() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        await api.configure()
        _, b = await api.workers(2, capacity=4)
        for n in range(3):
            assert (await api.create(f"L{n}"))[0] == 201
        await api("POST", "/v1/lives/L2/end")
        await api("POST", f"/v1/workers/{quote(b)}/cordon")
        await api.context.fleet.refresh()
        status, found = await api("GET", "/v1/summary")
        assert status == 200 and found["lives"] == {"open": 2, "waiting": 0, "recovering": 0, "creates_waiting": 0}
        assert found["workers_by_status"] == {"cordoned": 1, "ready": 1} and found["workers"] == 2
        assert found["slots"]["capacity"] == 4 and found["brake"] == {"on": False, "by": "", "silent": 0}
        [pool] = found["pools"]
        assert pool["name"] == "gpu" and pool["barred"]["cordoned"]["capacity"] == 4
        assert pool["free"] == found["slots"]["free"] == 4 - pool["load"] and pool["waterline"] == pool["load"] / 4
        assert found["store"]["home"] and found["safety"]["checked_ms_ago"] is None
        await api.context.records.fleet.mark_brake("d-9", 60_000)
        assert (await api("GET", "/v1/summary"))[1]["brake"]["by"] == "d-9"


@pytest.mark.release
async def test_replicas_tell_of_themselves_and_their_counts_are_added_up(tmp_path: Path) -> None:
    async with fleet(tmp_path, dispatch=2, with_loops=True, replica={"reconcile_s": 0.2}) as f:
        await f.start_worker(Record(), "a")

        def all_told(found: Any) -> bool:
            checks = [each["safety"]["checked_ms_ago"] for each in found if each["safety"]]
            return [each["role"] for each in found] == ["dispatch", "dispatch", "infer"] and None not in checks

        async def replicas() -> Any:
            return (await f.get("/v1/replicas"))["replicas"]

        found = await until_so(replicas, all_told, "a report of each replica after its first check")
        assert all(each["ready"] and each["version"] and not each["missing"] for each in found)
        assert found[2]["url"] == f.infer[0] and found[2]["safety"] is None
        f.replicas[0].safety.dual_owners += 1
        f.replicas[1].safety.drift += 2

        async def counts() -> Any:
            return (await f.get("/v1/summary"))["safety"]

        safety = await until_so(counts, lambda s: (s["dual_owners"], s["drift"]) == (1, 2), "the counts of both")
        assert safety["replicas"] == 2 and safety["overshoots"] == 0 and safety["workers"] >= 2


async def test_a_replica_that_tells_nothing_is_not_listed() -> None:
    async with empty_server("valkey") as server, serving(server.address) as api:
        records = api.context.store.records.replicas
        await records.report(ReplicaReport(role="dispatch", name="old", version="1", missing=("it is tired",)))
        [row] = (await api("GET", "/v1/replicas"))[1]["replicas"]
        assert not row["ready"] and row["missing"] == ["it is tired"]
        link, key = api.context.store.link, api.context.store.keys.of("replicas")
        told = (await link.call("HGET", key, "dispatch/old")).partition(b" ")
        for age_ms, kept in ((20_000, True), (90_000, False)):
            await link.call("HSET", key, "dispatch/old", b"%d %b" % (int(told[0]) - age_ms, told[2]))
            await records.report(ReplicaReport(role="dispatch", name="new", version="1"))
            assert [each["name"] for each in (await api("GET", "/v1/replicas"))[1]["replicas"]] == ["new"]
            assert bool(await link.call("HEXISTS", key, "dispatch/old")) is kept, "old reports are removed"
        await records.withdraw("dispatch", "new")
        assert (await api("GET", "/v1/replicas"))[1]["replicas"] == []


async def test_a_reader_is_given_all_workers_then_what_changes_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async with fleet(tmp_path, with_loops=True) as f:
        await f.start_worker(Record(), "a")
        await f.create("first")
        async with asyncio.timeout(60), Client(f.dispatch) as client:
            feed = client.changes()
            page = await anext(feed)
            assert isinstance(page, AllWorkers) and page.first and page.last
            assert [each.pool for each in page.workers] == ["gpu"]
            await f.create("second")
            seen: list[str] = []
            async for each in feed:
                assert isinstance(each, Changes)
                seen += [live.state for live in each.lives if live.live_id == "second"]
                if "running" in seen:
                    break
            assert seen in (["starting", "running"], ["running"]), "a claim is a change, too"
        cursor = (await f.get("/v1/changes"))["cursor"]
        await f.create("third")
        async with (
            asyncio.timeout(60),
            f.http.get(f"{f.dispatch[0]}/v1/changes", headers={**STREAM, "Last-Event-ID": cursor}) as response,
        ):
            number, name, data = await anext(sent(response))
            assert name == "changes" and int(number.partition(".")[2]) == int(cursor.partition(".")[2]) + 1
            assert {each["live_id"] for each in data["lives"]} == {"third"}
        unknown = {**STREAM, "Last-Event-ID": "00000000.7"}
        async with asyncio.timeout(60), f.http.get(f"{f.dispatch[0]}/v1/changes", headers=unknown) as response:
            _, name, data = await anext(sent(response))
            assert name == "all" and data["first"], "what another replica has numbered is read again"


async def test_readers_of_the_feed_share_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "OVERVIEW_S", 3_600.0)
    async with empty_server("valkey") as server, keyed(server.address) as at:
        reader, app = await at.role("reader"), await at.role("app", tenant="acme")
        await at.api.workers(1, capacity=4)
        feed = at.api.replica.changes
        await feed.now()
        path = "/v1/changes?summary=true"
        got = []
        async with asyncio.timeout(60), contextlib.AsyncExitStack() as stack:
            for _ in range(2):
                response = await stack.enter_async_context(at.api.client.get(path, headers={**reader, **STREAM}))
                async for _, name, data in sent(response):
                    if name == "summary":
                        got.append(data)
                        break
            assert got[0] == got[1], "it was made once"
            assert got[0]["summary"]["workers"] == 1 and got[0]["replicas"] == []
            response = await stack.enter_async_context(at.api.client.get(path, headers={**app, **STREAM}))
            assert (await anext(sent(response)))[1] == "all"
            opened = asyncio.ensure_future(anext(sent(response)))
            await asyncio.wait({opened}, timeout=0.5)
            assert not opened.done(), "an app is given none"
            opened.cancel()


async def test_an_app_is_given_its_own_lives_and_no_workers() -> None:
    async with empty_server("valkey") as server, keyed(server.address) as at:
        admin, reader = await at.role("admin"), await at.role("reader")
        mine, other = await at.role("app", tenant="acme"), await at.role("app", tenant="umbrella")
        for path in ("/v1/summary", "/v1/replicas"):
            assert (await at.ask("GET", path, mine))[0] == 403
            assert (await at.ask("GET", path, reader))[0] == 200
            assert (await at.ask("GET", path))[0] == 401
        await at.configure(admin)
        [worker] = await at.api.workers(1, capacity=4)
        feed, got = at.api.replica.changes, {}
        await feed.now()
        async with contextlib.AsyncExitStack() as stack:
            streams = {}
            for name, shown in (("reader", reader), ("mine", mine)):
                opened = await stack.enter_async_context(at.api.client.get("/v1/changes", headers={**shown, **STREAM}))
                streams[name] = sent(opened)
                got[name] = (await anext(streams[name]))[2]["workers"]
            assert [each["worker"] for each in got["reader"]] == [worker] and got["mine"] == []
            for app, live in ((mine, "L-1"), (other, "L-2")):
                assert (await at.ask("POST", "/v1/lives", app, {"live_id": live, "digital_id": "anna"}))[0] == 201
            await at.api.context.fleet.refresh()
            await feed.round()
            seen = {name: (await anext(streams[name]))[2] for name in streams}
            assert {each["live_id"] for each in seen["reader"]["lives"]} == {"L-1", "L-2"}
            assert [each["live_id"] for each in seen["mine"]["lives"]] == ["L-1"] and "workers" not in seen["mine"]


async def test_the_verbs_summary_and_console(monkeypatch: pytest.MonkeyPatch) -> None:
    async with empty_server("valkey") as server, keyed(server.address) as at:
        admin = await at.key("admin")
        monkeypatch.setenv("DHSCHED_KEY", admin)
        url = str(at.api.client.make_url("/")).rstrip("/")
        await at.configure(bearer(await at.token(admin)))
        await at.api.workers(2, capacity=4)
        await at.api.context.store.records.replicas.report(
            ReplicaReport(role="dispatch", name="d1", version="1", safety=SafetyCounts(checked_ms_ago=4_000))
        )
        printed = await asyncio.to_thread(CliRunner().invoke, cli.app, ["summary", "--url", url])
        assert printed.exit_code == 0, printed.output
        assert "slots: 8 free of 8; brake off" in printed.stdout
        assert "0 two owners, 0 over capacity, 0 drift, checked 4 s ago by 1 replicas" in printed.stdout
        await at.api.context.store.records.replicas.report(
            ReplicaReport(role="dispatch", name="d1", version="1", safety=SafetyCounts(dual_owners=1))
        )
        printed = await asyncio.to_thread(CliRunner().invoke, cli.app, ["summary", "--json", "--url", url])
        assert printed.exit_code == 1, "what must be 0 is not"
        assert json.loads(printed.stdout)["replica_list"][0]["safety"]["dual_owners"] == 1
        words = ["console", "--role", "reader", "--ttl", "60", "--url", url]
        printed = await asyncio.to_thread(CliRunner().invoke, cli.app, words)
        link, _, token = printed.stdout.strip().partition("#token=")
        assert link == f"{url}/console" and (await at.ask("GET", "/v1/summary", bearer(token)))[0] == 200
        assert (await at.ask("POST", "/v1/lives", bearer(token), {"digital_id": "anna"}))[0] == 403, "a reader's token"


async def test_the_page_of_the_console_may_load_its_own_files_alone() -> None:
    async with empty_server("valkey") as server, keyed(server.address) as at:
        async with at.api.client.get("/console") as response:
            policy, page = response.headers["Content-Security-Policy"], await response.text()
            assert response.status == 200 and response.headers["Referrer-Policy"] == "no-referrer"
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        files = re.findall(r'(?:src|href)="(/console/[^"]+)"', page)
        assert len(files) >= 4 and "://" not in page
        for file in {*files}:
            async with at.api.client.get(file) as response:
                assert response.status == 200 and response.headers["X-Content-Type-Options"] == "nosniff", file
        assert (await at.ask("GET", "/console/nope.js"))[0] == 404
        assert (await at.ask("GET", "/console/..%2Fconsole.py"))[0] == 404

"""Terms: an operator begins one, every live is placed anew once; and no Worker's word begins any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.test_utils import TestClient

from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.loops import running
from dhsched.links import messages
from dhsched.store.link.address import Address
from dhsched.tokens import Boot
from tests.harness.fleet import Fleet, Record, fleet, until
from tests.harness.pullers import puller
from tests.harness.serving import Api, serving

LIVES = ("a", "b", "c")
MADE_UP_PULLS = 8
MADE_UP = 10**6


async def term_of(context: DispatchContext) -> int:
    return int(await context.store.link.call("HGET", context.store.keys.cell, "term") or 1)


async def said(api: Api, kind: str) -> list[Any]:
    await api.context.events.written()
    events = (await api("GET", "/v1/events?limit=1000"))[1]["events"]
    return [event for event in events if event["kind"] == kind]


# -- the operator


async def begin(f: Fleet, term: int, reason: str = "") -> tuple[int, Any]:
    body = {"term": term, "reason": reason}
    async with f.http.post(f"{f.dispatch[0]}/v1/store/new-term", json=body) as response:
        return response.status, await response.json(content_type=None)


async def test_a_term_restarts_every_runtime_once_and_at_once(tmp_path: Path) -> None:
    """With rounds of reconciliation an hour apart, nobody waits for one."""
    record = Record()
    async with fleet(tmp_path, dispatch=2, with_loops=True, replica={"reconcile_s": 3600}) as f:
        await f.start_worker(record, "w1")
        for live in LIVES:
            await f.create(live)
            await f.push(live, "before")
        await until(lambda: len(record.consumed) == len(LIVES), "the first items")
        status, begun = await begin(f, 1, "the records are wrong")
        assert (status, begun["term"]) == (200, 2)
        await until(lambda: len(record.opened) >= 2 * len(LIVES), "every live in a generation above the floor", 30)
        for live in LIVES:
            await f.push(live, "after")
        await until(lambda: all(record.texts(live)[-1] == "after" for live in LIVES), "the items after", 30)
        for replica in f.replicas:
            await replica.fleet.refresh()
            await replica.events.written()
        assert await term_of(f.replicas[0]) == 2
        assert len(record.opened) == 2 * len(LIVES), "once"
        terms = [event for event in (await f.get("/v1/events?limit=1000"))["events"] if event["kind"] == "new_term"]
        assert [(event["numbers"]["term"], event["numbers"]["reason"]) for event in terms] == [
            (2, "the records are wrong")
        ]
        # The same request again, as after a lost answer, begins no other one.
        status, problem = await begin(f, 1)
        assert (status, problem["code"]) == (409, "STALE") and "2" in problem["detail"]
        assert await term_of(f.replicas[0]) == 2


async def test_after_a_new_term_every_live_is_looked_at_at_once(server: Address) -> None:
    """Also one that nobody pulls, and whose Worker says nothing: only a walk over all lives comes by there."""
    async with serving(server, reconcile_s=3600, worker_ttl_s=3600) as api:
        context = api.context
        await api.configure()
        await api.workers(1, capacity=4)
        for live in LIVES:
            assert (await api.create(live))[0] == 201
        await context.fleet.refresh()
        async with running(api.replica.loops(), rng=context.rng):
            assert (await api("POST", "/v1/store/new-term", {"term": 1}))[0] == 200
            async with asyncio.timeout(20):
                while True:
                    floor = await context.records.fleet.epoch_floor()
                    epochs = [(await api("GET", f"/v1/lives/{live}"))[1]["epoch"] for live in LIVES]
                    if floor and min(epochs) > floor:
                        break
                    await asyncio.sleep(0.02)
        assert [event["numbers"]["term"] for event in await said(api, "new_term")] == [2]


# -- words


@asynccontextmanager
async def linked(client: TestClient[Any, Any], name: str, **options: Any) -> AsyncIterator[Linked]:
    async with client.ws_connect("/v1/workers/link", **options) as socket:
        made = Linked(socket)
        await socket.send_bytes(messages.encode([messages.Register(name, f"boot-{name}", "gpu", 4, "", "")]))
        await made.hear(messages.Registered)
        yield made


class Linked:
    """A Worker's link, of which the test is the Worker."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def hear(self, *kinds: type) -> Any:
        while True:
            message = await self._socket.receive(timeout=20)
            assert message.type is aiohttp.WSMsgType.BINARY, message
            for each in messages.read_from_dispatch(message.data):
                if isinstance(each, kinds):
                    return each

    async def report(self, term: int, rev: int = 0) -> Any:
        await self._socket.send_bytes(messages.encode([messages.Report(term, rev)]))
        return await self.hear(messages.Reported, messages.Problem)


async def test_reports_of_tables_that_were_never_written_are_answered_with_the_table_and_change_nothing(
    server: Address,
) -> None:
    async with serving(server) as api, linked(api.client, "w1") as one, linked(api.client, "w2") as two:
        await one.report(0)
        for n in range(20):
            for each in (one, two):
                answer = await each.report(MADE_UP * (n + 1), rev=MADE_UP)
                assert isinstance(answer, messages.Reported) and answer.table == {} and answer.term == 1
        assert await term_of(api.context) == 1
        assert await said(api, "new_term") == []


async def test_a_pull_of_a_number_that_was_never_issued_is_stale_and_restarts_nobody(tmp_path: Path) -> None:
    record = Record()
    async with fleet(tmp_path, with_loops=True) as f:
        await f.start_worker(record, "w1")
        for live in LIVES:
            await f.create(live)
        await until(lambda: len(record.opened) == len(LIVES), "every runtime")
        store = f.controllers[0].context.store
        forger = await store.register_worker(name="x", boot="b9", pool="other", capacity=1)
        token = f.controllers[0].pull_text.tokens.issue(Boot(forger.worker, "b9", "x", "other", 1))
        made_up = [messages.Pull("default/a", MADE_UP + n, 0) for n in range(MADE_UP_PULLS)]
        async with puller(f.http, f.infer[0], token, *made_up) as heard:
            assert isinstance(await heard.get(), messages.Welcome)
            answers = [await heard.get() for _ in made_up]
        assert {type(each) for each in answers} == {messages.Stale}
        assert await term_of(f.replicas[0]) == 1
        async with f.http.get(f"{f.infer[0]}/metrics") as response:
            assert f"dhsched_pulls_never_issued_total {MADE_UP_PULLS}.0" in await response.text()
        for live in LIVES:
            await f.push(live, "after")
        await until(lambda: all(record.texts(live) == ["after"] for live in LIVES), "an item of each")
        assert len(record.opened) == len(LIVES), "no runtime was restarted"

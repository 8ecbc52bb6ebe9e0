"""Lost history as it is noticed and fenced: one loss, one term, said once; and no term from one voice's word."""

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
from dhsched.dispatch.recovery.reconcile import Reconciliation
from dhsched.dispatch.recovery.recover import Recovery
from dhsched.dispatch.recovery.silences import Silences
from dhsched.links import messages
from dhsched.store.link.address import Address
from dhsched.tokens import Boot
from tests.harness.fleet import Record, fleet, until
from tests.harness.keyed import keyed
from tests.harness.pullers import puller
from tests.harness.serving import Api, serving

LIVES = ("a", "b", "c")
MADE_UP_PULLS = 8
MADE_UP = 10**6


async def term_of(context: DispatchContext) -> int:
    return int(await context.store.link.call("HGET", context.store.keys.cell, "term") or 1)


async def forget(context: DispatchContext) -> None:
    """The store goes back by the last change: nothing that it says of it can be trusted any more."""
    await context.store.link.call("HINCRBY", context.store.keys.cell, "rev", -1)


async def said(api: Api, kind: str) -> list[Any]:
    await api.context.events.written()
    events = (await api("GET", "/v1/events?limit=1000"))[1]["events"]
    return [event for event in events if event["kind"] == kind]


# -- one loss


async def test_a_loss_restarts_every_runtime_once_and_at_once(tmp_path: Path) -> None:
    """With rounds of reconciliation an hour apart, nobody waits for one."""
    record = Record()
    async with fleet(tmp_path, dispatch=2, with_loops=True, replica={"reconcile_s": 3600}) as f:
        await f.start_worker(record, "w1")
        for live in LIVES:
            await f.create(live)
            await f.push(live, "before")
        await until(lambda: len(record.consumed) == len(LIVES), "the first items")
        await forget(f.replicas[0])
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
        assert [event["numbers"]["term"] for event in terms] == [2]
        assert "store" in terms[0]["numbers"]["reason"], terms


async def test_what_a_replica_saw_in_one_term_begins_none_in_the_next(server: Address) -> None:
    async with serving(server) as api:
        context = api.context
        await api.workers(1, capacity=1)
        await forget(context)
        await context.fleet.refresh()
        await context.store.new_term(term=1, seen_term=1)  # Another replica was faster.
        await context.fleet.refresh()
        await Reconciliation(context, Recovery(context, Silences())).round()
        assert await term_of(context) == 2


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
            await forget(context)
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


async def test_two_names_of_one_key_are_one_voice(server: Address) -> None:
    async with keyed(server) as api:
        context, client = api.api.context, api.api.client
        honest = await api.role("worker", names="good-*")
        forger = await api.role("worker", names="bad-*")
        async with (
            linked(client, "good-1", headers=honest) as good,
            linked(client, "bad-1", headers=forger) as one,
            linked(client, "bad-2", headers=forger) as two,
        ):
            assert isinstance(await good.report(0), messages.Reported)
            await context.fleet.refresh()
            for n in range(20):
                assert (await one.report(MADE_UP + n)).code == "ROLLED_BACK"
                assert (await two.report(MADE_UP + n)).code == "ROLLED_BACK"
            assert await term_of(context) == 1
            # Somebody else who says the same, honestly, makes it two.
            assert (await good.report(1, rev=10**6)).code == "ROLLED_BACK"
            assert await term_of(context) > 1


async def test_workers_words_begin_one_term_and_then_none_for_a_while(server: Address) -> None:
    """Without keys, and on one machine, two names may be two Workers: their word counts, and it counts once."""
    async with serving(server) as api, linked(api.client, "w1") as one, linked(api.client, "w2") as two:
        await one.report(0)
        await api.context.fleet.refresh()
        for n in range(20):
            for each in (one, two):
                await each.report(MADE_UP * (n + 1))
                await api.context.fleet.refresh()
        found = await said(api, "new_term")
        assert len(found) == 1, found
        assert "w1#1" in found[0]["numbers"]["reason"] and "w2#2" in found[0]["numbers"]["reason"]
        assert await term_of(api.context) == found[0]["numbers"]["term"]


async def test_a_pull_of_a_number_that_was_never_issued_is_stale_and_restarts_nobody(tmp_path: Path) -> None:
    """An Infer-Controller begins no term: it has one voice's word, and Dispatch weighs those."""
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

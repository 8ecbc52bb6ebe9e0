"""A cell whose slot is moved to another node of its cluster, key by key, while the cell is at work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dhsched.access.ring import open_ring
from dhsched.errors import StoreUnavailable
from dhsched.ownership import invariants
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.store.link.address import Address
from dhsched.store.link.link import LinkSettings
from dhsched.store.raw import read_keys, read_state
from dhsched.store.records.drains import DrainRequest
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import default_scripts, load, scripts_around
from tests.conformance.mutants import LOOK_OFF
from tests.harness.clusters import (
    CELL,
    KEYS,
    Primary,
    begin_move,
    end_move,
    move_key,
    move_slot,
    two_primaries,
)
from tests.harness.fleet import Fleet, Record, until
from tests.harness.servers import redis_with_release

LIVE = "t/live"
LIVES = [f"l{i}" for i in range(6)]


@asynccontextmanager
async def opened(
    at: Primary, replaced: Mapping[str, str] | None = None, deadline_s: float = 20
) -> AsyncIterator[RedisStore]:
    settings = LinkSettings(deadline_s=deadline_s)
    async with await RedisStore.open(at.server.tcp_address, settings=settings, scripts=load(replaced)) as store:
        yield store


# -- one step ----------------------------------------------------------------------------------------------------


async def claimed_live(store: RedisStore) -> str:
    """A live with a runtime on it that waits for input; its Worker."""
    registered = await store.register_worker(name="w", boot="boot-w", pool="gpu", capacity=4)
    await store.report(worker=registered.worker, boot="boot-w")
    create = Create(digital_id="anna", fingerprint="f")
    await store.place(live=LIVE, operation="c", cause="create", create=create, candidates=[registered.worker])
    await store.pull(live=LIVE, worker=registered.worker, epoch=1, after=0, controller="c1")
    return registered.worker


async def everything(*nodes: Primary) -> list[dict[str, Any]]:
    return [await read_keys(node.admin, KEYS) for node in nodes]


async def test_no_script_runs_on_a_slot_that_is_being_moved(kind: str) -> None:
    async with (
        two_primaries(kind) as (left, right),
        opened(left, deadline_s=0.3) as store,
        opened(left, LOOK_OFF.replacements()) as careless,
    ):
        await claimed_live(careless)
        await begin_move(left, right)
        before = await everything(left, right)
        with pytest.raises(StoreUnavailable, match="being moved") as caught:
            await store.append_input(live=LIVE, kind="text", payload=b"hello", producer="p", n=1)
        assert not caught.value.unknown, "the caller may be told that nothing was stored"
        scripts = {**default_scripts(), **scripts_around()}
        arguments = {name: ["1"] * (len(script.argv) + len(script.each)) for name, script in scripts.items()}
        calls = [store.link.run(name, [CELL], arguments[name]) for name in scripts]
        for name, answer in zip(scripts, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            assert isinstance(answer, StoreUnavailable) and not answer.unknown, f"{name}: {answer!r}"
        assert await everything(left, right) == before
        # What the look is for: a queue that was empty is no key yet, and is written after the record.
        told = await careless.append_input(live=LIVE, kind="text", payload=b"hello", producer="p", n=1)
        assert isinstance(told, o.Duplicate), "sent again, it finds its own number, and no item"
        state = await read_state(left.admin, "main")
        assert invariants.of_state(state) != [] and len(state.lives[LIVE].pending) == 0


async def test_no_beat_is_read_on_a_slot_that_is_being_moved(kind: str) -> None:
    """Reports are refused there, so every beat stands still. A replica that read them would call Workers lost, and its
    call would wait in the link and run on the new node, perhaps before the Workers' reports."""
    async with two_primaries(kind) as (left, right), opened(left, deadline_s=0.3) as store:
        worker = await claimed_live(store)
        assert (await store.records.workers.beats()).keys() == {worker}
        await begin_move(left, right)
        assert await left.keys(), "no key has left"
        with pytest.raises(StoreUnavailable, match="being moved") as caught:
            await store.records.workers.beats()
        assert not caught.value.unknown


@redis_with_release
async def test_what_was_asked_while_a_slot_moved_is_done_in_order_on_its_new_node(kind: str) -> None:
    async with two_primaries(kind) as (left, right), opened(left) as store:
        await claimed_live(store)
        ring = await open_ring(store.link, store.keys)
        _, record = await ring.create(role="admin")
        await store.records.drains.put("w#1", DrainRequest(asked_at_ms=1, lives=1, boundary_wait_s=1.0))
        before = await left.admin.call("HGETALL", KEYS.of("keys"))
        await begin_move(left, right)
        await move_key(left, right, KEYS.of("live", LIVE))
        asked = [
            asyncio.ensure_future(store.append_input(live=LIVE, kind="text", payload=b"%d" % n, producer="p", n=n))
            for n in range(1, 51)
        ]
        reading = store.link.call("HGET", KEYS.of("live", LIVE), "digital_id")
        revoking = asyncio.create_task(ring.revoke(record.id))
        saying = asyncio.create_task(store.records.drains.first_to_say("w#1", "done"))
        await until(lambda: store.link.in_flight == 53, "all calls to be kept")
        done, _ = await asyncio.wait([*asked, reading, revoking, saying], timeout=0.2)
        assert not done
        assert await left.admin.call("HGETALL", KEYS.of("keys")) == before
        for key in await left.keys():
            await move_key(left, right, key)
        await end_move(left, right)
        outcomes = await asyncio.gather(*asked)
        assert all(isinstance(each, o.Appended) for each in outcomes), "one that came before another is a GAP"
        assert await reading == b"anna"
        assert await revoking and await saying
        after = await right.admin.call("HGETALL", KEYS.of("keys"))
        assert int(after[b"rev"]) == int(before[b"rev"]) + 1 and f"api:{record.id}".encode() not in after
        assert await right.admin.call("HGET", KEYS.of("drains"), "w#1 done") == b"1"
        assert await left.keys() == []
        state = await read_state(right.admin, "main")
        assert invariants.of_state(state) == []
        assert len(state.lives[LIVE].pending) == 50


# -- a whole deployment ------------------------------------------------------------------------------------------


class ClusterFleet(Fleet):
    @property
    def address(self) -> Address:
        return self.server.tcp_address


@asynccontextmanager
async def cluster_fleet(first: Primary, folder: Path) -> AsyncIterator[ClusterFleet]:
    async with contextlib.AsyncExitStack() as stack:
        made = ClusterFleet(first.server, folder, stack)
        made.http = await stack.enter_async_context(aiohttp.ClientSession())
        await made.start_dispatch(with_loops=True)
        for _ in range(2):
            await made.start_infer()
        await made.configure()
        yield made


class Load:
    """Applications that push all the time, and say again what was not accepted."""

    def __init__(self, fleet: ClusterFleet) -> None:
        self.accepted: dict[str, list[str]] = {live: [] for live in LIVES}
        self._fleet = fleet
        self._going = True
        self._tasks = [asyncio.create_task(self._push(live, i)) for i, live in enumerate(LIVES)]

    async def _push(self, live: str, i: int) -> None:
        n = 0
        while self._going:
            n += 1
            body, url = {"text": f"{n}", "request_id": f"{live}-{n}"}, self._fleet.infer[i % 2]
            while (await self._fleet.post(f"{url}/v1/lives/{live}/text", body))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            self.accepted[live].append(body["text"])

    async def more(self, count: int) -> None:
        """Every live gets so much more accepted."""
        goals = {live: len(accepted) + count for live, accepted in self.accepted.items()}
        await until(lambda: all(len(self.accepted[live]) >= goals[live] for live in LIVES), f"{count} more pushes", 30)

    async def stop(self) -> None:
        self._going = False
        await asyncio.gather(*self._tasks)


@pytest.mark.release
async def test_nothing_is_torn_when_a_slot_is_moved_under_load(kind: str, tmp_path: Path) -> None:
    record = Record()
    async with two_primaries(kind) as (left, right), cluster_fleet(left, tmp_path) as f:
        for name in ("w1", "w2"):
            await f.start_worker(record, name)
        for live in LIVES:
            await f.create(live)
        load = Load(f)
        await load.more(20)
        assert await move_slot(left, right, between_keys_s=0.005) > 30
        await load.more(20)
        assert await left.keys() == []
        # So long that Workers give their replica up: they report all the time, and nobody can write it down.
        assert await move_slot(right, left, first_s=3.0) > 30
        await load.more(20)
        # The home that ends here has the name of the first one, and began later.
        assert await move_slot(left, right) > 30
        await load.more(5)
        await load.stop()
        # In order; what a runtime had not acked may come to the next one again.
        await until(
            lambda: {live: [*dict.fromkeys(record.texts(live))] for live in LIVES} == load.accepted, "it all", 30
        )
        for live in LIVES:
            found = await f.get(f"/v1/lives/{live}")
            assert found["state"] == "open" and found["claimed"], found
        await f.replicas[0].events.written()
        events = (await f.get("/v1/events?limit=1000"))["events"]
        assert {event["kind"] for event in events} <= {"worker_registered", "store_entered"}, "nothing was called lost"
        state = await read_state(right.admin, "main")
        assert invariants.of_state(state) == []
        assert {live.partition("/")[2] for live in state.lives} == {*LIVES}
        assert await left.keys() == []

"""The steps while the store fails under them: replies lost, the server killed, its memory full, its data another's."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dhsched.errors import StoreIncompatible, StoreRefused, StoreUnavailable
from dhsched.local.ports import free_port
from dhsched.ownership import invariants
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import stored
from dhsched.ownership.state import State
from dhsched.ownership.steps.place import Create
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link, LinkSettings
from dhsched.store.raw import read_keys, read_state
from dhsched.store.steps.redis import RedisStore
from dhsched.types import Generation
from tests.harness.cutting import Cutter, cutting
from tests.harness.servers import empty_server, running_server

PATIENT = LinkSettings(deadline_s=20)
ANNA = Create(digital_id="anna", fingerprint="f")
LIVE = "t/live"


async def worker(store: RedisStore, name: str, capacity: int = 1) -> str:
    """A Worker that is ready for lives."""
    registered = await store.register_worker(name=name, boot=f"boot-{name}", pool="gpu", capacity=capacity)
    await store.report(worker=registered.worker, boot=f"boot-{name}")
    return registered.worker


async def create(store: RedisStore, live: str, *candidates: str) -> o.PlaceOutcome:
    return await store.place(
        live=live, operation=f"create-{live[2:]}", cause="create", create=ANNA, candidates=candidates
    )


async def move(store: RedisStore, live: str, expected: int, target: str) -> o.PlaceOutcome:
    operation = f"move-{live[2:]}-{expected}"
    return await store.place(live=live, operation=operation, cause="reassign", expected=expected, candidates=[target])


async def state_of(store: RedisStore) -> State:
    """The whole cell, which must be whole."""
    state = await read_state(store.link, store.keys.cell_name)
    assert invariants.of_state(state) == []
    return state


# -- a reply is lost ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def cut_off(kind: str) -> AsyncIterator[tuple[Cutter, RedisStore]]:
    async with (
        empty_server(kind) as server,
        cutting(partial(asyncio.open_unix_connection, server.address.path)) as cutter,
        await RedisStore.open(Address(host="127.0.0.1", port=cutter.port), settings=PATIENT) as store,
    ):
        yield cutter, store


async def repeated(cutter: Cutter, call: Callable[[], Awaitable[Any]]) -> Any:
    """What the second of two equal calls answers, when the reply to the first was lost."""
    cutter.armed = True
    with pytest.raises(StoreUnavailable, match="repeat it with the same operation id") as lost:
        await call()
    assert lost.value.unknown
    return await call()


@pytest.mark.parametrize("cuts", [300, pytest.param(10_000, marks=pytest.mark.long)])
async def test_a_place_whose_reply_was_lost_is_found_again(kind: str, cuts: int) -> None:
    async with cut_off(kind) as (cutter, store):
        # With one slot each, a place that is charged twice has nowhere to go.
        workers = [await worker(store, "A"), await worker(store, "B")]
        await create(store, LIVE, workers[0])
        for epoch in range(1, cuts + 1):
            target = workers[epoch % 2]
            found = await repeated(cutter, partial(move, store, LIVE, epoch, target))
            assert found == o.Committed(Generation(target, epoch + 1), rev=0, load=0, again=True)
            source = workers[1 - epoch % 2]
            assert await store.depart(worker=source, live=LIVE, number=epoch) == o.Departed("departing")
        state = await state_of(store)
        assert state.cell.placed == state.lives[LIVE].issued == cuts + 1
        assert sorted(record.load for record in state.workers.values()) == [0, 1]
        assert store.link.reconnects == cuts


CUTS = 30


async def test_a_create_whose_reply_was_lost_is_found_again(kind: str) -> None:
    async with cut_off(kind) as (cutter, store):
        where = await worker(store, "A", capacity=CUTS)
        for n in range(CUTS):
            found = await repeated(cutter, partial(create, store, f"t/{n}", where))
            assert found == o.Committed(Generation(where, 1), rev=0, load=0, again=True)
            await store.pull(live=f"t/{n}", worker=where, epoch=1, after=0, controller="c")
        state = await state_of(store)
        assert state.cell.placed == len(state.lives) == state.workers[where].load == CUTS


async def test_a_reservation_whose_reply_was_lost_is_found_again(kind: str) -> None:
    async with cut_off(kind) as (cutter, store):
        source, target = await worker(store, "A"), await worker(store, "B")
        await create(store, LIVE, source)
        for number in range(2, CUTS + 2):
            found = await repeated(cutter, partial(store.reserve, live=LIVE, expected=1, candidates=[target]))
            assert found == o.Reserved(target, number, again=True)
            assert (await state_of(store)).workers[source].cutovers == 1
            assert await store.cancel(live=LIVE, number=number) == o.Cancelled()
            assert await store.depart(worker=target, live=LIVE, number=number) == o.Departed("departing")
        assert (await state_of(store)).lives[LIVE].issued == CUTS + 1


async def test_input_whose_reply_was_lost_is_taken_once(kind: str) -> None:
    async with cut_off(kind) as (cutter, store):
        await create(store, LIVE, await worker(store, "A"))
        for n in range(1, CUTS + 1):
            by: dict[str, Any] = {"producer": "p", "n": (n + 1) // 2} if n % 2 else {"request": f"r{n}"}
            append = partial(store.append_input, live=LIVE, kind="text", payload=b"%d" % n, **by)
            # The last item of a producer is known by its number.
            assert await repeated(cutter, append) == o.Duplicate(n if n % 2 else 0)
        state = await state_of(store)
        assert state.lives[LIVE].pending == tuple(stored("text", b"%d" % n, False) for n in range(1, CUTS + 1))


async def test_an_ack_whose_reply_was_lost_is_taken_once(kind: str) -> None:
    async with cut_off(kind) as (cutter, store):
        where = await worker(store, "A")
        await create(store, LIVE, where)
        me: dict[str, Any] = {"live": LIVE, "worker": where, "epoch": 1}
        await store.pull(**me, after=0, controller="c")
        for n in range(1, CUTS + 1):
            await store.append_input(live=LIVE, kind="text", payload=b"x", request=f"r{n}")
        await store.release_input(**me, pull_no=1, after=0, credit=CUTS)
        for n in range(1, CUTS + 1):
            ack = partial(store.ack_input, **me, n=n, saved=b"%d" % n)
            assert await repeated(cutter, ack) == o.Acked(n, ended=False)
        record = (await state_of(store)).lives[LIVE]
        assert (record.acked, record.pending, record.saved) == (CUTS, (), b"%d" % CUTS)


# -- the server is killed ----------------------------------------------------------------------------------------

CUSTOMERS = 8
MOVES = 6
ITEMS_PER_MOVE = 6


@dataclass
class Tally:
    """What the customers were told."""

    epochs: dict[str, int] = field(default_factory=dict)
    accepted: int = 0
    unknown: int = 0

    async def answered(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call, and call again with the same ids for as long as there is no answer."""
        while True:
            try:
                return await call()
            except StoreUnavailable as error:
                self.unknown += error.unknown


async def customer(store: RedisStore, live: str, workers: list[str], tally: Tally) -> None:
    """Create a live, and move it each time a few items were accepted."""
    made = await tally.answered(partial(create, store, live, workers[0]))
    assert isinstance(made, o.Committed)
    for turn in range(1, MOVES + 1):
        epoch = made.generation.epoch
        for n in range(ITEMS_PER_MOVE):
            text, request = b"%d.%d" % (turn, n), f"{turn}.{n}"
            append = partial(store.append_input, live=live, kind="text", payload=text, request=request)
            assert isinstance(await tally.answered(append), (o.Appended, o.Duplicate))
            tally.accepted += 1
        target = workers[turn % 2]
        made = await tally.answered(partial(move, store, live, epoch, target))
        assert isinstance(made, o.Committed)
        assert made.generation.worker == target and made.generation.epoch > epoch
        tally.epochs[live] = made.generation.epoch


async def test_what_was_acknowledged_survives_a_kill_of_the_server(kind: str, tmp_path: Path) -> None:
    port, tally = free_port(), Tally()
    always: dict[str, Any] = {"port": port, "extra": ("--appendfsync", "always")}
    lives = [f"t/{n}" for n in range(CUSTOMERS)]
    async with running_server(kind, tmp_path, **always) as first:
        store = await RedisStore.open(first.tcp_address, settings=PATIENT)
        assert (await store.link.call("CONFIG", "GET", "appendfsync"))[b"appendfsync"] == b"always"
        workers = [await worker(store, name, capacity=CUSTOMERS * (MOVES + 1)) for name in "AB"]
        load = asyncio.gather(*(customer(store, live, workers, tally) for live in lives))
        while tally.accepted < CUSTOMERS * ITEMS_PER_MOVE * MOVES / 3 and not load.done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        os.kill(first.pid, signal.SIGKILL)
        killed_at = dict(tally.epochs)
    async with running_server(kind, tmp_path, **always), store, asyncio.timeout(60):
        await load
        state = await state_of(store)
    assert killed_at != tally.epochs and tally.unknown > 0 and store.link.reconnects == 1
    assert state.cell.placed == CUSTOMERS * (MOVES + 1)
    texts = [b"%d.%d" % (turn, n) for turn in range(1, MOVES + 1) for n in range(ITEMS_PER_MOVE)]
    sent = tuple(stored("text", text, False) for text in texts)
    for live in lives:
        assert state.lives[live].pending == sent, live
        assert state.lives[live].epoch == tally.epochs[live]


# -- the store is full -------------------------------------------------------------------------------------------


async def refused(call: Awaitable[Any]) -> None:
    with pytest.raises(StoreRefused, match="raise its maxmemory") as caught:
        await call
    assert caught.value.code == "OOM"


async def test_a_full_store_takes_no_more_and_lets_everything_go(kind: str) -> None:
    async with (
        running_server(kind, extra=("--maxmemory", "6mb")) as server,
        await RedisStore.open(server.address, settings=PATIENT) as store,
    ):
        a, b = await worker(store, "A", capacity=8), await worker(store, "B", capacity=8)
        for live in ("t/full", "t/ends", "t/crashes", "t/late"):
            await create(store, live, a)
        me: dict[str, Any] = {"live": "t/full", "worker": a, "epoch": 1}
        await store.pull(**me, after=0, controller="c")
        items = await fill(store, "t/full")
        before = await state_of(store)
        await refused(store.append_input(live="t/ends", kind="text", payload=b"x", request="more"))
        await refused(create(store, "t/new", b))
        assert await state_of(store) == before

        # Everything else goes on, although it writes.
        assert isinstance(await store.pull(live="t/late", worker=a, epoch=1, after=0, controller="c"), o.Pulling)
        assert await store.depart(worker=a, live="t/crashes", number=1) == o.Departed("starting")
        looked = await store.look(live="t/crashes")
        assert isinstance(looked, o.Recover) and looked.need == "vacant"
        placed = await store.place(live="t/crashes", operation="rescue", cause="recover", expected=1, candidates=[b])
        assert isinstance(placed, o.Committed) and placed.generation == Generation(b, 2)
        await refused(create(store, "t/new", b))
        released = await store.release_input(**me, pull_no=1, after=0, credit=items // 2)
        assert isinstance(released, o.Items) and len(released.items) == items // 2
        assert await store.ack_input(**me, n=items // 2) == o.Acked(items // 2, ended=False)
        assert await store.end_live(live="t/ends") == o.Finished("ended")
        await state_of(store)
        appended = await store.append_input(live="t/full", kind="text", payload=b"x", request="again")
        assert appended == o.Appended(items + 1)
        assert isinstance(await create(store, "t/new", b), o.Committed)


async def fill(store: RedisStore, live: str) -> int:
    """Append until the store takes no more; how many items it took."""
    for n in range(1_000):
        try:
            await store.append_input(live=live, kind="text", payload=bytes(32_000), request=f"r{n}")
        except StoreRefused:
            return n
    raise AssertionError("1,000 items did not fill the store")


# -- the data is another version's -------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", ["1", "2", "4", "0", "", "1.5", "one"])
async def test_data_of_another_schema_is_refused_and_left_alone(kind: str, schema: str) -> None:
    async with empty_server(kind) as server, await Link.open(server.address, {}) as link:
        async with await RedisStore.open(server.address) as store:
            await create(store, LIVE, await worker(store, "A"))
        await link.call("HSET", store.keys.cell, "schema", schema)
        before = await read_keys(link, store.keys)
        with pytest.raises(StoreIncompatible, match=f"holds data of schema {schema}, .* nothing was changed") as caught:
            await RedisStore.open(server.address)
        remedy = "run `dhsched store migrate --cell main`" if schema == "2" else "use the version that wrote it"
        assert remedy in str(caught.value)
        assert await read_keys(link, store.keys) == before
        assert int((await link.call("INFO", "keyspace")).split(b"keys=")[1].split(b",")[0]) == len(before)
        # Another cell on the same server is none of its business.
        async with await RedisStore.open(server.address, cell="other") as other:
            assert isinstance(await create(other, LIVE), o.Full)

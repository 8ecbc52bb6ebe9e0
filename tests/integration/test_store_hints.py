"""Wake-ups, and one cell in a cluster: hints reach whoever holds the pull or the Worker's link, and only them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from dhsched.local.ports import free_port
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps.place import Create
from dhsched.store.link.address import Address
from dhsched.store.link.cluster import SLOTS
from dhsched.store.link.link import Link
from dhsched.store.steps.redis import Append, RedisStore
from tests.conformance.lockstep import run
from tests.conformance.operations import LIMITS
from tests.conformance.real import Greeted, StoreSubject, held_scripts
from tests.harness.servers import running_server

CHANNELS = ("infer:c1", "infer:c2", "dispatch:d1", "dispatch:d2")
LIVE = "t/live"


class Ear:
    """Everything that was published to the channels of a cell since it was last asked."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._heard: list[str] = []

    async def listen(self) -> None:
        for channel in CHANNELS:
            await self._store.link.subscribe(self._store.keys.prefix + channel, self._hear)

    def _hear(self, channel: bytes, message: bytes) -> None:
        self._heard.append(f"{channel.decode().removeprefix(self._store.keys.prefix)} {message.decode()}")

    async def since(self) -> list[str]:
        # A hint comes on the connection of the replies, and before the reply of whatever is asked after it.
        await self._store.link.call("PING")
        heard, self._heard = self._heard, []
        return heard


@asynccontextmanager
async def listening(address: Address, limits: Limits | None = None) -> AsyncIterator[tuple[StoreSubject, Ear]]:
    """A store whose clock the test holds, with a Worker A#1 behind d1, B#2 behind d2 and a live on A#1."""
    opening = RedisStore.open(address, limits=limits or Limits(), scripts=held_scripts(), entry=Greeted())
    async with await opening as store:
        subject, ear = StoreSubject(store), Ear(store)
        await subject.reset()
        for name, link in (("A", "d1"), ("B", "d2")):
            made = await store.register_worker(name=name, boot=name, pool="p", capacity=2)
            await store.report(worker=made.worker, boot=name, link=link)
        await ear.listen()
        yield subject, ear


async def test_input_wakes_the_controller_that_holds_the_pull(server: Address) -> None:
    async with listening(server) as (subject, ear):
        store = subject.store
        await place(store)
        me: dict[str, Any] = {"live": LIVE, "worker": "A#1", "epoch": 1}
        await ear.since()
        await append(store, 1)
        assert await ear.since() == []
        await store.pull(**me, after=0, controller="c1")
        assert await ear.since() == []  # A claim is nothing that an agent acts on.
        await append(store, 2)
        assert await ear.since() == [f"infer:c1 {LIVE}"]
        await append(store, 2)
        assert await ear.since() == [f"infer:c1 {LIVE}"]  # A duplicate: perhaps nobody heard of the first.
        await store.pull(**me, after=0, controller="c2")
        await append(store, 3)
        assert await ear.since() == [f"infer:c2 {LIVE}"]
        await store.release_input(**me, pull_no=2, after=0, credit=9)
        await store.ack_input(**me, n=1)
        assert await ear.since() == []
        await store.end_live(live=LIVE)
        assert sorted(await ear.since()) == ["dispatch:d1 A#1", f"infer:c2 {LIVE}"]


async def test_slot_changes_wake_whoever_holds_the_workers_link(server: Address) -> None:
    async with listening(server) as (subject, ear):
        store = subject.store
        await ear.since()
        await place(store)
        assert await ear.since() == ["dispatch:d1 A#1"]
        await store.reserve(live=LIVE, expected=1, candidates=["B#2"])
        assert await ear.since() == ["dispatch:d2 B#2"]
        await store.place(live=LIVE, operation="move", cause="reassign", expected=1, candidates=["B#2"])
        assert sorted(await ear.since()) == ["dispatch:d1 A#1", "dispatch:d2 B#2"]
        await store.depart(worker="A#1", live=LIVE, number=1)
        assert await ear.since() == ["dispatch:d1 A#1"]
        await store.depart(worker="A#1", live=LIVE, number=1)
        assert await ear.since() == []
        await store.report(worker="B#2", boot="B", link="d1")  # The Worker came back to another replica.
        await store.set_worker(worker="B#2", verb="cordon")
        assert await ear.since() == ["dispatch:d1 B#2"]


async def test_a_standstill_and_the_end_of_a_hold_wake_as_well(server: Address) -> None:
    async with listening(server) as (subject, ear):
        store, limits = subject.store, subject.limits
        await place(store)
        await ear.since()
        await subject.wait(limits.claim_wait_ms)
        assert await store.look(live=LIVE) == o.Wake()
        assert await ear.since() == ["dispatch:d1 A#1"]
        await store.pull(live=LIVE, worker="A#1", epoch=1, after=0, controller="c1")
        await append(store, 1)
        await ear.since()
        await subject.wait(limits.ack_wait_ms)
        assert await store.look(live=LIVE) == o.Wake()
        assert await ear.since() == [f"infer:c1 {LIVE}"]
        await store.reserve(live=LIVE, expected=1, candidates=["B#2"])
        await store.hold(live=LIVE, number=2)
        await ear.since()
        await store.cancel(live=LIVE, number=2)
        assert sorted(await ear.since()) == ["dispatch:d2 B#2", f"infer:c1 {LIVE}"]


async def test_who_appends_and_holds_the_pull_gets_no_hint(server: Address) -> None:
    async with listening(server) as (subject, ear):
        store = subject.store
        await place(store)
        await store.pull(live=LIVE, worker="A#1", epoch=1, after=0, controller="c1")
        await ear.since()
        for n, (controller, told) in enumerate((("c1", []), ("c2", [f"infer:c1 {LIVE}"]), ("", [f"infer:c1 {LIVE}"]))):
            row = Append(LIVE, b"tx", request=f"by-{n}")
            assert await store.append_soon([row], controller) == [o.Appended(n + 1)]
            assert await ear.since() == told


async def place(store: RedisStore) -> None:
    made = Create(digital_id="d", fingerprint="f")
    await store.place(live=LIVE, operation="create", cause="create", create=made, candidates=["A#1"])


async def append(store: RedisStore, n: int) -> None:
    await store.append_input(live=LIVE, kind="text", payload=b"x", request=f"r{n}")


# -- a cluster ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def cluster(kind: str) -> AsyncIterator[Address]:
    """A cluster of one node, with all slots."""
    async with (
        running_server(kind, port=free_port(), extra=("--cluster-enabled", "yes")) as server,
        await Link.open(server.tcp_address, {}) as admin,
    ):
        await admin.call("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        async with asyncio.timeout(20):
            while b"cluster_state:ok" not in await admin.call("CLUSTER", "INFO"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        yield server.tcp_address


async def test_the_steps_do_the_same_in_a_cluster(kind: str) -> None:
    async with cluster(kind) as address, listening(address, LIMITS) as (subject, ear):
        assert subject.store.link.server.cluster
        await place(subject.store)
        await subject.store.pull(live=LIVE, worker="A#1", epoch=1, after=0, controller="c1")
        await append(subject.store, 1)
        assert await ear.since() == ["dispatch:d1 A#1", f"infer:c1 {LIVE}"]
        await run(Random(1), subject, steps=150)

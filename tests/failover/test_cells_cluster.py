"""Three cells in a cluster of three primaries with a replica each, every cell on a primary of its own.

What happens to one primary is the business of one cell: its owner dies, or its slot is moved, and pushes to the lives
of the other cells go on as if nothing had happened. Dispatch and Infer are processes, which serve all cells.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from dhsched.cells.fixed import cell_of
from dhsched.local.deployment import Deployment
from dhsched.store.link.cluster import SLOTS
from dhsched.store.link.link import Link
from dhsched.store.server.shards import cell_slot, choose_cells, read_shards, shard_of
from tests.failover.conftest import Show
from tests.harness.clusters import Primary, Six, move_slot, six_nodes
from tests.harness.failover import CAPACITY, DISPATCH, Clustered
from tests.harness.failover_judge import Push
from tests.harness.failover_load import CLIENTS, EVERY_S, NO_ANSWER, TRY_S, Client, Producer, end
from tests.harness.fleet import until_so
from tests.harness.servers import ask, server_binary

CELLS = 3
LIVES = 3  # Of each cell.
WORKERS = 2  # Of each cell.
SHARES = [(n * SLOTS // CELLS, (n + 1) * SLOTS // CELLS - 1) for n in range(CELLS)]
BETWEEN_KEYS_S = 0.005

Fault = Callable[[Six, int], Awaitable[None]]
"""What is done to the primary that serves a slot."""


async def kill(six: Six, slot: int) -> None:
    """The owner dies, and the other primaries vote for its replica."""
    owner = await six.owner(slot)
    six.killed.add(owner.port)
    os.kill(six.servers[owner.port].pid, signal.SIGKILL)


async def reshard(six: Six, slot: int) -> None:
    """The slot is moved key by key, as `--cluster reshard` does it."""
    ports = [(await six.owner(slot)).port, (await six.other_primary(slot)).port]
    async with AsyncExitStack() as stack:
        links = [await stack.enter_async_context(await Link.open(six.servers[port].tcp_address, {})) for port in ports]
        source, target = (Primary(six.servers[port], link, slot) for port, link in zip(ports, links, strict=True))
        assert await move_slot(source, target, between_keys_s=BETWEEN_KEYS_S) > 10


async def migrate(six: Six, slot: int) -> None:
    """The slot is moved at once (Valkey 9)."""
    owner, target = await six.owner(slot), await six.other_primary(slot)
    await ask(owner.port, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)


class Once(Client):
    """One item after the other, each in one request that is never repeated. `took_s` has the time of each."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.took_s: list[float] = []

    async def run(self) -> None:
        while not self.closing:
            began = time.monotonic()
            await self._push(self._next())
            self.took_s.append(time.monotonic() - began)
            await asyncio.sleep(EVERY_S)

    async def _push(self, push: Push) -> None:
        body = {"text": push.text, "request_id": push.text.replace(" ", "-")}
        url, timeout = f"{self._url()}/v1/lives/{self.live}/text", aiohttp.ClientTimeout(total=TRY_S)
        try:
            async with self._http.post(url, json=body, timeout=timeout) as response:
                answer = await response.json(content_type=None)
                if response.status == 200:
                    end(push, "accepted")
                else:
                    end(push, "refused", str(answer))
        except NO_ANSWER as error:
            end(push, "unknown", repr(error))


class Cells(Clustered):
    """A deployment of several cells: `names` are the cells, `lives_in` has the lives of each that were created."""

    names: list[str]
    lives_in: dict[str, list[str]]

    async def start_services(self) -> None:
        deployment = await self._stack.enter_async_context(Deployment(self.url, cells=self.names, folder=self.folder))
        settings = {f"DHSCHED_DISPATCH_{name.upper()}": str(value) for name, value in DISPATCH.items()}
        await deployment.dispatch("d1", environment=settings)
        for name in ("i1", "i2"):
            await deployment.infer(name)
        self.dispatch += await deployment.dispatch_urls()
        self.infer += await deployment.infer_urls()

    async def start_workers(self) -> None:
        wanted = {f"{cell}-{n}": cell for cell in self.names for n in range(WORKERS)}
        for name, cell in wanted.items():
            await self.start_worker(self.runtime, name, CAPACITY, cell=cell)
        await until_so(self.ready_workers, lambda found: found.keys() == wanted.keys(), "every Worker to be ready")
        listed = (await self.read("/v1/workers"))["workers"]
        assert {each["worker"].partition("#")[0]: each["cell"] for each in listed} == wanted

    async def create_in_cells(self, number: int) -> None:
        """Create so many lives in each cell."""
        fresh = (live for n in count() if (live := f"l{n}") not in self.lives)
        for cell in self.names:
            ids = (each for each in fresh if self.cell_of(each) == cell)
            self.lives_in[cell] = [*islice(ids, number)]
        await self.create_lives([each for some in self.lives_in.values() for each in some])

    def cell_of(self, live: str) -> str:
        return cell_of(self.names, f"default/{live}")


@asynccontextmanager
async def deployed(kind: str, folder: Path) -> AsyncIterator[Cells]:
    async with AsyncExitStack() as stack:
        six = await stack.enter_async_context(six_nodes(kind, SHARES))
        seed = six.servers[six.alive[0]]
        f = Cells(seed, folder, stack, f"redis://{','.join(f'127.0.0.1:{port}' for port in six.servers)}")
        f.six, f.lives_in = six, {}
        shards = await read_shards(f.address)
        f.names = choose_cells(shards, CELLS)
        primaries = {shard.id for name in f.names if (shard := shard_of(shards, name)) is not None}
        assert len(primaries) == CELLS == len(shards)
        f.http = await stack.enter_async_context(aiohttp.ClientSession())
        await f.start_services()
        await f.configure()
        await f.start_workers()
        await f.create_in_cells(LIVES)
        yield f


class Seen(NamedTuple):
    """What clients saw: when the fault began and when the cell was served anew, for how long no push to its lives was
    accepted, the longest push to another cell, and the pushes to other cells that failed."""

    began: float
    served: float
    gap_s: float
    elsewhere_s: float
    failed: list[Push]


async def under_load(f: Cells, fault: Fault, cell: str, kinds: Sequence[type[Client]]) -> Seen:
    """Do it to the primary of one cell while clients push to the lives of all cells."""
    mine, slot = f.lives_in[cell], cell_slot(cell)
    touched = f.load(mine, kinds=kinds)
    elsewhere = f.load([live for live in f.lives if live not in mine], kinds=[Once])
    await asyncio.gather(touched.more(10), elsewhere.more(10))
    before, began = await f.six.owner(slot), time.monotonic()
    await fault(f.six, slot)
    await f.six.owned_by_another(before, slot)
    await touched.more(3)
    served = time.monotonic()
    await asyncio.gather(touched.more(20), elsewhere.more(20))
    await asyncio.gather(touched.stop(), elsewhere.stop())
    books = replace(f.books, pushes=[push for push in f.books.pushes if push.live in mine])
    others = [client for client in elsewhere.clients if isinstance(client, Once)]
    return Seen(
        began=began,
        served=served,
        gap_s=books.gap_s(began),
        elsewhere_s=max(took_s for client in others for took_s in client.took_s),
        failed=[push for client in others for push in client.pushes if push.fate != "accepted"],
    )


@pytest.mark.parametrize("hit", ["first", "last"])
async def test_a_primary_that_dies_is_missed_in_its_cell_alone(kind: str, hit: str, tmp_path: Path, show: Show) -> None:
    """The first cell is the one where configuration and keys are written. Clients that number their items send again
    what the dead primary took along, so nothing that was accepted is lost."""
    async with deployed(kind, tmp_path) as f:
        cell = f.names[0] if hit == "first" else f.names[-1]
        quiet = [live for live in f.lives if f.cell_of(live) != cell]
        seen = await under_load(f, kill, cell, [Producer])
        still = await f.standing_still()
        broken, figures = await f.judged(lost_at=seen.began, healed_at=seen.served, quiet=quiet)
        show(figures._replace(gap_s=seen.gap_s, elsewhere_s=seen.elsewhere_s))
        assert not seen.failed, "a push to another cell failed"
        assert seen.elsewhere_s < seen.gap_s
        assert not still and not broken
        assert figures.lost == 0
        await f.configure()
        await f.create_in_cells(1)
        assert not await f.standing_still()


@pytest.mark.parametrize("fault", [reshard, migrate])
async def test_a_cell_moves_with_its_slot_and_nobody_notices(
    kind: str, fault: Fault, tmp_path: Path, show: Show
) -> None:
    if fault is migrate and kind != "valkey":
        pytest.skip(f"{server_binary(kind).name} has no CLUSTER MIGRATESLOTS")
    async with deployed(kind, tmp_path) as f:
        cell = f.names[1]
        seen = await under_load(f, fault, cell, CLIENTS)
        still = await f.standing_still()
        broken, figures = await f.judged(lost_at=seen.began, healed_at=seen.began, quiet=f.lives)
        show(figures._replace(gap_s=seen.gap_s, elsewhere_s=seen.elsewhere_s))
        assert not seen.failed, "a push to another cell failed"
        assert not still and not broken
        assert figures.lost == figures.resent == figures.restarted == 0

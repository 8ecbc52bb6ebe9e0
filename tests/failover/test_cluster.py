"""A cell in a cluster of three primaries with a replica each: its slot's owner is replaced, and its slot is moved.

Replication of a cluster does not wait, so an owner that dies, or that a replica pushes aside, may take something along:
then producers that number their items find out by GAP, and what was told and lost must be said.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from dhsched.store.link.link import Link
from tests.failover.conftest import Show
from tests.harness.clusters import SLOT, Primary, Six, move_slot
from tests.harness.failover import Clustered, on_cluster
from tests.harness.failover_load import Client, Producer
from tests.harness.servers import ask, server_binary

LIVES = [f"l{n}" for n in range(4)]
QUIET = [f"q{n}" for n in range(3)]
BETWEEN_KEYS_S = 0.005

Fault = Callable[[Six], Awaitable[None]]


async def fail_over(six: Six) -> None:
    """The replica takes over by agreement: the owner stops taking writes until the replica has them all."""
    await ask((await six.replica()).port, "CLUSTER", "FAILOVER")


async def take_over(six: Six) -> None:
    """The replica takes over without asking anybody."""
    await ask((await six.replica()).port, "CLUSTER", "FAILOVER", "TAKEOVER")


async def kill(six: Six) -> None:
    """The owner dies, and the other primaries vote for its replica."""
    owner = await six.owner()
    six.killed.add(owner.port)
    os.kill(six.servers[owner.port].pid, signal.SIGKILL)


async def reshard(six: Six) -> None:
    """The slot is moved key by key, as `--cluster reshard` does it."""
    ports = [(await six.owner()).port, (await six.other_primary()).port]
    async with AsyncExitStack() as stack:
        links = [await Link.open(six.servers[port].tcp_address, {}) for port in ports]
        for link in links:
            stack.push_async_callback(link.close)
        source, target = (Primary(six.servers[port], link) for port, link in zip(ports, links, strict=True))
        assert await move_slot(source, target, between_keys_s=BETWEEN_KEYS_S) > 20


async def migrate(six: Six) -> None:
    """The slot is moved at once (Valkey 9)."""
    owner, target = await six.owner(), await six.other_primary()
    await ask(owner.port, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", SLOT, SLOT, "NODE", target.id)


@asynccontextmanager
async def deployed(kind: str, folder: Path) -> AsyncIterator[Clustered]:
    async with on_cluster(kind, folder) as f:
        await f.start_dispatch()
        for _ in range(2):
            await f.start_infer()
        await f.configure()
        for name in ("w1", "w2"):
            await f.start_recording_worker(name)
        await f.create_lives([*LIVES, *QUIET])
        yield f


async def under_load(f: Clustered, fault: Fault, *kinds: type[Client]) -> tuple[float, float]:
    """Do it while clients push; return when it began, and when the new owner alone was asked."""
    load = f.load(LIVES, kinds=kinds)
    await load.more(10)
    before, began = await f.six.owner(), time.monotonic()
    await fault(f.six)
    await f.six.owned_by_another(before)
    await load.more(3)
    owned = time.monotonic()
    await load.more(20)
    await load.stop()
    return began, owned


@pytest.mark.parametrize("fault", [take_over, kill])
async def test_an_owner_that_is_replaced_by_force(kind: str, fault: Fault, tmp_path: Path, show: Show) -> None:
    """Clients that number their items send again what the old owner took along."""
    async with deployed(kind, tmp_path) as f:
        began, owned = await under_load(f, fault, Producer)
        still = await f.standing_still()
        broken, figures = await f.judged(lost_at=began, healed_at=owned, quiet=QUIET)
        show(figures)
        assert not still and not broken


async def test_what_a_takeover_loses_of_other_clients_is_said(kind: str, tmp_path: Path, show: Show) -> None:
    async with deployed(kind, tmp_path) as f:
        began, owned = await under_load(f, take_over)
        still = await f.standing_still()
        broken, figures = await f.judged(lost_at=began, healed_at=owned, quiet=QUIET)
        show(figures)
        assert not still and not broken


@pytest.mark.parametrize("fault", [fail_over, reshard, migrate])
async def test_a_planned_change_loses_nothing_and_restarts_nobody(
    kind: str, fault: Fault, tmp_path: Path, show: Show
) -> None:
    if fault is migrate and kind != "valkey":
        pytest.skip(f"{server_binary(kind).name} has no CLUSTER MIGRATESLOTS")
    async with deployed(kind, tmp_path) as f:
        began, _ = await under_load(f, fault)
        still = await f.standing_still()
        broken, figures = await f.judged(lost_at=began, healed_at=began, quiet=f.lives)
        show(figures)
        assert not still and not broken
        assert figures.lost == figures.resent == figures.restarted == 0

"""Two primaries at once: replication is cut, a replica is promoted, and a part of the services stays on the old side.

The old side is a Dispatch replica, an Infer-Controller and two Workers. On the new side a Dispatch replica finds the
Workers of the old side silent, and places their lives on a Worker of its own. Then the old primary follows the new one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dhsched.store.keys import Keys
from tests.failover.conftest import Show
from tests.harness.failover import Replicated, on_replicas

LIVES = [f"l{n}" for n in range(6)]
PUSHES = 12
CUT_S = 2.0  # For which clients push to a primary without replicas.
OLD, NEW = 0, 1


@asynccontextmanager
async def divided(kind: str, folder: Path, settle: int = 0) -> AsyncIterator[Replicated]:
    """The old side with all lives, and a Dispatch replica on the new side; still one primary, with two replicas."""
    async with on_replicas(kind, folder, replicas=2, fronts=2, settle=settle) as f:
        await f.start_dispatch()
        await f.start_infer()
        await f.configure()
        for name in ("old1", "old2"):
            await f.start_recording_worker(name, f.dispatch[OLD])
        await f.create_lives(LIVES)
        await f.move(LIVES, "old1")
        f.url = f.fronts[NEW].url
        await f.start_dispatch()
        assert not await f.standing_still()
        await f.group.in_sync()
        yield f


async def divide(f: Replicated) -> None:
    """Cut replication and promote a replica, which the other one follows; the new side gets what it needs to serve."""
    old = f.group.primary
    f.group.cut()
    await f.group.promote(f.group.replicas[0])
    f.fronts[NEW].lead_to(f.group.primary)
    assert f.fronts[OLD].target == old.port
    # The new side's Workers must not be sent to the old side's controller, which it would list for a few seconds more.
    await f.group.primary.ask("DEL", Keys("main").of("controllers"))
    await f.start_infer()
    await f.start_recording_worker("new1", f.dispatch[NEW])


async def heal(f: Replicated) -> None:
    """The old primary gives up its history and follows the new one, and the old side's services are led to the new."""
    old = next(member for member in f.group.members if member.port == f.fronts[OLD].target)
    f.fronts[OLD].close_off()
    await old.copy(f.group.primary)
    await f.group.in_sync()
    f.fronts[OLD].lead_to(f.group.primary)
    f.fronts[OLD].open_up()


async def test_numbers_of_two_primaries_never_meet(kind: str, tmp_path: Path, show: Show) -> None:
    async with divided(kind, tmp_path) as f:
        lost_at = time.monotonic()
        await divide(f)
        await f.move(LIVES, "old2", f.dispatch[OLD])
        await f.claimed(LIVES, f.dispatch[NEW], by="new1")
        sides = [f.load(LIVES, [f.infer[side]], f"-{side}") for side in (OLD, NEW)]
        for side in sides:
            await side.more(PUSHES)
            await side.stop()
        await heal(f)
        healed_at = time.monotonic()
        still = await f.standing_still()
        # A live begins on the old side, on the new side, and once more at most.
        broken, figures = await f.judged(lost_at=lost_at, healed_at=healed_at, restarts_max=3, url=f.dispatch[NEW])
        show(figures)
        assert not still and not broken


async def test_with_settled_replies_the_old_side_tells_and_releases_nothing(
    kind: str, tmp_path: Path, show: Show
) -> None:
    async with divided(kind, tmp_path, settle=1) as f:
        lost_at = time.monotonic()
        await divide(f)
        old = f.load(LIVES, [f.infer[OLD]], "-old")
        reassigned, answer = await f.try_reassign(LIVES[0], "old2", f.dispatch[OLD])
        await f.claimed(LIVES, f.dispatch[NEW], by="new1")
        new = f.load(LIVES, [f.infer[NEW]], "-new")
        await new.more(PUSHES)
        told = [push.text for client in old.clients for push in client.pushes if push.fate == "accepted"]
        released = [one.text for one in f.books.consumed if "-old-" in one.text]
        await heal(f)
        healed_at = time.monotonic()
        for side in (old, new):
            await side.more(PUSHES)
            await side.stop()
        still = await f.standing_still()
        broken, figures = await f.judged(lost_at=lost_at, healed_at=healed_at, restarts_max=3, url=f.dispatch[NEW])
        show(figures)
        assert reassigned >= 500, answer
        assert not told and not released
        assert not still and not broken
        assert figures.lost == 0


async def test_with_settled_replies_nothing_told_is_lost_with_the_primary(
    kind: str, tmp_path: Path, show: Show
) -> None:
    """Replication is cut, clients go on, and then the primary is killed: what a replica did not have was not told."""
    async with divided(kind, tmp_path, settle=1) as f:
        load = f.load(LIVES)
        await load.more(PUSHES)
        f.group.cut()
        f.runtime.may_consume.clear()
        await asyncio.sleep(CUT_S)
        lost_at = time.monotonic()
        await f.group.primary.kill()
        await f.group.promote(f.group.replicas[0])
        f.point_fronts(f.group.primary)
        f.runtime.may_consume.set()
        healed_at = time.monotonic()
        await load.more(PUSHES)
        await load.stop()
        still = await f.standing_still()
        broken, figures = await f.judged(lost_at=lost_at, healed_at=healed_at)
        show(figures)
        assert not still and not broken
        assert figures.lost == figures.resent == 0, "a producer that had to send again was told what was lost"

"""The store comes back without the end of its history: after a power cut, because a replica that lacks it took over, or
because the primary had to copy such a replica for a moment.

Everything else goes on running, and has seen what the store has forgotten.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.failover.conftest import Show
from tests.harness.clients import client_of
from tests.harness.failover import FLOW_S, How, Replicated, on_replicas
from tests.harness.failover_load import Producer
from tests.harness.fleet import until, until_so

LIVES = [f"l{n}" for n in range(4)]
QUIET = [f"q{n}" for n in range(3)]
"""Lives without a change in the lost time: they must not notice anything."""
AFTER_S = 2.0  # For what would still restart.

how = pytest.mark.parametrize("how", ["power cut", "promotion", "demotion"])


@asynccontextmanager
async def deployed(kind: str, folder: Path, **given: Any) -> AsyncIterator[Replicated]:
    """One Dispatch replica, two Infer-Controllers, three Workers, all lives."""
    async with on_replicas(kind, folder, **given) as f:
        await f.start_dispatch()
        for _ in range(2):
            await f.start_infer()
        await f.configure()
        for name in ("w1", "w2", "w3"):
            await f.start_recording_worker(name)
        await f.create_lives([*LIVES, *QUIET])
        yield f


# -- only input is lost


@how
async def test_input_accepted_after_a_loss_of_input_is_consumed(
    kind: str, how: How, tmp_path: Path, show: Show
) -> None:
    """Producers push all the time and send again what was lost; others push only afterwards."""
    async with deployed(kind, tmp_path) as f:
        load, tail = f.load(LIVES, kinds=[Producer]), f.begin_to_lose(how)
        await load.more(10)
        await tail.begin()
        await load.more(10)
        await tail.lose()
        others = f.load(LIVES, name="-after")
        for each in (load, others):
            await each.more(10)
            await each.stop()
        still = await f.standing_still()
        broken, figures = await f.judged(lost_at=tail.lost_at, healed_at=tail.healed_at, quiet=QUIET)
        show(figures)
        assert not still and not broken


@how
async def test_input_that_was_accepted_and_lost_is_said(kind: str, how: How, tmp_path: Path, show: Show) -> None:
    async with deployed(kind, tmp_path) as f:
        load, tail = f.load(LIVES), f.begin_to_lose(how)
        await load.more(10)
        await tail.begin()
        f.runtime.may_consume.clear()
        await load.more(10)
        await tail.lose()
        f.runtime.may_consume.set()
        await load.more(10)
        await load.stop()
        still = await f.standing_still()
        broken, figures = await f.judged(lost_at=tail.lost_at, healed_at=tail.healed_at, quiet=QUIET)
        show(figures)
        assert figures.lost + figures.resent > 0, "a loss of nothing shows nothing"
        assert not still and not broken


async def test_a_stream_of_the_client_library_goes_on_after_a_loss(kind: str, tmp_path: Path) -> None:
    async with deployed(kind, tmp_path) as f, client_of(f, deadline_s=5.0) as client:
        tail = f.begin_to_lose("power cut")
        async with client.stream(LIVES[0]) as stream:
            await stream.push("kept")
            await tail.begin()
            await stream.push("lost")
            await tail.lose()
            await stream.push("after")
            assert stream.lost == 0
        everything = {"kept", "lost", "after"}
        await until(lambda: everything <= {one.text for one in f.books.consumed}, "also what the store lost")


async def test_a_copy_of_a_post_that_comes_after_the_loss_is_a_new_item(kind: str, tmp_path: Path) -> None:
    """The store has forgotten the id with the item. A stream's items are numbered: there a copy is refused."""
    async with deployed(kind, tmp_path) as f, client_of(f, deadline_s=5.0) as client:
        live, numbered = LIVES[0], LIVES[1]
        tail = f.begin_to_lose("power cut")
        await tail.begin()
        for text in ("one", "two"):
            assert (await f.push(live, text, request_id=text))[0] == 200
        async with client.stream(numbered) as stream:
            await stream.push("one")
            await tail.lose()
            for text in ("two", "one"):
                again = partial(f.push, live, text, request_id=text)
                await until_so(again, lambda answer: answer[0] == 200, "the store is back")
            await stream.push("two")

        def consumed(live: str) -> list[str]:
            return [one.text for one in f.books.consumed if one.live == live]

        await until(lambda: consumed(live)[-2:] == ["two", "one"], "in the order of the copies")
        await until(lambda: consumed(numbered)[-2:] == ["one", "two"], "in the order of the stream")


# -- nothing is lost


async def test_a_failover_that_loses_nothing_restarts_nobody(kind: str, tmp_path: Path, show: Show) -> None:
    """The primary is killed and a replica that has everything takes over, behind the same address."""
    async with deployed(kind, tmp_path) as f:
        load = f.load(LIVES)
        await load.more(10)
        await load.stop()
        await f.group.in_sync()
        tail = f.begin_to_lose("promotion")
        await tail.lose()
        load = f.load(LIVES, name="-after")
        await load.more(10)
        await load.stop()
        still = await f.standing_still()
        broken, figures = await f.judged(lost_at=tail.lost_at, healed_at=tail.healed_at, quiet=f.lives)
        show(figures)
        assert not still and not broken
        assert figures.lost == figures.resent == 0


# -- commits are lost


@how
async def test_no_number_is_given_out_twice_by_whoever_is_first(
    kind: str, how: How, tmp_path: Path, show: Show
) -> None:
    """A Dispatch replica that saw nothing of the lost time moves the same lives before anybody else has greeted."""
    async with deployed(kind, tmp_path, fronts=2) as f:
        f.url = f.fronts[1].url
        await f.start_dispatch()
        before, after = f.dispatch
        await f.move(LIVES, "w1")
        assert not await f.standing_still()
        tail = f.begin_to_lose(how)
        await tail.begin()
        f.fronts[1].close_off()
        await f.move(LIVES, "w2", before)
        await f.try_create("c1", before)
        f.fronts[0].close_off()
        await tail.lose()
        f.fronts[1].open_up()
        for live in LIVES:
            await until_so(partial(f.try_reassign, live, "w3", after), lambda told: told[0] == 200, f"{live} on w3")
        await f.try_create("c1", after)
        f.fronts[0].open_up()
        still = await f.standing_still()
        # A live may begin where the store remembers it, and then where it was moved.
        broken, figures = await f.judged(lost_at=tail.lost_at, healed_at=tail.healed_at, quiet=QUIET, restarts_max=2)
        show(figures)
        assert not still and not broken


@how
async def test_on_a_quiet_store_only_the_lives_that_the_loss_touched_restart(
    kind: str, how: How, tmp_path: Path, show: Show
) -> None:
    async with deployed(kind, tmp_path) as f:
        await f.move(LIVES, "w1")
        assert not await f.standing_still()
        tail = f.begin_to_lose(how)
        await tail.begin()
        await f.move(LIVES, "w2")
        await tail.lose()
        await asyncio.sleep(AFTER_S)
        still = await f.standing_still()
        await asyncio.sleep(AFTER_S)
        broken, figures = await f.judged(lost_at=tail.lost_at, healed_at=tail.healed_at, quiet=QUIET)
        show(figures)
        assert not still and not broken


async def test_store_and_dispatch_lose_power_together(kind: str, tmp_path: Path, show: Show) -> None:
    """No Dispatch replica remembers anything, and each has one Worker. No Worker is called lost meanwhile: it takes the
    replicas longer to start than a Worker may usually be silent."""
    async with on_replicas(kind, tmp_path, replicas=0) as f:
        for name in ("d1", "d2"):
            await f.start_dispatch_process(name, worker_ttl_s=60)
        await f.start_infer()
        await f.configure()
        for name, url in zip(("w1", "w2"), f.dispatch, strict=True):
            await f.start_recording_worker(name, url)
        await f.create_lives([*LIVES, *QUIET])
        await f.move(LIVES, "w1")
        assert not await f.standing_still()
        tail = f.begin_to_lose("power cut")
        await tail.begin()
        for target in ("w2", "w1", "w2", "w1", "w2"):
            await f.move(LIVES, target)
        for process in f.processes.values():
            process.kill()
        await tail.lose()
        for name in ("d1", "d2"):
            await f.start_dispatch_process(name, worker_ttl_s=60)
        still = await f.standing_still()
        created = 0 if still else await until_created(f, "new")
        ready = await f.ready_workers()
        broken, figures = await f.judged(lost_at=tail.lost_at, healed_at=tail.healed_at, quiet=QUIET)
        show(figures)
        assert not still and not broken
        assert created == 201 and ready.keys() == {"w1", "w2"}


async def until_created(f: Replicated, live: str) -> int:
    """Create a live, again and again if need be; return the last status."""
    give_up = time.monotonic() + FLOW_S
    while True:
        status, _ = await f.try_create(live)
        if status in (200, 201) or time.monotonic() > give_up:
            return 201 if status == 200 else status
        await asyncio.sleep(0.1)

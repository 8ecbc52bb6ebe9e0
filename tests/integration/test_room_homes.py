"""The room when the store has another home: after a restart that lost a commit, and after one that lost nothing.

The store is killed and starts from an earlier end of its append-only file, as a power cut leaves it. Everything else
goes on running, the room with what it has heard in the lost time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dhsched.local.ports import free_port
from dhsched.store import homes
from dhsched.store.server.embedded import Embedded
from tests.browser.testcard import Card, Show, show
from tests.harness.fleet import ended, until, until_so
from tests.harness.servers import server_binary
from tests.harness.standing import Standing
from tests.harness.theatre import Theatre, idle, stage

JUMP = 1_000


@pytest.fixture(autouse=True)
def numbers_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "random_jump", lambda: JUMP)


class Stage:
    """A theatre with two Workers, on a store that can be set back."""

    def __init__(self, at: Theatre, f: Standing) -> None:
        self.at, self.f = at, f
        self.room = at.room.rooms.room("default/demo")
        self._publishing: list[asyncio.Task[None]] = []

    def publish(self, placed: dict[str, Any]) -> Show:
        """A publisher of this generation, which never hears what anybody but the room says."""
        one = Show("default/demo", placed["epoch"], Card(placed["epoch"]))
        publish = one.publish(self.at.publish(placed["worker"], placed["epoch"]))
        self._publishing.append(asyncio.create_task(publish))
        return one

    async def until_on_air(self, placed: dict[str, Any]) -> None:
        await until(lambda: self.room.on_air == placed["epoch"], f"epoch {placed['epoch']} on air")

    async def reassign(self) -> dict[str, Any]:
        """Move the live, however long the store takes to be there."""
        said = await until_so(lambda: self.f.reassign("demo"), lambda said: said[0] == 200, "the next owner")
        return dict(said[1])

    async def until_departed(self, placed: dict[str, Any]) -> None:
        """Wait for the end of a generation's slot: a word of it that came after the loss would end the one that the
        store remembers, and the live would be placed anew."""

        def gone(found: dict[str, Any]) -> bool:
            return all(row["load"] == 0 for row in found["workers"] if row["worker"] == placed["worker"])

        await until_so(lambda: self.f.get("/v1/workers"), gone, "the slot to depart")

    async def close(self) -> None:
        for task in self._publishing:
            await ended(task)


@asynccontextmanager
async def on_stage(folder: Path, runtime: Any, **settings: Any) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        server = Embedded(folder / "store", binary=server_binary("valkey"), port=free_port())
        await server.start()
        f = Standing(server, folder, stack)
        stack.push_async_callback(lambda: f.server.stop())
        f.http = await stack.enter_async_context(aiohttp.ClientSession())
        port = free_port()
        await f.start_dispatch(with_loops=True, worker_ttl_s=30)
        await f.start_infer(room=f"http://127.0.0.1:{port}")
        await f.configure()
        at = await stack.enter_async_context(stage(f, port, **settings))
        for name in ("a", "b"):
            await f.start_worker(runtime, name)
        staged = Stage(at, f)
        stack.push_async_callback(staged.close)
        yield staged


async def test_the_rightful_publisher_is_on_air_again_and_the_one_of_the_lost_time_is_cut_off(tmp_path: Path) -> None:
    async with on_stage(tmp_path, idle) as s:
        first = await s.f.create("demo")
        old = s.publish(first)
        await s.until_on_air(first)
        kept = s.f.append_only_file().stat().st_size
        lost = await s.reassign()
        s.publish(lost)
        await s.until_on_air(lost)
        await until(old.stale.is_set, "the first to be told that it is superseded")
        await s.until_departed(first)

        await s.f.cut_power(kept)
        again = s.publish(first)  # As its Worker does: the table has that generation once more.
        await s.until_on_air(first)
        await until(lambda: [each.epoch for each in s.room.publishers] == [first["epoch"]], "the other one to be gone")
        refused = s.at.room.rooms.counts.refused
        await until(lambda: s.at.room.rooms.counts.refused > refused, "the other one to come back, in vain")
        assert s.room.on_air == first["epoch"] < lost["epoch"] and not again.stale.is_set()

        new = await s.reassign()
        assert new["epoch"] >= lost["epoch"] + JUMP - 1, "the numbers have jumped"
        s.publish(new)
        await s.until_on_air(new)
        await until(again.stale.is_set, "the first to be superseded once more")
        assert [shown.epoch for shown in s.room.shown] == [each["epoch"] for each in (first, lost, first, new)]


async def test_workers_bring_the_rightful_generation_back_by_themselves(tmp_path: Path) -> None:
    """The whole way: table, runtime, pull, token, room."""
    async with on_stage(tmp_path, show) as s:
        first = await s.f.create("demo")
        await s.until_on_air(first)
        kept = s.f.append_only_file().stat().st_size
        await s.until_on_air(await s.reassign())
        await s.until_departed(first)
        await s.f.cut_power(kept)
        await s.until_on_air(first)
        await until(lambda: [each.epoch for each in s.room.publishers] == [first["epoch"]], "the other one to be gone")


async def test_viewers_see_nothing_of_a_restart_that_lost_nothing(tmp_path: Path) -> None:
    """Also if the room confirms its lives rarely: it learns of the other home all the same."""
    async with on_stage(tmp_path, idle, confirm_s=60) as s:
        first = await s.f.create("demo")
        s.publish(first)
        await s.until_on_air(first)
        counts = s.at.room.rooms.counts
        waited = counts.waited
        await s.f.restart_store()
        await until(lambda: s.at.room.rooms.settling, "the other home")
        shown = s.room.shown[-1].last_ms
        await until(lambda: s.room.shown[-1].last_ms > shown, "the next picture")
        assert (counts.take_overs, counts.waited, len(s.room.publishers)) == (1, waited, 1)

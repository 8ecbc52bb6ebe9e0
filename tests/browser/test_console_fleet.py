"""The console with a large fleet in a real store: 1,000 Workers, 20,000 lives, 20 changes a second.

`make console` runs it and prints what it measured, as one JSON object; docs/guides/console.md has such figures. The
Workers are registered as those of the runtime `null` are, and report once: replicas are told to wait for them.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from playwright.async_api import Browser, CDPSession

from dhsched.local.deployment import Deployment
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.store.steps.redis import RedisStore
from tests.browser.console import WIDE, ConsolePage
from tests.harness.replicas import SILENCE_IS_FINE, register
from tests.harness.servers import running_server

WORKERS = int(os.environ.get("DHSCHED_CONSOLE_WORKERS", "1000"))
LIVES = int(os.environ.get("DHSCHED_CONSOLE_LIVES", "20000"))
SECONDS = int(os.environ.get("DHSCHED_CONSOLE_S", "600"))
PER_S = 20
CAPACITY = 32
FULL = {"a100": 1.0, "h100": 0.8, "l4": 0.6, "spare": 0.2}
"""How full the Pools are, one beside the other."""
POOLS = {"a100": 4, "h100": 3, "l4": 2, "spare": 1}
"""Pools, and how many tenths of the Workers each has."""
AT_ONCE = 200
PAINT_MS, UPDATE_MS, GROWTH_MB = 2_000, 100, 12
"""What must hold: first paint, main-thread time of an update, growth of the page's memory."""


class Cell:
    """The lives of the store, changed by the same steps that services take."""

    def __init__(self, store: RedisStore, workers: list[str]) -> None:
        self.store = store
        self.workers = workers
        self.on: dict[str, str] = {}
        self._numbers = iter(range(10**9))
        self._rng = Random(7)

    async def create(self, worker: str) -> None:
        """Place a new live on this Worker, and claim it."""
        number = next(self._numbers)
        live = f"default/live-{number}"
        create = Create(digital_id="anna", fingerprint="f")
        made = await self.store.place(
            live=live, operation=f"op-{number}", cause="create", create=create, candidates=[worker]
        )
        if isinstance(made, o.Committed):
            self.on[live] = worker
            await self.store.pull(live=live, worker=worker, epoch=made.generation.epoch, controller="none", after=0)

    async def fill(self, lives: int) -> None:
        """Create so many lives, more in Pools and on Workers that are to be full."""
        likely = [FULL[worker.partition("-")[0]] * self._rng.uniform(0.6, 1.1) for worker in self.workers]
        while len(self.on) < lives:
            some = self._rng.choices(self.workers, likely, k=min(AT_ONCE, lives - len(self.on)))
            await asyncio.gather(*(self.create(worker) for worker in some))

    async def change(self) -> None:
        """One change: a live ends, or another begins on some Worker."""
        if self._rng.random() < 0.5 and self.on:
            live = self._rng.choice([*self.on]) if len(self.on) < 100 else next(iter(self.on))
            worker = self.on.pop(live)
            epoch = (await self.store.records.lives.generations([live]))[live].epoch
            await self.store.end_live(live=live)
            await self.store.depart(worker=worker, live=live, number=epoch)
        else:
            await self.create(self._rng.choice(self.workers))


async def change_for(cell: Cell, seconds: float) -> int:
    """Make PER_S changes a second for so long; how many there were."""
    began, made = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        while made < passed * PER_S:
            await cell.change()
            made += 1
        await asyncio.sleep(0.01)
    return made


async def memory_mb(cdp: CDPSession) -> float:
    """The page's heap after a collection."""
    await cdp.send("HeapProfiler.collectGarbage")
    return float((await metrics(cdp))["JSHeapUsedSize"]) / 1e6


async def metrics(cdp: CDPSession) -> dict[str, float]:
    return {each["name"]: each["value"] for each in (await cdp.send("Performance.getMetrics"))["metrics"]}


async def lose(store: RedisStore, lost: list[str]) -> None:
    """Some Workers are lost. They have no lives, which nobody here would claim after their recovery."""
    beats = await store.records.workers.beats()
    for worker in lost:
        await store.expire_worker(worker=worker, beat=beats[worker].beat)


async def cordon(url: str, workers: list[str]) -> None:
    """An operator cordons these Workers, which is written as events."""
    async with aiohttp.ClientSession() as http:
        for worker in workers:
            async with http.post(f"{url}/v1/workers/{quote(worker)}/cordon") as response:
                assert response.status == 200, await response.text()


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 900)
async def test_a_large_fleet_is_drawn_at_once_and_costs_little_to_follow(browser: Browser, tmp_path: Path) -> None:
    async with (
        running_server("valkey") as server,
        Deployment(server.address.url(), folder=tmp_path) as made,
        await RedisStore.open(server.address) as store,
    ):
        workers = [
            worker
            for pool, tenths in POOLS.items()
            for worker in await register(store, WORKERS * tenths // 10, capacity=CAPACITY, pool=pool, name=f"{pool}-")
        ]
        lost = workers[40::211]
        cell = Cell(store, [worker for worker in workers if worker not in lost])
        await cell.fill(LIVES)
        await lose(store, lost)
        await made.dispatch("d1", environment=SILENCE_IS_FINE)
        [url] = await made.dispatch_urls()
        await made.configure({"anna": [*POOLS]})
        await cordon(url, cell.workers[7::61])
        changing = asyncio.create_task(change_for(cell, SECONDS + 60))
        try:
            figures = await follow(browser, url)
        finally:
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)
    figures |= {"workers": WORKERS, "lives": LIVES, "seconds": SECONDS, "changes_per_s": PER_S}
    print(json.dumps(figures))
    assert figures["first_paint_ms"] < PAINT_MS
    assert figures["update_ms_p95"] < UPDATE_MS and figures["main_thread_ms_per_update"] < UPDATE_MS
    assert figures["memory_mb_end"] - figures["memory_mb_first"] < GROWTH_MB, "the page's memory grows"


async def follow(browser: Browser, url: str) -> dict[str, Any]:
    """Open the console and keep it open; what that took."""
    page = ConsolePage(await browser.new_page(viewport=WIDE))
    cdp = await page.page.context.new_cdp_session(page.page)
    await cdp.send("Performance.enable")
    await page.page.goto(f"{url}/console")
    await page.see("canvas.heat")
    paint, drawn = await page.page.evaluate(
        "[performance.getEntriesByName('first-contentful-paint')[0].startTime, performance.now()]"
    )
    await page.until_text(".head .note", f"{WORKERS} Workers" if WORKERS < 1000 else f"{WORKERS:,} Workers")
    await asyncio.sleep(min(30, SECONDS / 4))  # What a page builds up once.
    await page.look_at("console-1000-workers", whole=False)
    before = await metrics(cdp)
    updates = int(await page.page.evaluate("consoleUpdates"))
    memory = [await memory_mb(cdp)]
    for _ in range(6):
        await asyncio.sleep(SECONDS / 6)
        memory.append(await memory_mb(cdp))
    after = await metrics(cdp)
    timings = (await page.page.evaluate("consoleTimings"))[-1000:]
    count = int(await page.page.evaluate("consoleUpdates")) - updates
    await page.page.click("canvas.heat", position={"x": 60, "y": 30})
    await page.see(".chosen a")
    await page.look_at("console-1000-selected", whole=False)
    await page.page.click(".chosen a")
    await page.see(".slotlist tbody tr")
    await page.look_at("console-1000-worker", whole=False)
    assert page.troubles == []
    return {
        "first_paint_ms": round(paint),
        "map_drawn_ms": round(drawn),
        "updates": count,
        "update_ms_p50": round(quantiles(timings, n=20)[9], 2),
        "update_ms_p95": round(quantiles(timings, n=20)[18], 2),
        "main_thread_ms_per_update": round(1000 * (after["TaskDuration"] - before["TaskDuration"]) / count, 2),
        "memory_mb_first": round(memory[0], 2),
        "memory_mb_end": round(memory[-1], 2),
        "memory_mb": [round(each, 2) for each in memory],
    }

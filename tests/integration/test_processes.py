"""Workers as processes that are frozen, thawed, doubled and killed (paper, 4.4 and 4.5)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dhsched.access.minting import Minter, find_key
from tests.integration.fleet import Fleet, Record, fleet, until
from tests.integration.processes import Process, Processes, alive, processes, start, until_consumed
from tests.integration.test_input_path import until_acked


async def test_a_zombie_gets_nothing_after_a_b_a(tmp_path: Path) -> None:
    """A freezes, the live goes to B and back to A, A thaws: its first runtime lives on and is given nothing."""
    async with fleet(tmp_path, dispatch=2, infer=2) as f, processes(f) as p:
        a, b = await p.worker("a"), await p.worker("b")
        ids = {w["worker"].partition("#")[0]: w["worker"] for w in await p.workers_ready(2)}
        placed = await f.create("z")
        if placed["worker"] != ids["a"]:
            await f.reassign("z", target=ids["a"])
        await f.push("z", "one")
        await until_consumed(a, "z", "one")
        first = a.consumed("z")[-1][0]
        a.signal(signal.SIGSTOP)
        await f.push("z", "granted")  # Within the credit: this one the zombie may see.
        await asyncio.sleep(0.2)
        status, moved = await f.reassign("z", target=ids["b"])
        assert status == 200
        await f.push("z", "two")
        await until_consumed(b, "z", "two")
        status, back = await f.reassign("z", target=ids["a"])
        assert status == 200 and back["epoch"] > moved["epoch"] > first
        await f.push("z", "three")
        a.signal(signal.SIGCONT)
        await until_consumed(a, "z", "three")
        old = [text for epoch, _, text in a.consumed("z") if epoch == first]
        assert old in (["one"], ["one", "granted"]), "nothing beyond the credit already granted"
        assert [text for epoch, _, text in a.consumed("z") if epoch == back["epoch"]] == ["three"]
        await until_acked(f, "z", 4)


async def test_two_workers_under_one_name_are_two_workers(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f, processes(f) as p:
        one, two = await p.worker("twin", device="gpu0"), await p.worker("twin", device="gpu1")
        found = await p.workers_ready(2)
        assert len({w["worker"] for w in found}) == 2
        for w in found:
            live = f"on-{w['worker'].rpartition('#')[2]}"
            await f.create(live)
            await f.reassign(live, target=w["worker"])
            await f.push(live, live)
        await until(lambda: len(seen(one) | seen(two)) == 2, "both lives")
        # A third process on a device that is taken is refused, and says by whom.
        third = await p.worker("twin", device="gpu0")
        assert await asyncio.wait_for(third.process.wait(), 30) == 1


async def test_an_item_consumed_and_not_acked_comes_again(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f, processes(f) as p:
        first = await p.worker("w", "--runtime", "tests.integration.stubborn:hang_on_hang")
        await p.workers_ready(1)
        placed = await f.create("k")
        for text in ("fine", "hang", "next"):
            await f.push("k", text)
        await until_consumed(first, "k", "hang")
        await until_acked(f, "k", 1)
        await first.kill()
        # The next boot on the device finds in the lock file whom it replaces; that one is gone at once.
        second = await p.worker("w", "--runtime", "tests.integration.stubborn:tell")
        await until_gone(p, placed["worker"])
        again = await reassigned(f, "k")
        await until_consumed(second, "k", "next")
        assert second.consumed("k") == [(again["epoch"], 2, "hang"), (again["epoch"], 3, "next")]
        opened = next(line for line in second.lines if line["event"] == "open")
        assert opened["state"] == "after fine", "the state saved at the last ack"


async def test_a_frozen_controller_is_left_for_another(tmp_path: Path) -> None:
    """Half-open sockets: the connection looks alive and brings nothing. What it brings later is stale."""
    record = Record()
    async with fleet(tmp_path) as f:
        frozen = await start("run", "infer", "--store", f.store_url, "--port", "0", "--log-level", "error")
        try:
            await until(lambda: frozen.url, "the second controller", 30)
            await f.start_worker(record, "w", capacity=8)
            await asyncio.sleep(1.2)  # Until both controllers are known.
            lives = [f"l{i}" for i in range(6)]
            for live in lives:
                await f.create(live)
                await f.push(live, "before")
            await until(lambda: len(record.consumed) == 6, "the first items")
            assert len(f.controllers[0].context.holder) < 6, "some pulls are with the other controller"
            frozen.signal(signal.SIGSTOP)
            for live in lives:
                await f.push(live, "after")
            await until(lambda: len(record.consumed) == 12, "the items after", 15)
            frozen.signal(signal.SIGCONT)
            for live in lives:
                await f.push(live, "at last")
            await until(lambda: len(record.consumed) == 18, "the last items")
            for live in lives:
                assert record.texts(live) == ["before", "after", "at last"]
        finally:
            await frozen.kill()


async def test_sigterm_drains_and_a_second_one_exits(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f, processes(f) as p:
        empty, full = await p.worker("empty"), await p.worker("full")
        await p.workers_ready(2)
        live = await f.create("d")
        ids = {w["worker"].partition("#")[0]: w["worker"] for w in await p.workers_ready(2)}
        if live["worker"] != ids["full"]:
            await f.reassign("d", target=ids["full"])
        await f.push("d", "x")
        await until_consumed(full, "d", "x")
        empty.signal(signal.SIGTERM)
        assert await asyncio.wait_for(empty.process.wait(), 20) == 0
        full.signal(signal.SIGTERM)
        for _ in range(200):
            if (await f.get(f"/v1/workers/{ids['full'].replace('#', '%23')}"))["mode"] == "draining":
                break
            await asyncio.sleep(0.05)
        assert full.process.returncode is None, "it waits for its live to move"
        full.signal(signal.SIGTERM)
        assert await asyncio.wait_for(full.process.wait(), 20) == 1


async def test_up_from_create_to_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walking skeleton: create, push, output, move, kill -9, reassign; then nothing is left behind."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    up = await start("up", "--any-port", "--workers", "3", "--runtime", "echo")
    left: list[int] = []
    try:
        await until(lambda: any("live why" in line for line in up.printed), "a deployment", 60)
        left = children_of(up.pid)
        assert len(left) >= 7, "store, 2 dispatch, infer, 3 Workers"
        async with aiohttp.ClientSession() as http:
            await walk(up, http)
    finally:
        await up.kill()
    await until(lambda: not any(alive(pid) for pid in left), "the end of every child", 15)


async def walk(up: Process, http: aiohttp.ClientSession) -> None:
    where = {line.split()[0]: line.split() for line in up.printed if " pid " in line}
    lives, infer = f"{where['dispatch-1'][-1]}/v1/lives", where["infer-1"][-1]

    assert (await http.get(lives)).status == 401, "up asks for its development key"
    assert (Path(os.environ["XDG_STATE_HOME"]) / "dhsched" / "development-keys.json").stat().st_mode & 0o777 == 0o600
    headers = await Minter(http, infer, find_key(infer)).headers()

    async def post(url: str, **body: Any) -> Any:
        async with http.post(url, json=body, headers=headers) as response:
            assert response.status < 300, await response.text()
            return await response.json()

    first = await post(lives, live_id="hello", digital_id="demo")
    pushed = await start("live", "push", "hello", "one", "--boundary", "--infer", infer)
    await until_consumed(up, "hello", "one")
    assert await pushed.process.wait() == 0 and pushed.lines[0]["seq"] == 1
    moved = await post(f"{lives}/hello/reassign", expected_epoch=first["epoch"])
    await post(f"{infer}/v1/lives/hello/text", text="two")
    await until_consumed(up, "hello", "two")
    await asyncio.sleep(0.2)  # For the ack of the last item.
    os.kill(int(where[moved["worker"].partition("#")[0]][2]), signal.SIGKILL)
    await post(f"{infer}/v1/lives/hello/text", text="three")
    await until_consumed(up, "hello", "three")
    by_hand = await start("live", "move", "hello", "--url", where["dispatch-2"][-1])
    assert await by_hand.process.wait() == 0
    await post(f"{infer}/v1/lives/hello/text", text="four")
    await until_consumed(up, "hello", "four")
    third, fourth = moved["epoch"] + 1, moved["epoch"] + 2
    consumed = [(first["epoch"], 1, "one"), (moved["epoch"], 2, "two"), (third, 3, "three"), (fourth, 4, "four")]
    assert up.consumed("hello") == consumed


async def reassigned(f: Fleet, live: str) -> Any:
    """Moved, as soon as a Worker that has reported can take it."""
    for _ in range(100):
        status, placed = await f.reassign(live)
        if status == 200:
            return placed
        await asyncio.sleep(0.1)
    raise AssertionError(f"{live} found no place: {placed}")


async def until_gone(p: Processes, worker: str) -> None:
    for _ in range(600):
        found = (await p.fleet.get("/v1/workers"))["workers"]
        others = [w for w in found if w["worker"] != worker]
        if others and not any(w["worker"] == worker and w["status"] != "gone" for w in found):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{worker} is not gone")


def seen(process: Process) -> set[str]:
    return {line["live"] for line in process.lines if line.get("event") == "text"}


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []

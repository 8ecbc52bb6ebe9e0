"""Processes from their start to their end: a Worker that is asked to go, and a whole deployment by `up`."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dhsched.client.calls import Minter
from dhsched.client.credentials import Credentials, find_key
from dhsched.client.http import Session
from dhsched.local.pids import alive
from tests.harness.fleet import fleet, until, until_so
from tests.harness.processes import Process, children_of, processes, start, until_consumed


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
        assert await empty.ended() == 0
        full.signal(signal.SIGTERM)
        for _ in range(200):
            if (await f.get(f"/v1/workers/{ids['full'].replace('#', '%23')}"))["mode"] == "draining":
                break
            await asyncio.sleep(0.05)
        assert full.returncode is None, "it waits for its live to move"
        full.signal(signal.SIGTERM)
        assert await full.ended() == 1


@pytest.mark.release
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
        left += children_of(up.pid)
    finally:
        up.kill()
        await up.ended()
    await until(lambda: not any(alive(pid) for pid in left), "the end of every child")


async def walk(up: Process, http: aiohttp.ClientSession) -> None:
    where = {line.split()[0]: line.split() for line in up.printed if " pid " in line}
    lives, infer = f"{where['dispatch-1'][-1]}/v1/lives", where["infer-1"][-1]

    assert (await http.get(lives)).status == 401, "up asks for its development key"
    assert (Path(os.environ["XDG_STATE_HOME"]) / "dhsched" / "development-keys.json").stat().st_mode & 0o777 == 0o600
    headers = await Minter(Session(http), infer, Credentials(find=find_key)).headers()

    async def post(url: str, **body: Any) -> Any:
        async with http.post(url, json=body, headers=headers) as response:
            assert response.status < 300, await response.text()
            return await response.json()

    first = await post(lives, live_id="hello", digital_id="demo")
    pushed = await start("live", "push", "hello", "one", "--boundary", "--infer", infer)
    await until_consumed(up, "hello", "one")
    assert await pushed.ended() == 0 and pushed.lines[0]["seq"] == 1
    moved = await post(f"{lives}/hello/reassign", expected_epoch=first["epoch"])
    await post(f"{infer}/v1/lives/hello/text", text="two")
    await until_consumed(up, "hello", "two")

    async def live() -> Any:
        async with http.get(f"{lives}/hello", headers=headers) as response:
            return await response.json()

    await until_so(live, lambda found: found["acked"] == 2, "the ack of the last item")
    os.kill(int(where[moved["worker"].partition("#")[0]][2]), signal.SIGKILL)
    await post(f"{infer}/v1/lives/hello/text", text="three")
    await until_consumed(up, "hello", "three")
    by_hand = await start("live", "reassign", "hello", "--url", where["dispatch-2"][-1])
    assert await by_hand.ended() == 0
    await post(f"{infer}/v1/lives/hello/text", text="four")
    await until_consumed(up, "hello", "four")
    third, fourth = moved["epoch"] + 1, moved["epoch"] + 2
    consumed = [(first["epoch"], 1, "one"), (moved["epoch"], 2, "two"), (third, 3, "three"), (fourth, 4, "four")]
    assert up.consumed("hello") == consumed
    for name in (moved["worker"].partition("#")[0], "dispatch-1"):
        if name == "dispatch-1":
            os.kill(int(where[name][2]), signal.SIGKILL)
        await until(lambda: any(f"{name} is started again" in line for line in up.printed), name)  # noqa: B023
        [said] = [line for line in up.printed if f"{name} is started again, pid " in line]
        assert alive(int(said.split()[-1])) and not alive(int(where[name][2]))
    ready = await start("worker", "wait", moved["worker"].partition("#")[0], "--url", where["dispatch-1"][-1])
    assert await ready.ended() == 0, "the replica is at its old address, and the Worker registers again"

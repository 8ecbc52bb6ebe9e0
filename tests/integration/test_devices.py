"""A Worker with several devices: which live runs on which, and a device whose runtimes crash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from dhsched import cli
from dhsched.store.link.address import Address
from dhsched.store.records.workers import DeviceRow
from dhsched.store.steps.redis import RedisStore
from dhsched.worker import Session
from tests.harness.fleet import Fleet, fleet, until_so
from tests.harness.replicas import register


async def needs_a_good_device(session: Session) -> None:
    if session.device == "gpu0":
        raise RuntimeError("the device has failed")
    async for _ in session.inputs():
        pass


async def waits(session: Session) -> None:
    async for _ in session.inputs():
        pass


async def run(*words: str, url: str) -> str:
    env = {"DHSCHED_URL": url}
    result = await asyncio.to_thread(CliRunner().invoke, cli.app, [*words], env=env)
    assert result.exit_code == 0, result.output
    return result.stdout


async def device_of(f: Fleet, live: str) -> dict[str, Any]:
    """The live, once its device is known."""
    found: dict[str, Any] = await until_so(lambda: f.get(f"/v1/lives/{live}"), lambda found: found["device"], live)
    return found


async def test_a_list_of_workers_and_a_live_name_their_devices(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        await f.start_worker(waits, "many", device="gpu0,gpu1")
        for live in ("a", "b"):
            await f.create(live)
        lives = [await device_of(f, live) for live in ("a", "b")]
        assert {live["device"] for live in lives} == {"gpu0", "gpu1"}
        [worker] = (await f.get("/v1/workers"))["workers"]
        assert [device["name"] for device in worker["devices"]] == ["gpu0", "gpu1"]
        assert "gpu0, gpu1" in await run("worker", "ls", url=f.dispatch[0])
        assert "gpu0, gpu1" in await run("worker", "get", worker["worker"], url=f.dispatch[0])
        await f.start_worker(waits, "one", device="only")
        only = [{"name": "only", "crashes": 0, "blamed": False}]
        listed = await until_so(
            lambda: f.get("/v1/workers"), lambda found: found["workers"][-1]["devices"] == only, "the other Worker"
        )
        assert (await f.reassign("a", target=listed["workers"][-1]["worker"]))[0] == 200
        assert (await device_of(f, "a"))["device"] == "only", "a Worker's only device needs no word of its own"


async def test_lives_leave_a_device_on_which_too_many_crash(tmp_path: Path) -> None:
    async with fleet(tmp_path, with_loops=True) as f:
        await f.start_worker(needs_a_good_device, "w", capacity=8, device="gpu0,gpu1", device_crashes_max=1)
        for live in ("a", "b", "c"):
            await f.create(live)
        for live in ("a", "b", "c"):
            assert (await device_of(f, live))["device"] == "gpu1"
        shown = await run("worker", "ls", url=f.dispatch[0])
        assert "gpu0 (blamed), gpu1" in shown
        await f.create("d")
        new = await device_of(f, "d")
        assert (new["device"], new["epoch"]) == ("gpu1", 1), "it was not even tried on gpu0"
        events = (await f.get("/v1/events"))["events"]
        [blamed] = [event for event in events if event["kind"] == "device_blamed"]
        assert blamed["numbers"]["device"] == "gpu0" and blamed["numbers"]["crashes"] >= 2
        assert blamed["worker"].startswith("w#")


async def test_devices_are_kept_as_long_as_their_worker(server: Address) -> None:
    async with await RedisStore.open(server) as store:
        records = store.records.workers
        [a] = await register(store, 1, capacity=4)
        rows = [DeviceRow("gpu0", 3, True), DeviceRow("gpu1", 0, False)]
        assert await records.put_devices(a, rows) == []
        assert await records.devices(a) == rows
        assert await records.put_devices(a, rows[1:]) == rows
        await store.set_worker(worker=a, verb="exit")
        assert await records.devices(a) == []
        await records.put_devices(a, rows)
        assert await records.devices(a) == [], "nobody would delete it"

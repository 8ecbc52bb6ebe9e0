"""A Worker inside a program with its own loop: setup first, then lives, a drain at the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Any

import pytest

from dhsched.errors import DeviceBusy, DhschedError, KeyRefused, SetupFailed
from dhsched.worker import Session, Worker
from dhsched.worker.runtimes import null
from tests.harness.acked import until_acked
from tests.harness.fleet import Fleet, fleet, until
from tests.harness.processes import processes


def how(f: Fleet, **given: Any) -> dict[str, Any]:
    return {
        "pool": "gpu",
        "capacity": 2,
        "name": "app",
        "dispatch": f.dispatch,
        "lock_folder": f.folder / "locks",
        "drain_s": 5.0,
        "teardown_s": 0.5,
        **given,
    }


async def test_a_program_serves_lives_beside_its_own_work(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    order: list[str] = []

    async def load() -> str:
        order.append("setup")
        return "model"

    async def speaks(session: Session) -> None:
        order.append("runtime")
        async for item in session.inputs():
            seen.append((session.shared, item.text))
        order.append("stopped")

    async with fleet(tmp_path) as f:
        async with Worker(speaks, setup=load, **how(f, device="gpu0,gpu1")) as worker:
            assert order == ["setup"]
            assert (await worker.registered()).startswith("app#")
            await f.create("a")
            await f.push("a", "hello")
            await until_acked(f, "a", 1)
            with pytest.raises(DeviceBusy):
                async with Worker(null, **how(f, name="other", device="gpu1")):
                    pass
            await f.post(f"{f.dispatch[0]}/v1/lives/a/end")
            await until(lambda: "stopped" in order, "the end of the runtime")
        assert seen == [("model", "hello")] and order == ["setup", "runtime", "stopped"]
        assert (await f.get("/v1/workers"))["workers"] == [], "the Worker has said that it left"


async def test_a_block_that_is_left_by_an_error_stops_its_runtimes_at_once(tmp_path: Path) -> None:
    stopped = asyncio.Event()

    async def speaks(session: Session) -> None:
        async for _ in session.inputs():
            pass
        stopped.set()

    async with fleet(tmp_path) as f:
        with pytest.raises(ValueError, match="own"):
            async with Worker(speaks, **how(f, drain_s=600.0)) as worker:
                await worker.registered()
                await f.create("a")
                await f.push("a", "hello")
                await until_acked(f, "a", 1)
                raise ValueError("the program's own error")
        assert stopped.is_set()


@pytest.mark.parametrize("stopped", [True, False])
async def test_who_waits_for_a_registration_that_never_comes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    async def refused(*_: object) -> None:
        raise KeyRefused("no such key")

    async def elsewhere(worker: Worker) -> str:
        return await worker.registered()

    if not stopped:
        monkeypatch.setattr("dhsched.worker.dispatch_link.DispatchLink.run", refused)
    async with fleet(tmp_path, dispatch=1) as f:
        with contextlib.suppress(KeyRefused):
            async with Worker(null, **how(f, dispatch="http://127.0.0.1:1")) as worker:
                waiting = asyncio.create_task(elsewhere(worker))
                if stopped:
                    worker.stop()
                    await asyncio.wait((waiting,), timeout=60)
                else:
                    await asyncio.Event().wait()
        with pytest.raises(DhschedError, match="has ended before it was registered"):
            await asyncio.wait_for(waiting, 10)


async def test_a_setup_that_fails_is_raised_and_nothing_has_registered(tmp_path: Path) -> None:
    def broken() -> None:
        raise RuntimeError("no model")

    async with fleet(tmp_path) as f:
        with pytest.raises(SetupFailed, match="no model"):
            async with Worker(null, setup=broken, **how(f)):
                raise AssertionError("the block must not be entered")
        assert (await f.get("/v1/workers"))["workers"] == []


async def test_sigterm_ends_a_process_in_the_middle_of_its_setup(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f, processes(f) as p:
        setup = "tests.harness.child_runtimes:load_slowly"
        worker = await p.worker("w", "--runtime", "null", "--setup", setup)
        await until(lambda: "setup began\n" in worker.printed, "the setup")
        assert (await f.get("/v1/workers"))["workers"] == []
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == -signal.SIGTERM


async def test_a_worker_that_fails_cancels_the_block_and_raises_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        await asyncio.sleep(0.05)
        raise KeyRefused("no such key")

    monkeypatch.setattr("dhsched.worker.dispatch_link.DispatchLink.run", refused)
    async with fleet(tmp_path) as f:
        with pytest.raises(KeyRefused, match="no such key"):
            async with Worker(null, **how(f)):
                await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0

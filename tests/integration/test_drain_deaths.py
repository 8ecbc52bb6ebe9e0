"""A replica killed at any step of a drain, and Workers that are told to go: another replica carries on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from dhsched.local.pids import alive
from dhsched.worker.session import Session
from tests.harness.draining import drain, ids, settled, until_done, where
from tests.harness.fleet import Consumed, Record, fleet, until
from tests.harness.replicas import replicas

EAGER = {
    "DHSCHED_DISPATCH_DRAIN_S": "0.1",
    "DHSCHED_DISPATCH_REFRESH_MIN_S": "0.05",
    "DHSCHED_DISPATCH_REFRESH_MAX_S": "0.1",
}
STEPS = ("reserve", "hold", "cut_over")
POINTS = [
    *(f"{step}.after" for step in STEPS),
    *(pytest.param(f"{step}.before", marks=pytest.mark.long) for step in STEPS),
]


@pytest.mark.release
@pytest.mark.parametrize("point", POINTS)
async def test_a_replica_killed_at_any_step_is_carried_on_by_another(tmp_path: Path, point: str) -> None:
    """The heir stands still until the doomed one has reached its point: otherwise it might do the whole drain."""
    record, lives = Record(), [f"l{n}" for n in range(6)]
    async with (
        fleet(tmp_path, dispatch=1) as f,
        replicas(f.address, f"doomed={point}", "heir", **EAGER) as (doomed, heir),
    ):
        here, f.dispatch[:] = f.dispatch[0], [doomed.url, heir.url]
        await f.start_worker(record, "a", capacity=8)
        a = (await ids(f, 1))["a"]
        for live in lives:
            await f.create(live)
            await f.push(live, "1", boundary=True)
        await until(lambda: len(record.consumed) == 6, "the first items")
        await f.start_worker(record, "b", capacity=8)
        await ids(f, 2)
        f.dispatch[:] = [here]
        os.kill(heir.pid, signal.SIGSTOP)
        await drain(f, a)
        for text in ("2", "3"):
            for live in lives:
                await f.push(live, text, boundary=True)
        await until(lambda: not alive(doomed.pid), f"the end of the doomed one at {point}", 40)
        os.kill(heir.pid, signal.SIGCONT)
        f.dispatch[:] = [heir.url]
        at = await until_done(f, a, 40)
        assert at["moved"] == 6
        for live in lives:
            await f.push(live, "4", boundary=True)
        await until(lambda: len(record.consumed) >= 24, "every item")
        for live in lives:
            assert record.texts(live) == ["1", "2", "3", "4"], "none twice: nothing was forced"
            assert (await where(f, live))["cause"] == "drain"
        await settled(f)


async def test_a_worker_told_to_go_is_drained_and_the_rest_is_cut_over_before_it_exits(tmp_path: Path) -> None:
    """One live rests and moves by itself, one hangs and is cut over before `drain_s` is over."""

    async def hang(session: Session, one: Consumed) -> None:
        if one.text == "hang" and one.worker.startswith("a#"):
            await session.stopping.wait()

    record = Record(before_ack=hang)
    async with fleet(tmp_path, with_loops=True, replica={"drain_s": 0.1}) as f:
        leaving = await f.start_worker(record, "a", drain_s=3.0)
        await ids(f, 1)
        for live, text in (("rests", "fine"), ("hangs", "hang")):
            await f.create(live)
            await f.push(live, text)
        await until(lambda: len(record.consumed) == 2, "both items")
        await f.start_worker(record, "b")
        await ids(f, 2)
        leaving.leave.set()
        await asyncio.wait_for(leaving.task, 30)
        for live in ("rests", "hangs"):
            await f.push(live, "after")
        await until(lambda: record.texts("rests") == ["fine", "after"], "what follows")
        await until(lambda: record.texts("hangs") == ["hang", "hang", "after"], "what it had in hand, once more")
        for live in ("rests", "hangs"):
            assert (await where(f, live))["cause"] == "drain", "nobody had to recover it"
        assert (await where(f, "hangs"))["operation"].startswith("forced-")
        await settled(f)


@pytest.mark.release
async def test_a_worker_that_runs_nothing_goes_although_no_dispatch_answers(tmp_path: Path) -> None:
    async with fleet(tmp_path) as f:
        stop = await f.start_dispatch()
        f.dispatch[:] = f.dispatch[1:]  # The only replica that the Worker knows.
        worker = await f.start_worker(Record(), "w", drain_s=600.0)
        await ids(f, 1)
        stop.set()
        worker.leave.set()
        await asyncio.wait_for(worker.task, 20)

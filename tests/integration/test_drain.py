"""Planned drain end to end: real Workers and controllers, text flowing, nothing consumed twice (paper, 6.3 and 7.6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dhsched.worker.session import Session
from tests.harness.draining import drain, ids, progress, quoted, settled, until_done, where
from tests.harness.fleet import Consumed, Fleet, Record, WorkerTask, fleet, until, until_so

QUICK = {"drain_s": 0.1, "worker_ttl_s": 2}


async def until_reasons(f: Fleet, worker: str, reasons: dict[str, int]) -> Any:
    return await until_so(lambda: progress(f, worker), lambda at: at["reasons"] == reasons, f"{reasons} of {worker}")


async def events(f: Fleet, worker: str) -> list[str]:
    """The kinds of what was said of a Worker's drain, in order."""

    async def kinds() -> list[str]:
        found = (await f.get("/v1/events"))["events"]
        return [each["kind"] for each in found if each["worker"] == worker and each["kind"].startswith("drain")]

    last = ("drain_done", "drain_cancelled")
    return await until_so(kinds, lambda found: bool(found) and found[-1] in last, f"the end of the drain of {worker}")


def moves(f: Fleet, how: str) -> float:
    return sum(
        replica.service.registry.get_sample_value("dhsched_drain_moves_total", {"how": how}) or 0
        for replica in f.replicas
    )


async def test_a_drain_moves_every_live_and_repeats_nothing(tmp_path: Path) -> None:
    """Two replicas, text flowing to every live all the time, more lives than cutovers."""
    record, lives = Record(), [f"l{n}" for n in range(9)]
    async with fleet(tmp_path, dispatch=2, infer=2, with_loops=True, replica=QUICK) as f:
        await f.start_worker(record, "a", capacity=10)
        a = (await ids(f, 1))["a"]
        for live in lives:
            await f.create(live)
        await f.start_worker(record, "b", capacity=10)
        await ids(f, 2)
        stop, pushed = asyncio.Event(), dict.fromkeys(lives, 0)

        async def talk(live: str) -> None:
            while not stop.is_set():
                pushed[live] += 1
                status, _ = await f.push(live, str(pushed[live]), boundary=pushed[live] % 3 == 0)
                assert status < 300
                await asyncio.sleep(0.02)

        talking = [asyncio.create_task(talk(live)) for live in lives]
        await until(lambda: all(record.texts(live) for live in lives), "the first items")
        asked = await drain(f, a)
        assert asked["mode"] == "draining" and asked["lives"] == 9
        at = await until_done(f, a)
        assert at["moved"] == 9 and at["left"] == 0
        await asyncio.sleep(0.2)
        stop.set()
        await asyncio.gather(*talking)
        await until(lambda: all(len(record.texts(live)) >= pushed[live] for live in lives), "every item")
        for live in lives:
            assert record.texts(live) == [str(n) for n in range(1, pushed[live] + 1)], "in order, none twice"
            generations = (await f.get(f"/v1/lives/{live}/history"))["generations"]
            assert generations[0]["cause"] == "drain" and generations[0]["worker"].startswith("b#")
        assert moves(f, "planned") == 9 and moves(f, "forced") == 0
        assert await events(f, a) == ["drain_started", "drain_done"], "each said once, by one of the replicas"
        await settled(f)


async def source_and_target(f: Fleet, runtime: Any, lives: list[str], **create: Any) -> tuple[str, WorkerTask]:
    """Worker a with these lives, and an empty Worker b."""
    await f.start_worker(runtime, "a", capacity=20)
    a = (await ids(f, 1))["a"]
    for live in lives:
        body = {"live_id": live, "digital_id": "demo", **create}
        status, placed = await f.post(f"{f.dispatch[0]}/v1/lives?wait_s=10", body)
        assert status in (200, 201), placed
    b = await f.start_worker(runtime, "b", capacity=20)
    await ids(f, 2)
    return a, b


async def test_lives_that_never_had_input_move_without_waiting_for_any_timer(tmp_path: Path) -> None:
    """Claimed, still starting on their source, or slow to be prepared: none is forced, and no look has to wake it."""
    at_once = {"fast": False}

    async def silent(session: Session) -> None:
        if not at_once["fast"]:
            await asyncio.sleep(0.5)
        async for _ in session.inputs():
            raise AssertionError("nothing was pushed")

    async with fleet(tmp_path, dispatch=2, infer=2, with_loops=True, replica=QUICK) as f:
        lives = [f"l{n}" for n in range(6)]
        at_once["fast"] = True
        a, _ = await source_and_target(f, silent, lives[:3])
        await until_so(lambda: all_claimed(f, lives[:3]), bool, "their claims")
        at_once["fast"] = False
        for live in lives[3:]:
            await f.create(live)  # Half of them, or all, are on b: what is on a is still starting.
        await drain(f, a, boundary_wait_s=100)
        await until_done(f, a)
        await until_so(lambda: all_claimed(f, lives), bool, "every claim")
        assert {(await where(f, live))["worker"].partition("#")[0] for live in lives} == {"b"}
        assert moves(f, "planned") >= 3 and moves(f, "forced") == 0
        assert looks(f, "Wake") == 0, "no timer had to help"
        await settled(f)


async def all_claimed(f: Fleet, lives: list[str]) -> bool:
    return all([(await where(f, live))["claimed"] for live in lives])


def looks(f: Fleet, outcome: str) -> float:
    return sum(
        replica.service.registry.get_sample_value("dhsched_looks_total", {"outcome": outcome}) or 0
        for replica in f.replicas
    )


async def test_what_finds_no_boundary_is_forced_and_counted_apart(tmp_path: Path) -> None:
    async def hang(session: Session, one: Consumed) -> None:
        if one.worker.startswith("a#"):
            await session.stopping.wait()

    record = Record(before_ack=hang)
    async with fleet(tmp_path, with_loops=True, replica=QUICK) as f:
        a, _ = await source_and_target(f, record, ["l"])
        await f.push("l", "said twice")
        await until(lambda: record.texts("l"), "the item")
        await drain(f, a, boundary_wait_s=0.5)
        await until_done(f, a)
        await until(lambda: len(record.texts("l")) == 2, "the item again")
        assert (moves(f, "planned"), moves(f, "forced")) == (0, 1)
        assert (await where(f, "l"))["operation"].startswith("forced-"), "its history tells it apart"
        assert "forced_move" in [each["kind"] for each in (await f.get("/v1/events"))["events"]]
        await settled(f)


async def test_at_the_deadline_everything_goes_even_the_immovable_and_past_the_start_budget(tmp_path: Path) -> None:
    """Eighteen lives at once onto one Worker whose runtimes never finish starting: more than may start there."""
    lives = [f"l{n}" for n in range(18)]

    async def slow(session: Session) -> None:
        if session.generation.worker.startswith("b#"):
            await session.stopping.wait()
        async for _ in session.inputs():
            pass

    async with fleet(tmp_path, with_loops=True, replica=QUICK) as f:
        a, _ = await source_and_target(f, slow, lives, immovable=True)
        await drain(f, a)
        at = await until_reasons(f, a, {"IMMOVABLE": 18})
        assert at["blocked"] == 18 and at["moved"] == 0
        assert "no deadline" in at["details"][0]["reason"]
        await drain(f, a, deadline_s=0.2)
        at = await until_done(f, a)
        assert at["moved"] == 18 and at["deadline_in_s"] == 0
        assert moves(f, "forced") == 18
        await settled(f)


async def test_two_workers_that_drain_towards_each_other_say_so_and_a_cancelled_one_takes_the_lives(
    tmp_path: Path,
) -> None:
    record = Record()
    async with fleet(tmp_path, with_loops=True, replica=QUICK) as f:
        a, _ = await source_and_target(f, record, ["one", "two"])
        b = (await ids(f, 2))["b"]
        await f.reassign("two", target=b)
        await drain(f, a)
        await drain(f, b)
        for worker, other in ((a, b), (b, a)):
            at = await until_reasons(f, worker, {"ALL_DRAINING": 1})
            assert at["blocked"] == 1 and other in at["details"][0]["reason"], at
        async with f.http.delete(f"{f.dispatch[0]}/v1/workers/{quoted(b)}/drain") as response:
            assert (await response.json())["mode"] == "ready"
        await until_done(f, a)
        assert await events(f, b) == ["drain_started", "drain_blocked", "drain_cancelled"]
        assert {(await where(f, live))["worker"] for live in ("one", "two")} == {b}
        await settled(f)


async def test_cancelling_leaves_what_has_not_moved_and_lifts_its_hold(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def wait(session: Session, one: Consumed) -> None:
        await go_on.wait()

    record = Record(before_ack=wait)
    async with fleet(tmp_path, with_loops=True, replica=QUICK) as f:
        a, _ = await source_and_target(f, record, ["l"])
        await f.push("l", "first")
        await until(lambda: record.texts("l"), "the item")
        await drain(f, a)
        at = await until_reasons(f, a, {"BOUNDARY": 1})
        assert at["waiting"] == 1 and at["details"][0]["target"].startswith("b#"), at
        await f.push("l", "second", boundary=True)
        async with f.http.delete(f"{f.dispatch[0]}/v1/workers/{quoted(a)}/drain") as response:
            assert response.status == 200
        go_on.set()
        await until(lambda: record.texts("l") == ["first", "second"], "input that flows again")
        at = await where(f, "l")
        assert at["worker"] == a and at["epoch"] == 1 and at["move"] is None
        # The reservation on b was given back, and its runtime with it.
        b = quoted((await ids(f, 2))["b"])
        await until_so(lambda: f.get(f"/v1/workers/{b}"), lambda found: found["slots"] == [], "an empty target")
        await settled(f)


async def test_a_target_that_dies_prepared_is_replaced_and_a_source_that_dies_held_loses_nothing(
    tmp_path: Path,
) -> None:
    holding = asyncio.Event()

    async def wait(session: Session, one: Consumed) -> None:
        if one.worker.startswith("a#"):
            await holding.wait()

    record = Record(before_ack=wait)
    async with fleet(tmp_path, with_loops=True, replica=QUICK) as f:
        source = await f.start_worker(record, "a", capacity=4)
        a = (await ids(f, 1))["a"]
        await f.create("l")
        target = await f.start_worker(record, "b", capacity=4)
        await ids(f, 2)
        await f.push("l", "in hand")
        await until(lambda: record.texts("l"), "the item")
        await drain(f, a)
        await until_moving(f, "l", "b#")
        await target.kill()
        await f.start_worker(record, "c", capacity=4)
        await until_moving(f, "l", "c#")
        await f.push("l", "next", boundary=True)
        await source.kill()
        # The source had an item in hand that it never acked: recovery gives it to whoever takes the live.
        await until(lambda: record.texts("l") == ["in hand", "in hand", "next"], "both items elsewhere")
        assert (await where(f, "l"))["worker"].startswith("c#")
        await settled(f)


async def until_moving(f: Fleet, live: str, to: str) -> None:
    """Held, with its target prepared."""

    def held(found: Any) -> bool:
        move = found["move"]
        return move is not None and move["target"].startswith(to) and move["hold"] is not None

    await until_so(lambda: where(f, live), held, f"{live} to be held for {to}")

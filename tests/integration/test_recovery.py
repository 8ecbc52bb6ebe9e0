"""Recovery with everything running: half a fleet killed, standstills, poison; and what an operator sees of it."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import Limits
from dhsched.worker.session import Session
from tests.harness.fleet import Consumed, Record, until
from tests.harness.processes import processes, until_consumed
from tests.harness.recovering import Recovering, ready, recovering, verb, waiting


@pytest.mark.release
async def test_half_the_fleet_killed_the_rest_waits_visibly_and_a_new_worker_takes_them(tmp_path: Path) -> None:
    record = Record()
    async with recovering(tmp_path, worker_ttl_s=2) as f, processes(f) as p:
        # Everybody is full, or lives of the first one to be called lost could go to the second one that is silent.
        doomed = [await p.worker(f"doomed{n}", capacity=3) for n in range(2)]
        for n in range(2):
            await f.start_worker(record, f"w{n}", capacity=4)
        await f.until("/v1/workers", lambda found: ready(found) == 4, "4 Workers")
        for n in range(14):
            await f.create(f"L{n}")
        filled = (await f.until("/v1/lives", all_claimed, "14 claims"))["lives"]
        room = 2
        over = [next(x["live_id"] for x in filled if x["worker"].startswith(name)) for name in ("w0#", "w1#")]
        for live in over:
            assert (await f.post(f"{f.dispatch[0]}/v1/lives/{live}/end"))[0] == 200
        await f.until("/v1/workers", lambda found: sum(x["load"] for x in found["workers"]) == 12, "two free slots")
        before = [live for live in filled if live["live_id"] not in over]
        lost = {live["live_id"]: live for live in before if live["worker"].startswith("doomed")}
        for process in doomed:
            process.kill()
        without = len(lost) - room
        shown = await f.until(  # The page and the counts are two reads.
            "/v1/recoveries",
            lambda found: len(waiting(found)) == without and found["waiting"] == {"gpu": without},
            "those without a free slot",
        )
        assert shown["next"] is None
        for each in waiting(shown):
            assert each["live_id"] in lost and each["source"] == lost[each["live_id"]]["worker"]
            assert each["need"] == "lost" and each["since_ms"] > 0 and each["tries"] > 0
            assert each["next_look_at_ms"] >= each["waiting_since_ms"] >= each["since_ms"]
        places = sorted(each["waiting_for"][0]["place"] for each in waiting(shown))
        assert places == [*range(1, without + 1)]
        assert len((await verb(f, "recoveries"))["recoveries"]) == without
        status, problem = await f.post(f"{f.dispatch[0]}/v1/lives", {"live_id": "late", "digital_id": "demo"})
        assert (status, problem["code"]) in ((503, "FULL"), (503, "WAITING")), "who lost a Worker goes first"
        await f.start_worker(record, "fresh", capacity=8)
        await f.until("/v1/recoveries", lambda found: not found["recoveries"], "everybody's place")
        after = {x["live_id"]: x for x in (await f.get("/v1/lives?state=open"))["lives"]}
        assert {live: after[live]["epoch"] for live in after} == {
            x["live_id"]: x["epoch"] + (x["live_id"] in lost) for x in before
        }
        told = Counter(event["kind"] for event in await f.events())
        # The brake is on only if both were found silent in one look.
        assert told["worker_lost"] == 2 and told["brake_on"] <= 1
        assert told["live_waiting"] == told["live_recovered_after_waiting"] == without
        assert told["live_recovered"] == room
        late = next(x["live_id"] for x in waiting(shown))
        rows = (await verb(f, "live", "history", late))["generations"]
        assert [(row["cause"], row["need"]) for row in rows] == [("recover", "lost"), ("create", "")]
        assert rows[0]["source"] == rows[1]["worker"] == lost[late]["worker"]
        assert rows[0]["detect_ms"] >= 1_000 and rows[0]["place_ms"] >= rows[0]["wait_ms"] > 0
        assert rows[1]["claim_ms"] >= 0 and rows[1]["wait_ms"] is None


def all_claimed(found: Any) -> bool:
    return all(live["claimed"] for live in found["lives"])


async def utterances(f: Recovering, *, speaks_s: float) -> None:
    """Of three lives that stand still, the one that says nothing is recovered: after a wake, and only then."""

    async def speak(session: Session, item: Consumed) -> None:
        if item.text == "long":
            session.extend(speaks_s * 2)
        if item.text in ("long", "stuck") and item.epoch == 1:
            await asyncio.sleep(speaks_s)

    record = Record(before_ack=speak)
    for n in range(2):
        await f.start_worker(record, f"w{n}", capacity=8)
    await f.until("/v1/workers", lambda found: ready(found) == 2, "2 Workers")
    placed = {live: await f.create(live) for live in ("long", "stuck", "held")}
    await f.until("/v1/lives", all_claimed, "their claims")
    store = f.contexts[0].store
    workers = [each["worker"] for each in (await f.get("/v1/workers"))["workers"]]
    target = next(worker for worker in workers if worker != placed["held"]["worker"])
    reserved = await store.reserve(live="default/held", expected=1, candidates=[target])
    assert isinstance(reserved, o.Reserved)
    assert isinstance(await store.hold(live="default/held", number=reserved.number), o.Held)
    for live in placed:
        assert (await f.push(live, live))[0] == 200
    await until(lambda: {one.text for one in record.consumed} >= {"long", "stuck"}, "both items")
    await f.until("/v1/lives/stuck", lambda found: found["epoch"] == 2, "the recovery of the stuck one", speaks_s + 20)
    looks = sum(
        sample.value
        for context in f.contexts
        for metric in context.metrics.looks.collect()
        for sample in metric.samples
        if sample.labels.get("outcome") == "Wake"
    )
    assert looks >= 1, "the first look only wakes"
    await f.until("/v1/lives/long", lambda found: found["acked"] == 1, "the end of the utterance", speaks_s + 20)
    assert (await f.get("/v1/lives/long"))["epoch"] == 1, "who asks for time is given it"
    held = await f.get("/v1/lives/held")
    assert (held["epoch"], held["pending"], held["move"]["target"]) == (1, 1, target), "a held live is not stalled"
    assert [(e["live_id"], e["numbers"]["need"]) for e in await f.events("live_recovered")] == [("stuck", "stalled")]


@pytest.mark.release
async def test_a_long_utterance_and_a_held_live_are_no_stalls_and_a_stuck_one_is(tmp_path: Path) -> None:
    limits = Limits(ack_wait_ms=2_500)
    async with recovering(tmp_path, limits=limits, worker_ttl_s=30) as f:
        await utterances(f, speaks_s=9)


@pytest.mark.long
async def test_a_minute_of_speech_is_no_stall(tmp_path: Path) -> None:
    limits = Limits(ack_wait_ms=12_000)
    async with recovering(tmp_path, limits=limits, worker_ttl_s=30) as f:
        await utterances(f, speaks_s=60)


async def test_poison_is_dropped_after_three_generations_and_shown(tmp_path: Path) -> None:
    async def choke(session: Session, item: Consumed) -> None:
        if item.text == "poison":
            raise RuntimeError("this kills me")

    record = Record(before_ack=choke)
    async with recovering(tmp_path, worker_ttl_s=30) as f:
        for n in range(2):
            await f.start_worker(record, f"w{n}", capacity=8)
        await f.create("a")
        assert (await f.push("a", "fine"))[0] == 200
        # A death is counted against the item at the head. An ack and a departure go different ways to the store:
        # without this wait the first death may find the item before the poison there.
        await f.until("/v1/lives/a", lambda found: found["acked"] == 1, "the ack of what is fine")
        for text in ("poison", "after"):
            assert (await f.push("a", text))[0] == 200
        await until(lambda: "after" in record.texts("a"), "what came after the poison")
        assert Counter(record.texts("a"))["poison"] == 3
        found = await f.until("/v1/lives/a", lambda found: found["acked"] == 3, "the last ack")
        assert found["dropped"]["poison"] == 1 and found["epoch"] == 4
        [event] = await f.events("poison_dropped")
        assert (event["live_id"], event["numbers"]["items"]) == ("a", 1)
        assert [e["numbers"]["need"] for e in await f.events("live_recovered")] == ["vacant"] * 3
        [letter] = (await verb(f, "dead-letters", "a"))["items"]
        assert letter["text"] == "poison"
        record.before_ack = None
        assert (await verb(f, "dead-letters", "a", "--push", letter["id"]))["seq"] == 4
        await until(lambda: Counter(record.texts("a"))["poison"] == 4, "the letter, pushed again")
        assert (await verb(f, "dead-letters", "a"))["items"] == []


async def test_a_frozen_worker_that_thaws_is_revived_and_what_has_not_moved_goes_on(tmp_path: Path) -> None:
    """Lost is not a verdict. Registered, lost, revived, gone: each is said once."""
    async with recovering(tmp_path, worker_ttl_s=2) as f, processes(f) as p:
        worker = await p.worker("w0")
        await f.until("/v1/workers", lambda found: ready(found) == 1, "the Worker")
        placed = await f.create("a")
        await f.until("/v1/lives", all_claimed, "its claim")
        worker.freeze()
        await f.until("/v1/recoveries", lambda found: len(waiting(found)) == 1, "a live that waits")
        worker.thaw()
        await f.until("/v1/recoveries", lambda found: not found["recoveries"], "nobody who waits")
        assert (await f.push("a", "on"))[0] == 200
        await until_consumed(worker, "a", "on")
        assert (await f.get("/v1/lives/a"))["epoch"] == placed["epoch"]
        assert (await f.post(f"{f.dispatch[0]}/v1/lives/a/end"))[0] == 200
        worker.signal(signal.SIGTERM)
        await worker.ended()
        kinds = [e["kind"] for e in await f.events() if e["worker"] == placed["worker"] and not e["live_id"]]
        assert [kind for kind in kinds if kind.startswith("worker_")] == [
            *("worker_registered", "worker_lost", "worker_revived", "worker_gone"),
        ]

"""Whatever gives a live its next generation is counted, remembered, followed and told the same way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dhsched.types import Cause
from dhsched.worker.session import Session
from tests.harness.draining import drain, ids, where
from tests.harness.fleet import Consumed, Fleet, Record, fleet, until_so

LIVE = "l"
QUICK = {"drain_s": 0.1, "rebalance_s": 0.2, "worker_ttl_s": 2}


def sample(f: Fleet, name: str, **labels: str) -> float:
    return f.replicas[0].service.registry.get_sample_value(name, labels) or 0


async def come_to_grief(session: Session, one: Consumed) -> None:
    if one.text == "crash" and one.epoch == 1:
        raise RuntimeError("it did")
    if one.text == "hang" and one.epoch == 1:
        await session.stopping.wait()


async def create(f: Fleet, a: str, b: str) -> None:
    """It is there already."""


async def reassign(f: Fleet, a: str, b: str) -> None:
    assert (await f.reassign(LIVE))[0] == 200


async def reassign_to_target(f: Fleet, a: str, b: str) -> None:
    assert (await f.reassign(LIVE, target=b))[0] == 200


async def recover(f: Fleet, a: str, b: str) -> None:
    await f.push(LIVE, "crash")


async def drain_it(f: Fleet, a: str, b: str) -> None:
    await drain(f, a)


async def force(f: Fleet, a: str, b: str) -> None:
    await f.push(LIVE, "hang")
    await drain(f, a, boundary_wait_s=0.2)


Act = Callable[[Fleet, str, str], Awaitable[None]]
CAUSES: list[tuple[str, Cause, Act]] = [
    ("create", "create", create),
    ("reassign", "reassign", reassign),
    ("reassign with a target", "reassign", reassign_to_target),
    ("recover", "recover", recover),
    ("drain", "drain", drain_it),
    ("forced", "drain", force),
]


@pytest.mark.parametrize(("cause", "act"), [each[1:] for each in CAUSES], ids=[each[0] for each in CAUSES])
async def test_every_cause_is_counted_followed_and_explained(tmp_path: Path, cause: Cause, act: Act) -> None:
    async with fleet(tmp_path, with_loops=True, replica=QUICK) as f:
        a, b = await two_workers(f)
        await act(f, a, b)
        await is_told(f, cause)


async def test_a_rebalanced_live_is_counted_followed_and_explained(tmp_path: Path) -> None:
    async with fleet(tmp_path, with_loops=True, replica=QUICK) as f:
        await two_workers(f, others=3)  # Four lives on a and none on b: one move makes them even enough.
        config = {"rebalance": "act", "rebalance_spread_pct": 20, "rebalance_moves_max": 4}
        assert (await f.post(f"{f.dispatch[0]}/v1/pools/gpu", config, put=True))[0] == 200
        moved = await until_so(lambda: moved_by_rebalance(f), bool, "a live that moved")
        await is_told(f, "rebalance", moved[0])


async def moved_by_rebalance(f: Fleet) -> list[str]:
    return [each["live_id"] for each in (await f.get("/v1/lives"))["lives"] if each["cause"] == "rebalance"]


async def test_a_refusal_is_counted_and_explained_whoever_asked(tmp_path: Path) -> None:
    """A reassign to a full Worker, as one that finds every Worker full."""
    async with fleet(tmp_path, with_loops=True, replica=QUICK) as f:
        a, b = await two_workers(f, capacity=1)
        assert (await f.reassign("other", target=b))[0] == 200
        for n, given in enumerate(({"target": b}, {}), start=1):
            status, problem = await f.reassign(LIVE, **given)
            assert (status, problem["code"]) == (503, "FULL"), problem
            assert sample(f, "dhsched_places_total", cause="reassign", outcome="Full") == n
            assert sample(f, "dhsched_refusals_total", reason="FULL") == n
            why = await f.get(f"/v1/lives/{LIVE}/why")
            assert (why["explained"], why["outcome"]) == ("then", "Full")
            assert [each["worker"] for each in why["explanation"]["refusals"]] == [b]
        assert (await where(f, LIVE))["worker"] == a


async def two_workers(f: Fleet, *, others: int = 0, capacity: int = 10) -> tuple[str, str]:
    """Worker a with the live and others, and an empty Worker b."""
    record = Record(before_ack=come_to_grief)
    await f.start_worker(record, "a", capacity=capacity + 1)
    await ids(f, 1)
    for live in (LIVE, *(f"other-{n}" for n in range(others)), *(["other"] if capacity == 1 else [])):
        await f.create(live)
        await f.push(live, "hello", boundary=True)
    await f.start_worker(record, "b", capacity=capacity)
    found = await ids(f, 2)
    await until_so(lambda: view_of(f), lambda seen: {*found.values()} <= seen, "both in the view")
    return found["a"], found["b"]


async def view_of(f: Fleet) -> set[str]:
    return {worker.worker for worker in f.replicas[0].fleet.view.workers.values() if not worker.barred}


async def is_told(f: Fleet, cause: Cause, live: str = LIVE) -> None:
    """The generation is in metrics, `why`, history and the phases of handoffs."""
    at = await until_so(lambda: where(f, live), lambda at: at["cause"] == cause and at["claimed"], f"{cause}, claimed")
    await f.push(live, "and on", boundary=True)
    assert sample(f, "dhsched_places_total", cause=cause, outcome="Committed") == 1
    why = await f.get(f"/v1/lives/{live}/why")
    assert (why["explained"], why["outcome"]) == ("then", "Committed"), why
    assert why["explanation"]["chosen"]["worker"] == at["worker"] and why["explanation"]["chosen"]["reason"]
    row = (await f.get(f"/v1/lives/{live}/history"))["generations"][0]
    assert (row["cause"], row["worker"], row["epoch"]) == (cause, at["worker"], at["epoch"])

    async def phases() -> list[float]:
        name = "dhsched_handoff_seconds_count"
        return [sample(f, name, cause=cause, phase=phase) for phase in ("claim", "first_ack")]

    await until_so(phases, lambda counts: min(counts) >= 1, f"both phases of {cause}")

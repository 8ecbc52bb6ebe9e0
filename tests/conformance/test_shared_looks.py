"""A look at many lives in one call does what a look at each of them in turn does: answers, revisions, whole state."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dhsched.ownership import outcomes as o
from dhsched.ownership.steps import take
from dhsched.ownership.steps.place import Create
from dhsched.store.steps.scripts import sources
from tests.conformance.lockstep import run
from tests.conformance.operations import LIMITS
from tests.conformance.real import StoreSubject, real_subject
from tests.harness.servers import SERVERS

RUNS = 40
MAX_MS = 100


async def look_in_one_call(real: StoreSubject, lives: list[str]) -> list[o.LookOutcome]:
    """Look at these lives, and compare with the model, which looks at one after the other."""
    state, expected = await real.state(), list[o.LookOutcome]()
    counted = state.cell.pos
    for live in lives:
        state, outcome = take("look", state, real.now, LIMITS, live=live)
        expected.append(outcome)
    assert await real.store.look_soon(lives) == expected
    # The cell counts calls, not rows.
    assert await real.state() == replace(state, cell=replace(state.cell, pos=counted + 1))
    return expected


async def look_after_a_walk(real: StoreSubject, seed: int) -> list[o.LookOutcome]:
    r = Random(seed)
    await run(r, real, steps=60)
    await real.wait(r.choice([0, 12, 200, 5_000]))
    lives = sorted((await real.state()).lives)
    return await look_in_one_call(real, r.sample([*lives, "t/unknown"], len(lives) + 1))


async def look_at_two_that_end(real: StoreSubject) -> list[o.LookOutcome]:
    """Each that ends changes its Worker."""
    await real.reset()
    worker = (await real.step("register_worker", name="w", boot="b", pool="p", capacity=2)).worker
    await real.step("report", worker=worker, boot="b")
    lives = [f"t/{name}" for name in "ab"]
    for live in lives:
        create: dict[str, Any] = {"cause": "create", "create": Create("d", "f", max_ms=MAX_MS), "candidates": [worker]}
        assert isinstance(await real.step("place", live=live, operation=live[2:], **create), o.Committed)
    await real.wait(MAX_MS)
    return await look_in_one_call(real, lives)


def test_one_call_is_as_many_looks_in_turn(subject: tuple[asyncio.Runner, StoreSubject]) -> None:
    runner, real = subject
    seen = {type(each).__name__ for seed in range(RUNS) for each in runner.run(look_after_a_walk(real, seed))}
    assert seen >= {"Idle", "Later", "Nothing", "Recover", "Wake"}
    assert runner.run(look_at_two_that_end(real)) == [o.LifetimeOver("age", "ended")] * 2


async def test_lives_that_share_a_revision_are_found() -> None:
    """The mutant: the lives of one call share the revision that the first of them has taken."""
    text = sources()["look"]
    mutant = text.replace("  rev = nil", "  rev = rev")
    assert mutant != text
    async with real_subject(SERVERS[0], LIMITS, {"look": mutant}) as real:
        with pytest.raises(AssertionError):
            await look_at_two_that_end(real)

"""The Lua steps do what the model does, on both servers, under retries, duplicates, stale messages and SCRIPT FLUSH."""

from __future__ import annotations

import asyncio
import inspect
import os
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dhsched.ownership import state
from dhsched.ownership.steps import STEPS
from dhsched.store.steps.api import Store
from dhsched.store.steps.scripts import sources
from tests.conformance.lockstep import Mismatch, run
from tests.conformance.operations import LIMITS
from tests.conformance.real import StoreSubject, real_subject
from tests.harness.servers import SERVERS

SEED = int(os.environ.get("DHSCHED_SEED", "1"))


@settings(max_examples=30, deadline=None, suppress_health_check=[*HealthCheck])
@given(r=st.randoms(use_true_random=False))
def test_store_and_model_agree_whatever_comes(subject: tuple[asyncio.Runner, StoreSubject], r: Random) -> None:
    runner, real = subject
    runner.run(run(r, real, steps=30))


def test_store_and_model_agree_over_long_runs(subject: tuple[asyncio.Runner, StoreSubject]) -> None:
    """Long runs reach what short ones cannot; a failure names its seed (repeat it with DHSCHED_SEED)."""
    runner, real = subject
    reached: set[tuple[str, str]] = set()
    for seed in range(SEED, SEED + 8):
        try:
            runner.run(run(Random(seed), real, steps=250, reached=reached))
        except AssertionError as error:
            raise AssertionError(f"DHSCHED_SEED={seed} repeats this:\n{error}") from error
    missed = {name for name in STEPS if not any(step == name for step, _ in reached)}
    assert not missed, f"never tried: {missed}"
    assert len(reached) >= 58, f"only {len(reached)} pairs of step and outcome were reached: {sorted(reached)}"


FORGETS = "call('ZCARD', revs) < SLOT_REVS_MAX or "
MUTANTS = {
    "": ("", ""),
    "what is forgotten is not noticed": (FORGETS, "true or "),
    "one change too many is forgotten": ("-1 - SLOT_REVS_MAX", "-SLOT_REVS_MAX"),
}


@pytest.mark.release
@pytest.mark.parametrize("mutant", MUTANTS)
async def test_store_and_model_agree_on_what_has_changed_when_they_remember_little(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a memory of two slots a Worker's table is often sent as a whole, because some changes are forgotten."""
    monkeypatch.setattr(state, "SLOT_REVS_MAX", 2)
    text = {name: sources()[name].replace(*MUTANTS[mutant]) for name in ("report", "lib/slot")}
    assert bool(mutant) == (text != {name: sources()[name] for name in text})
    text["lib/slot"] = text["lib/slot"].replace("SLOT_REVS_MAX = 128", "SLOT_REVS_MAX = 2")
    async with real_subject(SERVERS[0], LIMITS, text) as real:

        async def runs() -> None:
            for seed in range(16):
                await run(Random(seed), real, steps=250)

        if mutant:
            with pytest.raises(Mismatch):
                await runs()
        else:
            await runs()


@pytest.mark.long
def test_store_and_model_agree_over_many_long_runs(subject: tuple[asyncio.Runner, StoreSubject]) -> None:
    runner, real = subject
    for seed in range(1000, 1150):
        runner.run(run(Random(seed), real, steps=400))


def test_the_store_takes_what_the_model_takes() -> None:
    for name, step in STEPS.items():
        taken = set(inspect.signature(step).parameters) - {"state", "now", "limits"}
        assert set(inspect.signature(getattr(Store, name)).parameters) - {"self"} == taken, name

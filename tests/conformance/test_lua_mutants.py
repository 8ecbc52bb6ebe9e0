"""Every check of the scripts matters: a script without it is caught.

A mutant is caught by the scenario it names, played on the model and on the mutated scripts; the scripts as they are
pass every scenario. Random walks catch the mistakes that the design is about as well; how many of all the others they
catch is measured by a long test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

import pytest
import uvloop

from dhsched.errors import StoreRefused
from dhsched.store.keys import Keys
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import Script, load
from tests.conformance.lockstep import Mismatch, run
from tests.conformance.mutants import MUTANTS, Mutant
from tests.conformance.operations import LIMITS
from tests.conformance.real import Greeted, StoreSubject, recorded
from tests.conformance.short_scenarios import SHORT_SCENARIOS
from tests.conformance.tape import play, scenario_tape, walk_tape
from tests.harness.servers import running_server
from tests.scenarios.language import SCENARIOS

NAMED = (
    "no-epoch-in-guard",
    "no-source-epoch-guard",
    "read-check-write-admission",
    "commit-does-not-clear-active",
    "untagged-cleanup",
    "ack-without-fence",
    "no-pull-no",
    "ack-above-released",
    "interrupt-spares-released",
    "epoch-restart-after-sweep",
    "release-from-released",
    "revival-clears-agenda",
    "recover-without-needs",
    "hold-survives-move",
    "producer-duplicate-accepted",
)
"""The mistakes that the design is about; the specification has mutants of these names too."""
SLOW_TO_REACH = {"no-epoch-in-guard", "interrupt-spares-released", "hold-survives-move"}
"""Those of them that random walks come to only after thousands of steps."""
ALL_SCENARIOS = [*SHORT_SCENARIOS, *(path.stem for path in sorted(SCENARIOS.glob("*.txt")))]
LOCKSTEP_RUNS = 40
WALKS = 30


@dataclass(frozen=True, slots=True)
class Bench:
    """One server for all mutants, and the loop that its links live in."""

    runner: asyncio.Runner
    address: Address


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        server = running_server("valkey")
        yield Bench(runner, runner.run(server.__aenter__()).address)
        runner.run(server.__aexit__(None, None, None))


@asynccontextmanager
async def linked(bench: Bench, mutant: Mutant | None) -> AsyncIterator[tuple[Link, dict[str, Script]]]:
    """A link with the mutant's scripts; without one, with the scripts as they are."""
    scripts = load({**recorded(), **(mutant.replacements() if mutant else {})})
    sources = {name: script.source for name, script in scripts.items()}
    async with await Link.open(bench.address, sources, slot_key=Keys("main").cell, entry=Greeted()) as link:
        yield link, scripts


async def caught_by(bench: Bench, mutant: Mutant | None, scenarios: list[str]) -> list[str]:
    """Which of the scenarios notice the mutant."""
    noticed = []
    async with linked(bench, mutant) as (link, scripts):
        for name in scenarios:
            try:
                await play(scenario_tape(name), link, scripts)
            except Mismatch as mismatch:
                noticed.append(name if mutant else str(mismatch))
    return noticed


def test_the_scripts_as_they_are_pass_every_scenario(bench: Bench) -> None:
    for name in ALL_SCENARIOS:
        scenario_tape(name)
    assert bench.runner.run(caught_by(bench, None, ALL_SCENARIOS)) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.name))
def test_mutant_is_caught(bench: Bench, mutant: Mutant) -> None:
    scenario_tape(mutant.by)
    if bench.runner.run(caught_by(bench, mutant, [mutant.by])):
        return
    for name in ALL_SCENARIOS:
        scenario_tape(name)  # Recorded outside the runner's loop.
    others = bench.runner.run(caught_by(bench, mutant, ALL_SCENARIOS))
    pytest.fail(f"{mutant.by} does not notice {mutant.name} in {mutant.file}.lua; these do: {others or 'none'}")


def test_the_named_mutants_are_there() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert set(NAMED) - set(names) == set()


def test_every_short_scenario_is_needed() -> None:
    assert SHORT_SCENARIOS.keys() - {mutant.by for mutant in MUTANTS} == set()


# -- random walks


async def caught_in_lockstep(bench: Bench, mutant: Mutant) -> bool:
    async with linked(bench, mutant) as (link, scripts):
        subject = StoreSubject(RedisStore(link, cell="main", limits=LIMITS, scripts=scripts))
        for seed in range(LOCKSTEP_RUNS):
            try:
                await run(Random(seed), subject, steps=250)
            except (Mismatch, StoreRefused, KeyError, ValueError):  # Also a script that fails, or a state that is none.
                return True
    return False


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SLOW_TO_REACH else name for name in NAMED]
)
def test_random_walks_in_lockstep_catch_the_named_mutants(bench: Bench, name: str) -> None:
    [mutant] = [each for each in MUTANTS if each.name == name]
    assert bench.runner.run(caught_in_lockstep(bench, mutant))


async def caught_by_walks(bench: Bench, mutant: Mutant) -> bool:
    async with linked(bench, mutant) as (link, scripts):
        for seed in range(WALKS):
            try:
                await play(walk_tape(seed, 200), link, scripts)
            except Mismatch:
                return True
    return False


@pytest.mark.long
def test_random_walks_catch_most_of_all_mutants(bench: Bench) -> None:
    escaped = [mutant.name for mutant in MUTANTS if not bench.runner.run(caught_by_walks(bench, mutant))]
    print(f"{len(MUTANTS) - len(escaped)} of {len(MUTANTS)} caught by {WALKS} walks; escaped: {escaped}")
    assert len(escaped) <= len(MUTANTS) / 5

"""Run schedules by number."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise

import pytest
import structlog

from dhsched.ownership import invariants
from dhsched.ownership import outcomes as o
from dhsched.ownership.state import EMPTY, Live, State
from dhsched.ownership.steps import STEPS
from dhsched.store.link.address import Address
from dhsched.store.link.link import Link, LinkSettings
from dhsched.store.raw import read_state
from dhsched.worker.values import state_of
from tests.conformance.real import Greeted
from tests.harness.hammer import ordered_scripts
from tests.harness.schedule import CAPACITY, LIMITS, LIVES, Cell, Step, run_schedule, written_in

AT_ONCE = 8


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Runtimes crash here by the hundred."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


async def run_all(address: Address, schedules: int) -> None:
    first = int(os.environ.get("DHSCHED_SEED", "0"))
    scripts = ordered_scripts()
    sources = {name: script.source for name, script in scripts.items()}
    patient = LinkSettings(deadline_s=60)  # A schedule says itself what is not answered; a busy machine must not.
    async with await Link.open(address, scripts=sources, entry=Greeted(), settings=patient) as link:
        seeds = iter(range(first, first + schedules))

        async def run_some() -> None:
            for seed in seeds:
                try:
                    cell = await run_schedule(seed, link, scripts)
                    check(cell, await read_state(link, cell.store.keys.cell_name))
                except (AssertionError, TimeoutError) as error:
                    error.add_note(f"repeat it with DHSCHED_SEED={seed}")
                    raise

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(run_some())


def check(cell: Cell, found: State) -> None:
    """Everything that must hold of a schedule that has come to its end."""
    state, dropped = replay(cell.store.steps)
    found = replace(found, cell=replace(found.cell, pos=0))  # Calls are counted, and the replay has steps.
    different = [
        each.name for each in fields(State) if each.compare and getattr(found, each.name) != getattr(state, each.name)
    ]
    assert not different, f"store and model differ in {different}"  # Short: pytest would compare them for minutes.
    consumed = defaultdict(list)
    for one in cell.trace.consumed:
        consumed[one.live, one.epoch].append(one)
    for of_generation in consumed.values():
        for before, after in pairwise(of_generation):
            # In order per generation: the next one, or an interrupt that passed over some.
            assert after.seq == before.seq + 1 or (after.kind == "interrupt" and after.seq > before.seq), (
                before,
                after,
            )
    for live in LIVES:
        record = state.lives[live]
        delivered = {one.seq for one in cell.trace.consumed if one.live == live}
        missing = set(range(1, record.acked + 1)) - delivered
        assert missing <= dropped[live], f"{live}: {sorted(missing - dropped[live])} settled and never delivered"
        assert len(dropped[live]) == record.dropped, "I6: the ledger of what was dropped is not exact"
        assert record.appended == record.acked
        if record.state != "ended":
            check_journal(cell, live, record, dropped[live])
    assert cell.trace.runtimes_max <= CAPACITY


def check_journal(cell: Cell, live: str, record: Live, dropped: set[int]) -> None:
    """Every item that was acked by a runtime with a journal stands there once, and in order."""
    written = written_in([state_of(entry) for entry in record.journal.entries])
    assert all(before < after for before, after in pairwise(written)), f"{live}: {written} is out of order, or repeats"
    without = {seq for of, seq in cell.trace.not_written if of == live}
    missing = set(range(1, record.acked + 1)) - set(written) - without - dropped
    assert not missing, f"{live}: {sorted(missing)} acked, and not in the journal {written}"


def replay(steps: list[Step]) -> tuple[State, dict[str, set[int]]]:
    """The model's state after the same steps, each with the same outcome; and what was dropped on the way."""
    state, releases = EMPTY, invariants.Releases()
    dropped: dict[str, set[int]] = {live: set() for live in LIVES}
    for step in sorted(steps, key=lambda each: each.order):
        before = state
        state, outcome = STEPS[step.name](state, step.order[0], LIMITS, **step.arguments)
        assert outcome == step.outcome, (step, outcome)
        broken = [*invariants.of_step(before, state)]
        if isinstance(outcome, o.Items):
            a = step.arguments
            broken += releases.release(a["live"], a["worker"], a["epoch"], a["pull_no"])
        assert not broken, (step, broken)
        for live, record in state.lives.items():
            was = before.lives.get(live)
            if was is not None and record.dropped > was.dropped:
                dropped[live].update(range(was.acked + 1, was.acked + 1 + record.dropped - was.dropped))
    assert not invariants.of_state(state)
    return state, dropped

"""Numbers as large as they may become are written and read like small ones, by every step and on both servers.

Lua writes a number by itself with 14 digits: past 10^14 an id would become `gpu-1#1.048574951424e+14`, and no Worker
could register again.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dhsched.errors import BadId, BadValue
from dhsched.ownership.items import UNMARKED
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.ownership.outcomes import Emitted
from dhsched.ownership.state import Cell, State
from dhsched.ownership.steps.place import Create
from dhsched.store.steps.memory import MemoryStore
from dhsched.types import NUMBER_MAX
from tests.conformance.lockstep import run
from tests.conformance.operations import LIMITS
from tests.conformance.real import StoreSubject

ROOM = 2**20  # Below the largest number: more than a run of steps uses up.
STARTS = (10**9 - 40, 10**14 - 40, 10**15 - 40, NUMBER_MAX - ROOM)


@pytest.mark.parametrize("start", STARTS)
def test_every_step_writes_large_numbers_as_the_model_does(
    subject: tuple[asyncio.Runner, StoreSubject], start: int
) -> None:
    runner, real = subject
    cell = Cell(
        term=start // LIMITS.term_step - 2,
        epoch_base=start - 8,
        epoch_floor=start,
        rev=start,
        placed=start,
        workers_issued=start + 4,
    )
    reached: set[tuple[str, str]] = set()
    runner.run(run(Random(1), real, steps=300, reached=reached, cell=cell))
    assert len(reached) >= 40, f"only {len(reached)} pairs of step and outcome were reached: {sorted(reached)}"


def test_the_cursors_of_a_live_grow_as_large(subject: tuple[asyncio.Runner, StoreSubject]) -> None:
    """No live gets there by counting; but a number that is written with too few digits goes back, or stands still."""
    runner, real = subject
    runner.run(long_life(real, NUMBER_MAX - ROOM))


async def long_life(real: StoreSubject, at: int) -> None:
    await real.reset()
    memory = MemoryStore(limits=LIMITS, clock=lambda: real.now)

    async def both(step: str, **arguments: Any) -> Any:
        expected = await getattr(memory, step)(**arguments)
        assert await real.step(step, **arguments) == expected
        assert await real.state() == memory.state, step
        return expected

    worker = (await both("register_worker", name="w", boot="b", pool="p", capacity=2)).worker
    await both("report", worker=worker, boot="b")
    create = Create(digital_id="d", fingerprint="f")
    await both("place", live="t/a", operation="o1", cause="create", create=create, candidates=[worker])
    store = real.store
    numbers = {"appended": at, "released": at, "acked": at, "pull_no": at, "saved_seq": at, "dropped_interrupt": at}
    fields: dict[str, Any] = {"fence": f"1 {at} open unclaimed", "cursors": f"{at} {at} {at} 0 0 {UNMARKED.decode()}"}
    fields |= {"saved_seq": at, "dropped_interrupt": at, "from:p": f"{at} {at} 1000"}
    await store.link.call("HSET", store.keys.of("live", "t/a"), *(w for pair in fields.items() for w in pair))
    memory.state = with_live(memory.state, **numbers, producers={"p": (at, at, 1000)}, acked_mark=UNMARKED)

    await both("append_input", live="t/a", kind="text", payload=b"one", producer="p", n=at + 1)
    await both("append_input", live="t/a", kind="text", payload=b"two", boundary=True, request="r")
    owner = {"live": "t/a", "worker": worker, "epoch": 1}
    pull = await both("pull", **owner, after=at, controller="c")
    await both("release_input", **owner, pull_no=pull.pull_no, after=at, credit=10)
    await both("ack_input", **owner, n=at + 1, saved=b"s")
    for n in (at, at + 1):
        assert await both("emit", **owner, n=n, name="m", data=b"{}", told=n - 1) == Emitted(n)
    await real.wait(LIMITS.ack_wait_ms)
    await both("look", live="t/a")
    await real.wait(LIMITS.ack_wait_ms)
    recover = await both("look", live="t/a")
    assert recover.need == "stalled"
    await both("place", live="t/a", operation="o2", cause="recover", expected=1, candidates=[worker])
    assert memory.state.lives["t/a"].suspect == (at + 2, 1)
    await both("append_input", live="t/a", kind="interrupt", payload=b"", producer="p", n=at + 2)
    await both("end_live", live="t/a")


def with_live(state: State, **changed: Any) -> State:
    live = replace(state.lives["t/a"], **changed)
    return replace(state, lives={**state.lives, "t/a": live})


# -- and past that they are refused


async def test_a_number_past_the_largest_is_refused_before_it_is_sent() -> None:
    store = MemoryStore()
    for step, arguments in {
        "report": {"worker": "w#1", "boot": "b", "term": NUMBER_MAX + 1},
        "pull": {"live": "t/a", "worker": "w#1", "epoch": NUMBER_MAX + 1, "after": 0, "controller": "c"},
        "ack_input": {"live": "t/a", "worker": "w#1", "epoch": 1, "n": NUMBER_MAX + 1},
    }.items():
        with pytest.raises(BadValue, match=str(NUMBER_MAX)):
            await getattr(store, step)(**arguments)
    with pytest.raises(BadId):
        await store.report(worker=f"w#{NUMBER_MAX + 1}", boot="b")
    await store.report(worker=f"w#{NUMBER_MAX}", boot="b")


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, LIMITS])
async def test_the_last_term_is_the_one_whose_numbers_all_fit(limits: Limits) -> None:
    store = MemoryStore(limits=limits)
    last = NUMBER_MAX // limits.term_step - 2
    store.state = replace(store.state, cell=Cell(term=last - 1, epoch_floor=(last - 2) * limits.term_step))
    await store.new_term(term=last - 1)
    assert store.state.cell.term == last
    assert store.state.cell.epoch_floor + limits.term_step <= NUMBER_MAX
    with pytest.raises(BadValue, match="term"):
        await store.new_term(term=last)

"""Several processes hammer one cell; what they were told, put in the store's order, must be one history of one fence.

The merged history is held to four things: simple rules that know nothing of the model (`check_rules`), the invariants
after every step, the model's own answers to the same steps at the same times, and the raw state of the store at the
end. DHSCHED_SEED chooses the random choices; how the processes interleave is the machine's, so a failure shows the
steps that led to it, in order, and those alone repeat it on the model.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dhsched.ownership import invariants
from dhsched.ownership.state import EMPTY, Live, State
from dhsched.ownership.steps import STEPS, take
from dhsched.store.raw import read_state
from tests.conformance.operations import LIMITS
from tests.harness.hammer import open_store, read_arguments, said
from tests.harness.judge import Judge, Line
from tests.harness.servers import empty_server, redis_with_release

SEED = int(os.environ.get("DHSCHED_SEED", "1"))
PROCESSES = 4
SHOWN = 12
ROOT = Path(__file__).parents[2]


@redis_with_release
async def test_processes_that_hammer_one_cell_see_one_history(kind: str, tmp_path: Path) -> None:
    await hammer_and_check(kind, tmp_path, operations=500)


@pytest.mark.long
async def test_processes_that_hammer_one_cell_for_long_see_one_history(kind: str, tmp_path: Path) -> None:
    for round_ in range(3):
        folder = tmp_path / str(round_)
        folder.mkdir()
        await hammer_and_check(kind, folder, operations=10_000, seed=SEED + round_)


async def hammer_and_check(kind: str, folder: Path, *, operations: int, seed: int = SEED) -> None:
    print(f"seed {seed}: DHSCHED_SEED={seed} makes the same choices")
    async with empty_server(kind) as server, await open_store(server.address.url()) as store:
        history = await hammered(server.address.url(), folder, operations, seed)
        found = await read_state(store.link, store.keys.cell_name)
    assert [line["tick"] for line in history] == [*range(1, PROCESSES * operations + 1)]
    told = Counter((line["step"], line["outcome"]["is"]) for line in history)
    assert {step for step, _ in told} == STEPS.keys() - {"enter"}
    assert all(told[pair] for pair in WANTED), f"too little happened: {told}"
    turns = sum(one["by"] != other["by"] for one, other in pairwise(history))
    assert turns > len(history) / 10, f"the processes took turns only {turns} times in {len(history)} steps"
    assert [*check_rules(history)] == []
    state = replayed(history)
    assert [*differing(found, state)] == []
    assert invariants.of_state(found) == []


def differing(found: State, state: State) -> Iterator[str]:
    """What two states differ in, in short: pytest would show both."""
    for each in fields(State):
        ours, theirs = getattr(found, each.name), getattr(state, each.name)
        if ours != theirs and each.compare and each.name != "lives":
            yield f"{each.name}: {ours} and {theirs}"
    for live in sorted({*found.lives, *state.lives}):
        one, other = found.lives.get(live), state.lives.get(live)
        for name in (each.name for each in fields(Live)):
            if getattr(one, name, None) != getattr(other, name, None):
                yield f"{live} {name}: {getattr(one, name, None)} and {getattr(other, name, None)}"


WANTED = [("place", "Committed"), ("place", "Stale"), ("pull", "Pulling"), ("release_input", "Items")]
WANTED += [("release_input", "Stale"), ("ack_input", "Acked"), ("depart", "Departed"), ("look", "Recover")]
"""What a hammer that is worth its time meets often."""


async def hammered(url: str, folder: Path, operations: int, seed: int) -> list[Line]:
    """The merged history of all processes, in the store's order."""
    files = [folder / f"history-{n}.ndjson" for n in range(PROCESSES)]
    async with AsyncExitStack() as stack:
        children = []
        for n, file in enumerate(files):
            arguments = ["-m", "tests.harness.hammer", url, f"{seed}.{n}", str(operations), str(file)]
            pipe = asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe
            )
            stack.push_async_callback(stop, child)
            children.append(child)
        for child in children:
            assert child.stdout is not None
            await child.stdout.readline()
        ends = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
        assert [child.returncode for child in children] == [0] * PROCESSES, b"\n".join(err for _, err in ends).decode()
    lines = [{**json.loads(line), "by": n} for n, file in enumerate(files) for line in file.read_text().splitlines()]
    return sorted(lines, key=lambda line: int(line["tick"]))


async def stop(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.kill()
        await child.wait()


def replayed(history: list[Line]) -> State:
    """The state that the model comes to; every answer and every invariant is checked on the way."""
    state, trace = EMPTY, invariants.Releases()
    for n, line in enumerate(history):
        arguments = read_arguments(line)
        before = state
        state, outcome = take(line["step"], state, line["tick"], LIMITS, **arguments)
        broken = [*invariants.of_state(state), *invariants.of_step(before, state)]
        if line["outcome"]["is"] == "Items":
            broken += trace.release(*(arguments[name] for name in ("live", "worker", "epoch", "pull_no")))
        if said(outcome) != line["outcome"] or broken:
            steps = "\n".join(json.dumps(each) for each in history[max(0, n - SHOWN) : n + 1])
            raise AssertionError(f"{steps}\nmodel: {said(outcome)}\n{broken}")
    return state


# -- rules that need no model


def line(step: str, **outcome: Any) -> Line:
    """One line of a made-up history: live L, Worker A, epoch 1, pull 1 unless said otherwise."""
    given = {"live": "L", "worker": "A", "epoch": 1, "pull_no": 1, "capacity": 1}
    return {"tick": 0, "step": step, "arguments": given | outcome.pop("given", {}), "outcome": outcome}


def items(first: int, *blobs: str, **given: Any) -> Line:
    return line("release_input", **{"is": "Items", "first": first, "items": blobs, "given": given})


def pull(number: int, after: int = 0) -> Line:
    return line("pull", **{"is": "Pulling", "pull_no": number, "after": after})


def commit(worker: str, epoch: int, **changes: Any) -> Line:
    made = {"worker": worker, "epoch": epoch}
    return line("place", **({"is": "Committed", "generation": made, "again": False, "load": 1} | changes))


@pytest.mark.parametrize(
    ("history", "complaint"),
    [
        ([commit("A", 1), commit("B", 1, again=True)], "I1: L epoch 1 is of A and of B"),
        ([commit("A", 2), commit("B", 1)], "I0: 1 was issued for L after 2"),
        ([commit("A", 1), line("end_live", state="ended", **{"is": "Finished"}), commit("A", 1)], "I0: 1 was issued"),
        ([line("reserve", number=2, target="B", again=False, **{"is": "Reserved"}), commit("A", 2)], "reserved else"),
        ([commit("A", 1), commit("B", 2), items(1, "x")], "I2: A@1 passed the guard of L, which is at epoch 2"),
        ([commit("A", 1), items(1, "x", worker="B")], "I2: B@1 passed the guard"),
        ([commit("A", 1), line("new_term", floor=9, **{"is": "NewTerm"}), items(1, "x")], "the floor is 9"),
        ([commit("A", 1), line("ack_input", acked=1, ended=True, **{"is": "Acked"}), items(1, "x")], "at epoch None"),
        ([commit("A", 1), pull(1), pull(2), items(1, "x")], "was handed 1, and the latest pull is 2"),
        ([commit("A", 1), pull(1), items(1, "x"), items(1, "x"), items(3, "z")], "was handed 3 after 1"),
        ([commit("A", 1), pull(1, after=2), items(4, "z")], "was handed 4 after 2"),
        ([commit("A", 1), items(1, "x"), items(1, "y")], "I6: item 1 of L was 'x' and is 'y'"),
        ([line("register_worker", worker="A", **{"is": "Registered"}), commit("A", 1, load=2)], "I4: A holds 2 slots"),
    ],
)
def test_the_rules_see_a_broken_history(history: list[Line], complaint: str) -> None:
    assert complaint in "\n".join(check_rules(history))


def test_what_an_earlier_pull_acked_is_not_missed() -> None:
    acked = line("ack_input", acked=2, ended=False, **{"is": "Acked"})
    later = items(3, "z", pull_no=2)
    assert [*check_rules([commit("A", 1), pull(1), items(1, "x", "y"), pull(2, after=1), acked, later])] == []


def check_rules(history: Iterable[Line]) -> Iterator[str]:
    """What the fence promises, of a history in the store's order."""
    judge = Judge()
    for line in history:
        for complaint in judge.take(line["step"], line["arguments"], line["outcome"]):
            yield f"tick {line['tick']}: {complaint}"

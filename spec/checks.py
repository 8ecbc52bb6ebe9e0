"""What `make spec` checks: every configuration, what must come of it, and who else must arrive at the same states.

A configuration that is compared is explored twice: by TLC, from the specification, and by spec/explore.py, from the
product's functions. The two state graphs must be equal, state by state and step by step. The numbers of states are kept
in counts.json; `make test` explores the quick ones again and asserts the numbers, so a change of the product that
changes what can happen is noticed without Java.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spec import configuration, tlc
from spec.cell_workers import CellWorkers
from spec.cells import Cells
from spec.emits import Emits
from spec.explore import Explored, World, explore
from spec.failover import Failover
from spec.homes import Homes
from spec.input import Input
from spec.journal import Journals
from spec.marks import Marks
from spec.mutant import Mutant
from spec.ownership import Ownership
from spec.time import Time

HERE = Path(__file__).parent
COUNTS = HERE / "counts.json"
WORLDS: dict[str, Callable[..., World]] = {
    "DHSched": Ownership,
    "Input": Input,
    "Marks": Marks,
    "Emits": Emits,
    "Failover": Failover,
    "Homes": Homes,
    "Journal": Journals,
    "Time": Time,
    "Cells": Cells,
    "CellWorkers": CellWorkers,
}


@dataclass(frozen=True, slots=True)
class Check:
    """One configuration, spec/<name>.cfg. `says` is for the reader of the table."""

    name: str
    module: Literal[
        "DHSched", "Input", "Marks", "Emits", "Failover", "Homes", "Journal", "Time", "Cells", "CellWorkers"
    ]
    says: str
    compare: bool = True
    quick: bool = False
    long: bool = False
    violates: str | None = None


CHECKS = (
    Check("Fence", "DHSched", "reassign, end, reuse of an id; releases on record", quick=True),
    Check("Losses", "DHSched", "lost and revived Workers, stalls, waiting, crashes", quick=True),
    Check("Moves", "DHSched", "reserve, hold, cancel, expiry, cordon, drain, undo", quick=True),
    Check("Agents", "DHSched", "what agents run; crashes, new boots, exits", quick=True),
    Check("Spare", "DHSched", "agents that still stop what was placed anew on them", quick=True),
    Check("MovesAgents", "DHSched", "planned moves, prepared by agents", quick=True),
    Check("Late", "DHSched", "slot tables that arrive late and out of order", quick=True),
    Check("Terms", "DHSched", "new terms in the middle of moves", quick=True),
    Check("Lifetimes", "DHSched", "lifetimes that end lives in moves, losses, stalls", quick=True),
    Check("TwoLives", "DHSched", "two lives compete for two slots", quick=True),
    Check("Input", "Input", "lost replies, repeats, interrupts, crashes, closing", quick=True),
    Check("InputMoves", "Input", "boundaries, holds, planned and forced moves", quick=True),
    Check("InputGhosts", "Input", "late and repeated pulls before a planned move", quick=True),
    Check("InputLooks", "Input", "stalls, holds that end, what is due", quick=True),
    Check("InputLifetimes", "Input", "lifetimes that close lives with input on its way", quick=True),
    Check("Poison", "Input", "input that kills its generations", quick=True),
    Check("Emits", "Emits", "messages of runtimes, on a store that forgets", quick=True),
    Check("EmitsThree", "Emits", "messages of three generations", quick=True),
    Check("Failover", "Failover", "promotions, demotions, two primaries; connections that outlive them", quick=True),
    Check("Settled", "Failover", "two clients, who are told when the replica has it", quick=True),
    Check("Restarts", "Failover", "a store that restarts with an older state", quick=True),
    Check("FailoverTwo", "Failover", "promotions, and somebody else enters the home", compare=False),
    Check("SettledRestarts", "Failover", "a primary that loses its last second", compare=False, violates="Kept"),
    Check("HomesEnds", "Homes", "a store that forgets ends, sweeps and ids that are used again", compare=False),
    Check("LiveHomes", "Homes", "what a store forgot is repaired, and every live flows again", compare=False),
    Check("HomesFence", "Homes", "a store that forgets who owns a live; releases on record", quick=True),
    Check("HomesPulls", "Homes", "the same, and every connection that was granted a pull", quick=True),
    Check("HomesRoom", "Homes", "the same, and the room's fence", quick=True),
    Check("HomesMoves", "Homes", "a store that forgets reservations"),
    Check("HomesAgents", "Homes", "what agents run on a store that forgets"),
    Check("Marks", "Marks", "a store that forgets, whose runtimes and controllers do not"),
    Check("MarksReleases", "Marks", "the same, one pull and more items"),
    Check("Journal", "Journal", "what acks write to the journal, on a store that forgets", quick=True),
    Check("Time", "Time", "standstills, starts, interrupts, pulls, a hang; producers and connections", quick=True),
    Check("TimeCrashes", "Time", "crash loops, replicas that die with a recovery in their hands", quick=True),
    Check("TimeCounted", "Time", "generations without an ack, counted in a window", quick=True),
    Check("TimeTight", "Time", "one generation fewer is too few", compare=False, violates="Paced"),
    Check("LiveTime", "Time", "what stands still goes on, and time with it", compare=False),
    Check("Cells", "Cells", "a bucket that moves to another cell; two replicas that create in it", quick=True),
    Check("CellsThree", "Cells", "a bucket that moves on to a third cell", quick=True),
    Check("CellsThreeForget", "Cells", "the same, and the second cell forgets"),
    Check("CellsForgetOld", "Cells", "the same, and the cell that the bucket leaves forgets", quick=True),
    Check("CellsForgetNew", "Cells", "the same, and the cell that gets it forgets", quick=True),
    Check("CellsForgetEnds", "Cells", "a cell that forgets ends, and goes back to any earlier state", quick=True),
    Check("CellsAlone", "Cells", "a replica that knows the map of one cell only", compare=False, violates="Same"),
    Check("LiveCells", "Cells", "no live stays in two cells, and the bucket ends up in one", compare=False),
    Check("LiveCellsThree", "Cells", "a bucket ends up in the third cell, whatever the first forgets", compare=False),
    Check("CellWorkers", "CellWorkers", "a machine that registers in one cell or the other", quick=True),
    Check("CellWorkersForget", "CellWorkers", "the same, and a cell that forgets", compare=False),
    Check("TermsBoots", "DHSched", "new terms with losses and new boots"),
    Check("AgentsTwo", "DHSched", "two lives and agents with two slots each", quick=True),
    Check("MovesLosses", "DHSched", "planned moves while Workers are lost and come back"),
    Check("TwoMoves", "DHSched", "two lives, planned moves, one at a time"),
    Check("GoneMoves", "DHSched", "new boots in the middle of moves"),
    Check("ReuseTerms", "DHSched", "ids reused across terms; releases on record"),
    Check("InputDeep", "Input", "everything about input at once"),
    Check("CellsBack", "Cells", "a bucket that moves there and back; two movers"),
    Check("MarksInterrupts", "Marks", "the same with interrupts", compare=False),
    Check("Live", "DHSched", "L1-L3 with a free Worker: losses, stalls, moves", compare=False),
    Check("LiveTwo", "DHSched", "L1-L3 with a free Worker: two lives", compare=False),
    Check("LiveAgents", "DHSched", "L1-L3 with a free Worker: agents", compare=False),
    Check("NoFreeSlot", "DHSched", "without free capacity L1 must fail", compare=False, violates="temporal"),
    Check("LongMoves", "DHSched", "moves, modes, losses, stalls, ends, waiting", compare=False, long=True),
    Check("LongAgents", "DHSched", "agents, boots, moves, late tables", compare=False, long=True),
    Check("LongTwo", "DHSched", "two lives, agents, losses, moves", compare=False, long=True),
    Check("LongInput", "Input", "three items, three generations, moves, looks, ghosts", compare=False, long=True),
    Check("LongMarks", "Marks", "three items, interrupts, late messages, two generations", compare=False, long=True),
    Check("LongMarksTwice", "Marks", "a store that forgets twice", compare=False, long=True),
    Check("LongFailover", "Failover", "two clients, two calls, three homes", compare=False, long=True),
    Check("LongFailoverInput", "Failover", "appends of two clients while primaries change", compare=False, long=True),
    Check("LongSettled", "Failover", "three servers, and both replicas must have it", compare=False, long=True),
    Check("LongSettledOne", "Failover", "three servers, and one replica must have it", compare=False, long=True),
    Check("LongSettledDemotes", "Failover", "two clients, while primaries change places", compare=False, long=True),
    Check("LongTwoGenerations", "DHSched", "two lives compete, two generations each", long=True),
    Check("LongTermsTwo", "DHSched", "new terms with two lives, losses, waiting", long=True),
    Check("LongTermsAgents", "DHSched", "new terms with losses, moves, waiting, agents", long=True),
    Check("LongTermsBoots", "DHSched", "new terms with losses, new boots, agents", long=True),
    Check("LongAgentsTwo", "DHSched", "the same slots, with reassign and ends", compare=False, long=True),
    Check("LongHomesAgents", "Homes", "reassign and agents on a store that forgets", compare=False, long=True),
    Check("LongHomesTwo", "Homes", "two lives and agents on a store that forgets", compare=False, long=True),
    Check("LongHomesLate", "Homes", "slot tables of an earlier home that arrive late", compare=False, long=True),
    Check("LongHomesBoots", "Homes", "new boots, exits and reaps on a store that forgets", long=True),
    Check("LongHomesMoves", "Homes", "moves, losses and waiting on a store that forgets", long=True),
    Check(
        "LongHomesBack", "Homes", "two losses, or one and back to the primary that was left", compare=False, long=True
    ),
    Check("LongHomesRoom", "Homes", "the same, and the room's fence", compare=False, long=True),
    Check("LongTime", "Time", "three items, crashes, starts that take time", compare=False, long=True),
    Check("LongTimeCounted", "Time", "generations without an ack, in a larger window", compare=False, long=True),
    Check("LongCellsTwo", "Cells", "both cells forget", compare=False, long=True),
    Check("LongCellsMovers", "Cells", "the same, with two movers", compare=False, long=True),
    Check("LongGhosts", "Input", "three items, three generations, three pulls, ghosts", compare=False, long=True),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    states: int | None
    seconds: float
    expected: str
    ok: bool
    detail: str = ""


def text_of(name: str) -> str:
    return (HERE / f"{name}.cfg").read_text(encoding="utf-8")


def module_of(name: str) -> str:
    return next(check.module for check in CHECKS if check.name == name)


def source_of(module: str) -> str:
    """The text of a module and of ours that it extends."""
    text = (HERE / f"{module}.tla").read_text(encoding="utf-8")
    extended = re.findall(r"(?m)^EXTENDS (.+)$", text)[0].split(", ")
    return "\n".join([text, *(source_of(name) for name in extended if (HERE / f"{name}.tla").exists())])


def is_long(name: str) -> bool:
    return next(check.long for check in CHECKS if check.name == name)


def world(name: str, *, strict: bool = False) -> World:
    """The explorer's side of a configuration."""
    return WORLDS[module_of(name)](configuration.read(name), strict=strict)


def run_check(check: Check) -> Row:
    """TLC, and where it is compared the explorer."""
    with tempfile.TemporaryDirectory(prefix="dhsched-spec-") as scratch:
        dump = Path(scratch) / "graph" if check.compare else None
        run = tlc.run(check.module, text_of(check.name), long=check.long, dump=dump)
        if run.violated != check.violates:
            return Row(check.name, run.states, run.seconds, expectation(check), False, run.output)
        if dump is None:
            return Row(check.name, run.states, run.seconds, expectation(check), True)
        graph = tlc.read_graph(dump.with_suffix(".dot"))
    explored, wrong = compare(check, graph)
    return Row(check.name, run.states, run.seconds + explored.seconds, expectation(check), not wrong, wrong)


def expectation(check: Check) -> str:
    if check.violates:
        return f"{'L1' if check.violates == 'temporal' else check.violates} violated"
    return "holds, = model" if check.compare else "holds"


def compare(check: Check, graph: tlc.Graph) -> tuple[Explored, str]:
    """Whether the explorer takes the steps that TLC takes, between the states that it visits, and no other."""
    made = world(check.name, strict=True)
    explored = explore(made, keep_steps=True)
    if explored.violation:
        return explored, str(explored.violation)
    shape = {key: made.projection(key) for key in explored.keys}
    theirs = {number: tuple(state[name] for name in made.variables) for number, state in graph.states.items()}
    our_states, their_states = set(shape.values()), set(theirs.values())
    our_steps = {(shape[a], shape[b]) for a, b in explored.steps}
    their_steps = {(theirs[a], theirs[b]) for a, b in graph.steps}
    lines = [f"explorer {explored.states} states, {len(our_steps)} steps; TLC {len(theirs)}, {len(their_steps)}"]
    for who, states in (("the explorer", our_states - their_states), ("TLC", their_states - our_states)):
        lines += [f"only {who}: {shown(made, state)}" for state in list(states)[:3]]
    for who, steps in (("the explorer", our_steps - their_steps), ("TLC", their_steps - our_steps)):
        lines += [f"only {who}: from {shown(made, a)}\n  to {shown(made, b)}" for a, b in list(steps)[:3]]
    same = len(lines) == 1 and len(our_states) == explored.states == len(theirs)
    return explored, "" if same else "\n".join(lines)


def shown(made: World, state: tuple[object, ...]) -> dict[str, object]:
    return dict(zip(made.variables, state, strict=True))


def run_mutant(mutant: Mutant) -> Row:
    """TLC must object, and for the reason that the registry names."""
    assert mutant.tlc is not None
    name, invariant = mutant.tlc
    broken = tlc.with_constants(text_of(name), Mutant=f'"{mutant.name}"')
    run = tlc.run(module_of(name), broken, long=is_long(name))
    detail = "" if run.violated == invariant else f"{name} shows {run.violated or 'nothing'}\n{run.output}"
    return Row(mutant.name, run.states, run.seconds, f"{invariant} violated", not detail, detail)


def read_counts() -> dict[str, int]:
    counts: dict[str, int] = json.loads(COUNTS.read_text(encoding="utf-8"))
    return counts


def write_counts(counts: dict[str, int]) -> None:
    COUNTS.write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")

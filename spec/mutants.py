"""Rules of the protocol broken on purpose, one at a time, and who notices.

A check that has never failed proves little. Each mutant here is caught by TLC (where the module knows its name:
constant `Mutant`), by the explorer (where `patch` breaks the product's own functions), or by both, and always by the
named invariant: a mutant that is caught by something else, or not at all, fails `make spec` or `make test`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import dhsched.ownership.steps.enter as entering
from dhsched.ownership import agent as agency
from dhsched.ownership.draft import Draft
from dhsched.ownership.items import mark_of
from dhsched.ownership.outcomes import Ahead, Ended, Pulling, Stale
from dhsched.ownership.state import Live, State, frozen
from dhsched.ownership.steps import STEPS
from dhsched.types import slot_tag
from spec.patching import users_of

Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule. `tlc` and `explorer` are a configuration and the invariant that it violates there."""

    name: str
    breaks: str
    tlc: tuple[str, str] | None = None
    explorer: tuple[str, str] | None = None
    patch: Patch | None = None


# -- how the product's functions are broken


@contextmanager
def step(name: str, mutated: Callable[..., Any]) -> Iterator[None]:
    """Replace one step: `mutated` is given the real one, then the step's own arguments."""
    real = STEPS[name]

    def broken(*arguments: Any, **named: Any) -> Any:
        return mutated(real, *arguments, **named)

    with patch.dict(STEPS, {name: broken}):
        yield


@contextmanager
def function(owner: Any, name: str, mutated: Callable[..., Any]) -> Iterator[None]:
    """Replace one function of a module, or one method."""
    real = getattr(owner, name)

    def broken(*arguments: Any, **named: Any) -> Any:
        return mutated(real, *arguments, **named)

    with patch.object(owner, name, broken):
        yield


@contextmanager
def model_function(name: str, mutated: Callable[..., Any]) -> Iterator[None]:
    """Replace one function of the model, wherever it is used."""
    with ExitStack() as stack:
        for module in users_of(name):
            stack.enter_context(function(module, name, mutated))
        yield


def set_live(state: State, live: str, **fields: Any) -> State:
    return replace(state, lives=frozen({**state.lives, live: replace(state.lives[live], **fields)}))


def guard_without_epoch(real: Any, s: Draft, record: Live | None, worker: str, epoch: int) -> Any:
    if record is not None and record.epoch > s.cell.epoch_floor:
        return real(s, record, worker, record.epoch)
    return real(s, record, worker, epoch)


def guard_without_floor(real: Any, s: Draft, record: Live | None, worker: str, epoch: int) -> Any:
    if record is None or record.state == "ended":
        return Stale(None) if record is None else Ended()
    return None if (record.selected, record.epoch) == (worker, epoch) else Stale(record.generation)


def place_from_anywhere(real: Any, s: Draft, live: str, operation: str, cause: Any, expected: int, rest: bool) -> Any:
    return real(s, live, operation, cause, s.lives[live].epoch, rest)


def place_before_the_ack(real: Any, s: Draft, live: str, *rest: Any) -> Any:
    *same, at_boundary = rest
    return real(s, live, *same, at_boundary and not s.lives[live].held)


def commit_keeping_active(real: Any, s: Draft, live: str, *rest: Any) -> None:
    active = s.lives[live].active
    real(s, live, *rest)
    s.set_live(live, active=active)


def commit_below_floor(real: Any, s: Draft, live: str, winner: str, *rest: Any) -> None:
    cell, move = s.cell, s.lives[live].move
    if move is not None and move.target == winner:
        s.cell = replace(cell, epoch_floor=0)
    real(s, live, winner, *rest)
    s.cell = replace(s.cell, epoch_floor=cell.epoch_floor)


def depart_untagged(real: Any, state: State, *rest: Any, worker: str, live: str, number: int) -> Any:
    table = state.slots.get(worker, {})
    if slot_tag(live, number) not in table:
        mine = [tag for tag in table if tag.rpartition("@")[0] == live]
        number = int(mine[0].rpartition("@")[2]) if mine else number
    return real(state, *rest, worker=worker, live=live, number=number)


def ack_unfenced(real: Any, state: State, *rest: Any, live: str, worker: str, epoch: int, **named: Any) -> Any:
    record = state.lives[live]
    return real(state, *rest, live=live, worker=record.selected, epoch=record.epoch, **named)


def ack_ahead(real: Any, state: State, *rest: Any, live: str, n: int, **named: Any) -> Any:
    after, outcome = real(state, *rest, live=live, n=n, **named)
    record = state.lives[live]
    if isinstance(outcome, Ahead) and n <= record.appended:
        return set_live(state, live, acked=n, pending=record.pending[n - record.acked :]), outcome
    return after, outcome


def release_any_pull(real: Any, state: State, *rest: Any, live: str, pull_no: int, **named: Any) -> Any:
    record = state.lives.get(live)
    return real(state, *rest, live=live, pull_no=record.pull_no if record else pull_no, **named)


def release_from_released(real: Any, state: State, *rest: Any, live: str, after: int, **named: Any) -> Any:
    record = state.lives.get(live)
    return real(state, *rest, live=live, after=record.released if record else after, **named)


def pull_after_released(real: Any, state: State, *rest: Any, live: str, **named: Any) -> Any:
    after, outcome = real(state, *rest, live=live, **named)
    if isinstance(outcome, Pulling):
        outcome = replace(outcome, after=state.lives[live].released)
    return after, outcome


def pull_lowering_released(real: Any, state: State, *rest: Any, live: str, **named: Any) -> Any:
    after, outcome = real(state, *rest, live=live, **named)
    if isinstance(outcome, Pulling) and outcome.after < state.lives[live].released:
        return set_live(after, live, released=outcome.after, at_boundary=False), outcome
    return after, outcome


def pull_vacant(real: Any, state: State, *rest: Any, live: str, worker: str, epoch: int, **named: Any) -> Any:
    record = state.lives.get(live)
    vacant = state.slots.get(worker, {}).get(slot_tag(live, epoch)) == "vacant"
    if record and vacant and record.selected == worker and record.epoch == epoch:
        return set_live(state, live, active=worker, pull_no=record.pull_no + 1), Stale(None)
    return real(state, *rest, live=live, worker=worker, epoch=epoch, **named)


def with_the_stores_mark(real: Any, state: State, *rest: Any, live: str, **named: Any) -> Any:
    """The caller is taken to have the item that the store has under this number."""
    record = state.lives[live]
    n = named["n"] if "n" in named else named["after"]
    if n == record.acked:
        named["mark"] = record.acked_mark
    elif record.acked < n <= record.appended:
        named["mark"] = mark_of(record.pending[n - record.acked - 1])
    return real(state, *rest, live=live, **named)


def interrupt_sparing_released(real: Any, s: Draft, live: str, payload: bytes, mark: bytes) -> None:
    before = s.lives[live]
    real(s, live, payload, mark)
    kept = before.pending[: before.released - before.acked]
    s.set_live(live, acked=before.acked, pending=(*kept, *s.lives[live].pending))


def append_repeats(real: Any, state: State, *rest: Any, live: str, producer: str = "", n: int = 0, **named: Any) -> Any:
    record = state.lives[live]
    if producer in record.producers and n <= record.producers[producer][0] and record.state == "open":
        return real(state, *rest, live=live, request=f"{n}/{record.appended}", **named)
    return real(state, *rest, live=live, producer=producer, n=n, **named)


def sweep_forgetting(real: Any, s: Draft, live: str) -> Any:
    base = s.cell.epoch_base
    after, outcome = real(s, live)
    return replace(after, cell=replace(after.cell, epoch_base=base)), outcome


def report_clearing_agenda(real: Any, state: State, *rest: Any, worker: str, **named: Any) -> Any:
    after, outcome = real(state, *rest, worker=worker, **named)
    if worker in state.workers and state.workers[worker].lost and not after.workers[worker].lost:
        mine = {live for live, record in after.lives.items() if record.selected == worker}
        agenda = {c: frozen({k: v for k, v in e.items() if k not in mine}) for c, e in after.agenda.items()}
        return replace(after, agenda=frozen(agenda)), outcome
    return after, outcome


def always_needed(real: Any, s: Draft, live: str) -> str:
    return real(s, live) or "stalled"


def clear_keeping_hold(real: Any, s: Draft, live: str, **named: Any) -> None:
    move = s.lives[live].move
    real(s, live, **named)
    if move is not None and move.hold is not None:
        s.set_live(live, move=move)


def clear_keeping_slot(real: Any, s: Draft, live: str, *, slot: bool = True) -> None:
    real(s, live, slot=False)


def starts_finished(real: Any, agent: agency.Agent) -> Any:
    return real(replace(agent, finished=frozenset()))


def starts_too_many(real: Any, agent: agency.Agent) -> Any:
    return real(replace(agent, capacity=99))


def departs_all(real: Any, agent: agency.Agent) -> Any:
    actions = real(agent)
    idle = [tag for tag, slot in sorted(agent.table.items()) if slot == "departing" and tag not in agent.runs]
    return [*actions, *(agency.Depart(tag) for tag in idle if agency.Depart(tag) not in actions)]


def take_any_table(real: Any, agent: agency.Agent, *, rev: int, **named: Any) -> Any:
    return replace(real(replace(agent, rev=0), rev=rev, **named), rev=rev)


def enter_without_jump(real: Any, *arguments: Any, jump: int, **named: Any) -> Any:
    return real(*arguments, jump=0, **named)


def enter_with_old_pulls(real: Any, state: State, *rest: Any, **named: Any) -> Any:
    after, outcome = real(state, *rest, **named)
    return replace(after, cell=replace(after.cell, pull_base=state.cell.pull_base)), outcome


def enter_as_a_term(real: Any, *arguments: Any, **named: Any) -> Any:
    after, outcome = real(*arguments, **named)
    return replace(after, cell=replace(after.cell, epoch_floor=after.cell.epoch_base)), outcome


def home_without_info(real: Any, cell: Any, *, greeted: str, server: str | None = None) -> Any:
    return real(cell, greeted=greeted)


# -- the registry

MUTANTS = (
    Mutant(
        "no-epoch-in-guard",
        "a release is checked against the selected Worker alone",
        tlc=("Fence", "I2"),
        explorer=("Fence", "I2"),
        patch=lambda: model_function("guard", guard_without_epoch),
    ),
    Mutant(
        "no-source-epoch-guard",
        "place does not compare the epoch that its caller saw",
        tlc=("Fence", "I3"),
        explorer=("Fence", "I3"),
        patch=lambda: model_function("check", place_from_anywhere),
    ),
    Mutant(
        "read-check-write-admission",
        "room is read in one step and taken in another",
        tlc=("TwoLives", "I4"),
    ),
    Mutant(
        "commit-keeps-active",
        "a commit leaves the old claim standing",
        tlc=("Fence", "I5"),
        explorer=("Fence", "I5"),
        patch=lambda: model_function("commit", commit_keeping_active),
    ),
    Mutant(
        "untagged-cleanup",
        "depart takes whatever slot the live has on the Worker, not the one it names",
        tlc=("Agents", "I3"),
        explorer=("Agents", "I3"),
        patch=lambda: step("depart", depart_untagged),
    ),
    Mutant(
        "ack-without-fence",
        "an ack is taken from any generation",
        tlc=("Input", "I6"),
        explorer=("Input", "I6"),
        patch=lambda: step("ack_input", ack_unfenced),
    ),
    Mutant(
        "no-pull-no",
        "two pulls of one generation both pass",
        tlc=("Fence", "I2"),
        explorer=("Fence", "I2"),
        patch=lambda: step("release_input", release_any_pull),
    ),
    Mutant(
        "ack-above-released",
        "an ack may name an item that was not released",
        tlc=("Input", "I6"),
        explorer=("Input", "I6"),
        patch=lambda: step("ack_input", ack_ahead),
    ),
    Mutant(
        "interrupt-spares-released",
        "an interrupt drops only what was not released yet",
        tlc=("Input", "I6"),
        explorer=("Input", "I6"),
        patch=lambda: model_function("interrupt", interrupt_sparing_released),
    ),
    Mutant(
        "epoch-restart-after-sweep",
        "an id that was swept starts at epoch 1 again",
        tlc=("Fence", "I0"),
        explorer=("Fence", "I0"),
        patch=lambda: model_function("look_ended", sweep_forgetting),
    ),
    Mutant(
        "release-from-released",
        "a release goes on where the last one ended, whether or not its reply arrived",
        tlc=("Input", "Order"),
        explorer=("Input", "Order"),
        patch=lambda: step("release_input", release_from_released),
    ),
    Mutant(
        "agent-restarts-departed",
        "an agent starts a generation again that it said depart for",
        tlc=("Agents", "Final"),
        explorer=("Agents", "Final"),
        patch=lambda: function(agency, "starts", starts_finished),
    ),
    Mutant(
        "revival-clears-agenda",
        "a Worker that reports again takes its lives off the agenda",
        tlc=("Losses", "I7"),
        explorer=("Losses", "I7"),
        patch=lambda: step("report", report_clearing_agenda),
    ),
    Mutant(
        "recover-without-needs",
        "place(recover) does not ask again whether it is needed",
        tlc=("Losses", "Need"),
        explorer=("Losses", "Need"),
        patch=lambda: model_function("needs", always_needed),
    ),
    Mutant(
        "hold-survives-move",
        "the hold is not cleared with its move",
        tlc=("InputMoves", "Moves"),
        explorer=("InputMoves", "Moves"),
        patch=lambda: function(Draft, "clear_move", clear_keeping_hold),
    ),
    Mutant(
        "move-before-the-ack",
        "a planned move waits for the boundary to be released, not for it to be acked",
        tlc=("InputMoves", "Repeat"),
        explorer=("InputMoves", "Repeat"),
        patch=lambda: model_function("check", place_before_the_ack),
    ),
    Mutant(
        "producer-repeat-accepted",
        "a producer's n <= last is stored once more",
        tlc=("Input", "Once"),
        explorer=("Input", "Once"),
        patch=lambda: step("append_input", append_repeats),
    ),
    Mutant(
        "no-floor-in-guard",
        "generations from before a new term still pass",
        tlc=("Terms", "Floor"),
        explorer=("Terms", "Floor"),
        patch=lambda: model_function("guard", guard_without_floor),
    ),
    Mutant(
        "reserved-below-floor",
        "a number reserved before a new term is committed after it",
        tlc=("Terms", "I0"),
        explorer=("Terms", "I0"),
        patch=lambda: model_function("commit", commit_below_floor),
    ),
    Mutant(
        "move-keeps-its-slot",
        "a move that is given up leaves its reserved slot behind",
        tlc=("Moves", "Moves"),
        explorer=("Moves", "Moves"),
        patch=lambda: function(Draft, "clear_move", clear_keeping_slot),
    ),
    Mutant(
        "pull-takes-vacant",
        "a late pull claims a generation whose runtime has departed",
        tlc=("Losses", "I5"),
        explorer=("Losses", "I5"),
        patch=lambda: step("pull", pull_vacant),
    ),
    Mutant(
        "pull-after-released",
        "a pull goes on after what was released, not after what its runtime has",
        tlc=("Input", "I6"),
        explorer=("Input", "I6"),
        patch=lambda: step("pull", pull_after_released),
    ),
    Mutant(
        "pull-lowers-released",
        "a pull takes back what was released and its sender has not named: a late one makes a move repeat an item",
        tlc=("InputGhosts", "Repeat"),
        explorer=("InputGhosts", "I6"),
        patch=lambda: step("pull", pull_lowering_released),
    ),
    Mutant(
        "ack-ignores-the-mark",
        "an ack counts for whatever item has its number now",
        tlc=("Marks", "Cursors"),
        explorer=("Marks", "Consumed"),
        patch=lambda: step("ack_input", with_the_stores_mark),
    ),
    Mutant(
        "release-ignores-the-mark",
        "a release goes on after whatever item has its number now",
        tlc=("MarksReleases", "Consumed"),
        explorer=("MarksReleases", "Consumed"),
        patch=lambda: step("release_input", with_the_stores_mark),
    ),
    Mutant(
        "pull-ignores-the-mark",
        "a pull goes on after whatever item has its number now",
        tlc=("Marks", "Granted"),
        explorer=("Marks", "Granted"),
        patch=lambda: step("pull", with_the_stores_mark),
    ),
    Mutant(
        "begin-is-named",
        "a runtime that has no item yet names the one that it begins after",
        tlc=("MarksInterrupts", "Consumed"),
    ),
    Mutant(
        "agent-over-capacity",
        "an agent does not count the runtimes that are still stopping",
        tlc=("Late", "I4"),
        explorer=("Late", "I4"),
        patch=lambda: function(agency, "starts", starts_too_many),
    ),
    Mutant(
        "agent-departs-all",
        "an agent gives a slot back that stands for a runtime whose own slot is gone",
        tlc=("Spare", "Slots"),
        explorer=("Spare", "Slots"),
        patch=lambda: function(agency, "reconcile", departs_all),
    ),
    Mutant(
        "older-table-taken",
        "an agent takes a slot table that is older than the one it has",
        tlc=("Late", "Final"),
        explorer=("Late", "Final"),
        patch=lambda: function(agency, "take_table", take_any_table),
    ),
    Mutant(
        "no-jump",
        "a home begins where the numbers of its history end",
        tlc=("Failover", "Twice"),
        explorer=("Failover", "Twice"),
        patch=lambda: function(entering, "enter", enter_without_jump),
    ),
    Mutant(
        "info-not-compared",
        "a step that issues numbers compares the home that it is told, and not the server that it runs on",
        tlc=("Failover", "Twice"),
        explorer=("Failover", "Twice"),
        patch=lambda: function(entering, "is_home", home_without_info),
    ),
    Mutant(
        "append-not-compared",
        "an append compares the home that it is told, and not the server that it runs on",
        tlc=("LongFailoverInput", "Reported"),
    ),
    Mutant(
        "home-after-first-row",
        "a call runs its first row before it compares the home",
        tlc=("FailoverTwo", "NotRun"),
    ),
    Mutant(
        "settle-without-a-write",
        "WAIT follows the batch itself, which may have written nothing",
        tlc=("Settled", "Kept"),
    ),
    Mutant(
        "tell-before-settle",
        "an answer is passed on before the replicas have what it says",
        tlc=("Settled", "Kept"),
    ),
    Mutant(
        "wait-not-checked",
        "WAIT is believed on a server that was demoted and promoted since the batch",
        tlc=("LongSettledDemotes", "Kept"),
    ),
    Mutant(
        "base-does-not-jump",
        "a home goes on with the numbers of live and reservation",
        tlc=("HomesFence", "Twice"),
        explorer=("HomesFence", "Twice"),
        patch=lambda: function(entering, "enter", enter_without_jump),
    ),
    Mutant(
        "pulls-do-not-jump",
        "a home goes on with the pulls of a generation",
        tlc=("HomesPulls", "Twice"),
        explorer=("HomesPulls", "Twice"),
        patch=lambda: function(entering, "enter", enter_with_old_pulls),
    ),
    Mutant(
        "unentered-home-issues",
        "connections that outlive a loss issue numbers before the home is entered",
        tlc=("HomesFence", "Twice"),
    ),
    Mutant(
        "enter-raises-the-floor",
        "to enter a home is a new term: every live restarts, touched by the loss or not",
        tlc=("HomesFence", "Quiet"),
        explorer=("HomesFence", "Quiet"),
        patch=lambda: function(entering, "enter", enter_as_a_term),
    ),
    Mutant(
        "agent-refuses-another-home",
        "an agent keeps the table of the home that it knows",
        tlc=("LiveHomes", "temporal"),
    ),
    Mutant(
        "fence-keeps-its-highest",
        "a room drops what is lower than it has heard, in whatever home",
        tlc=("HomesRoom", "Audible"),
    ),
    Mutant(
        "publishers-stay-admitted",
        "a room that hears of another home does not ask about its publishers anew",
        tlc=("HomesRoom", "Audible"),
    ),
)

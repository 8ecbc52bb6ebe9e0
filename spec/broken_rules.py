"""Functions of the product with one rule broken: what spec/mutants.py puts in the place of the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from dhsched.ownership import agent as agency
from dhsched.ownership.draft import Draft
from dhsched.ownership.items import mark_of
from dhsched.ownership.journal import Change
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Ahead, Ended, Gap, Pulling, Stale
from dhsched.ownership.state import Journal, Live, State, frozen
from dhsched.ownership.steps import STEPS
from dhsched.types import slot_tag
from spec.patching import users_of


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


def lifetime_not_looked_at(real: Any, record: Live, now: int) -> int | None:
    return None


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


def commit_of_another_home(real: Any, s: Draft, live: str, winner: str, *rest: Any) -> None:
    cell, move = s.cell, s.lives[live].move
    if move is not None and move.target == winner:
        s.cell = replace(cell, epoch_base=0)
    real(s, live, winner, *rest)
    s.cell = replace(s.cell, epoch_base=cell.epoch_base)


def depart_untagged(real: Any, state: State, *rest: Any, worker: str, live: str, number: int) -> Any:
    table = state.slots.get(worker, {})
    if slot_tag(live, number) not in table:
        mine = [tag for tag in table if tag.rpartition("@")[0] == live]
        number = int(mine[0].rpartition("@")[2]) if mine else number
    return real(state, *rest, worker=worker, live=live, number=number)


def ack_unfenced(real: Any, state: State, *rest: Any, live: str, worker: str, epoch: int, **named: Any) -> Any:
    record = state.lives[live]
    return real(state, *rest, live=live, worker=record.selected, epoch=record.epoch, **named)


def emit_unfenced(real: Any, state: State, *rest: Any, live: str, worker: str, epoch: int, **named: Any) -> Any:
    record = state.lives[live]
    after, outcome = real(
        set_live(state, live, epoch=epoch, active=worker), *rest, live=live, worker=worker, epoch=epoch, **named
    )
    return set_live(after, live, epoch=record.epoch, active=record.active), outcome


def emit_twice(real: Any, state: State, *rest: Any, live: str, epoch: int, n: int, **named: Any) -> Any:
    if state.lives[live].emitted[0] == epoch and n <= state.lives[live].emitted[1]:
        state = set_live(state, live, emitted=(epoch, n - 1))
    return real(state, *rest, live=live, epoch=epoch, n=n, **named)


def emit_out_of_order(real: Any, *state: Any, n: int, told: int, **named: Any) -> Any:
    return real(*state, n=n, told=max(told, n - 1), **named)


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


def starts_finished(real: Any, agent: agency.Agent, tags: Any) -> Any:
    return real(replace(agent, finished=frozenset()), tags)


def starts_too_many(real: Any, agent: agency.Agent, tags: Any) -> Any:
    return real(replace(agent, capacity=99), tags)


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


def survives_with_its_home(real: Any, homes: Any, home: str, told: int, pos: int) -> Any:
    return home in {row.name for row in homes}


def fence_with_its_highest(real: Any, fence: Any, home: str) -> Any:
    return replace(real(fence, home), highest=fence.highest)


def fence_with_its_publishers(real: Any, fence: Any, home: str) -> Any:
    return replace(real(fence, home), admitted=fence.admitted)


def home_without_info(real: Any, cell: Any, *, greeted: str, server: str | None = None) -> Any:
    return real(cell, greeted=greeted)


def journal_repeating(real: Any, journal: Journal, change: Change, limits: Limits) -> Any:
    after = real(journal, change, limits)
    if isinstance(after, Journal) and after.entries == journal.entries and change.entries:
        return Journal(after.last + len(change.entries), after.entries + change.entries)
    return after


def journal_with_gaps(real: Any, journal: Journal, change: Change, limits: Limits) -> Any:
    if isinstance(real(journal, change, limits), Gap):
        return Journal(change.last, journal.entries + change.entries)
    return real(journal, change, limits)


def acked_since_with_all(real: Any, journal: Any, stored: int) -> Any:
    real(journal, stored)
    journal.acked()
    return real(journal, stored)

"""The next state of a cell, while a step makes it, and the writers that are the only way to change it.

A slot and a move each have one writer. Load, starting, cutovers, free and rev are differences that the writers apply,
so that no step can forget one: recounted from the raw tables they are equal, always (invariants.py).
`store/steps/lua/lib` is this file once more, in Lua.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dhsched.ownership import state as state_of
from dhsched.ownership.limits import Limits
from dhsched.ownership.state import Live, Move, State, Wake, Worker, frozen
from dhsched.types import SlotState, slot_tag, split_tag

WAITING_CLASS = 2**42
"""Scores in `waiting` are class * 2^42 + time in ms: exact in a double, ordered by class, then by time."""


class Draft:
    """A copy of a state that one step works on; `done()` freezes it."""

    def __init__(self, state: State, now: int, limits: Limits) -> None:
        self.now = now
        self.limits = limits
        self.cell = state.cell
        self._rev = state.cell.rev
        self.lives = dict(state.lives)
        self.workers = dict(state.workers)
        self.changed = dict(state.changed)
        self.slots = dict(state.slots)
        self.slot_revs = dict(state.slot_revs)
        self.free = dict(state.free)
        self.waiting = dict(state.waiting)
        self.agenda = dict(state.agenda)
        self.boots = dict(state.boots)
        self.blame = dict(state.blame)
        self.listed = state.listed
        self.ended = state.ended
        self._wakes: set[Wake] = set()

    def done(self) -> State:
        return State(
            cell=self.cell,
            lives=frozen(self.lives),
            workers=frozen(self.workers),
            changed=frozen(self.changed),
            slots=frozen({w: s for w, s in self.slots.items() if s}),
            slot_revs=frozen(self.slot_revs),
            free=frozen({p: r for p, r in self.free.items() if r}),
            waiting=frozen({p: w for p, w in self.waiting.items() if w}),
            agenda=frozen({c: a for c, a in self.agenda.items() if a}),
            boots=frozen(self.boots),
            blame=frozen(self.blame),
            listed=self.listed,
            ended=self.ended,
            wakes=frozenset(self._wakes),
        )

    # -- records

    def set_live(self, live: str, **fields: Any) -> Live:
        record = self.lives[live] = replace(self.lives[live], **fields)
        return record

    def set_worker(self, worker: str, **fields: Any) -> Worker:
        record = self.workers[worker] = replace(self.workers[worker], **fields)
        return record

    def slot(self, worker: str, live: str, number: int) -> SlotState | None:
        return self.slots.get(worker, {}).get(slot_tag(live, number))

    def touch(self, worker: str) -> int:
        """Note the Worker as changed at the next revision, so that placement views and its agent see the change.

        A step takes one revision at most, whatever it changes: so the order in which the step goes through a table
        shows nowhere.
        """
        self.cell = replace(self.cell, rev=self._rev + 1)
        self.changed[worker] = self.cell.rev
        self.wake_worker(worker)
        return self.cell.rev

    # -- wakes: hints that are published with the step

    def wake_worker(self, worker: str) -> None:
        """Tell the replica that holds the Worker's link that the Worker has something to do."""
        if link := self.workers[worker].link:
            self._wakes.add(Wake(f"dispatch:{link}", worker))

    def wake_controller(self, live: str) -> None:
        """Tell the controller of the live's latest pull that the live has something for it."""
        if controller := self.lives[live].controller:
            self._wakes.add(Wake(f"infer:{controller}", live))

    def _wake_recovery(self, when: int) -> None:
        """Tell every replica that something is due, if it is due now: otherwise each finds it in its next round."""
        if when <= self.now:
            self._wakes.add(Wake("due"))

    # -- slots: the one writer

    def write_slot(
        self, worker: str, live: str, number: int, state: SlotState | None, *, was: int | None = None
    ) -> None:
        """Write `live@number` on `worker`; None removes it. `was` is the number of the slot that this one replaces."""
        record = before = self.workers[worker]
        if record.gone and state == "departing":
            state = None  # Nothing runs on a Worker that is gone, so nothing is left to depart.
        table = dict(self.slots.get(worker, {}))
        old = table.pop(slot_tag(live, number if was is None else was), None)
        if state is not None:
            table[slot_tag(live, number)] = state
        self.slots[worker] = frozen(table)
        load = record.load + (state is not None) - (old is not None)
        starting = record.starting + (state == "starting") - (old == "starting")
        record = self.set_worker(worker, load=load, starting=starting)
        if (old, state) != ("starting", "running"):
            # A claim changes nothing that an agent acts on or a view ranks by, and claims are frequent.
            record = self.set_worker(worker, slots_rev=self.touch(worker))
            tags = {slot_tag(live, number), slot_tag(live, number if was is None else was)}
            self._note_revs(worker, dict.fromkeys(tags, record.slots_rev))
        if record.gone and load == 0:
            self.forget_worker(worker)
            return
        self.write_free(worker)
        roomy = record.placeable and load < record.capacity
        if roomy and (load < before.load or starting < before.starting):
            self.wake_waiting(record.pool, 1)

    def _note_revs(self, worker: str, revs: Mapping[str, int]) -> None:
        """Note when slots changed, and forget the oldest beyond SLOT_REVS_MAX, as a sorted set orders them."""
        noted = sorted({**self.slot_revs.get(worker, {}), **revs}.items(), key=lambda entry: (entry[1], entry[0]))
        self.slot_revs[worker] = frozen(dict(noted[-state_of.SLOT_REVS_MAX :]))

    def forget_worker(self, worker: str) -> None:
        record = self.workers.pop(worker)
        self.slots.pop(worker, None)
        self.slot_revs.pop(worker, None)
        self.changed.pop(worker, None)
        self._write(self.free, record.pool, worker, None)

    def set_limits(self, worker: str, *, starts_create: int = 0, starts_recover: int = 0, cutovers: int = 0) -> None:
        """Record on the Worker the limits of its Pool, for whichever step needs them; 0 is the limit of all Pools."""
        create = starts_create or self.limits.starts_create_max
        recover = min(create, starts_recover or self.limits.starts_recover_max)
        moves = cutovers or self.limits.cutovers_max
        self.set_worker(worker, starts_create_max=create, starts_recover_max=recover, cutovers_max=moves)

    def write_free(self, worker: str) -> None:
        """Keep free:<pool> exact: the placeable Workers with a free slot, by start budgets reached and
        load/capacity."""
        record = self.workers[worker]
        self._write(self.free, record.pool, worker, record.free_score)

    # -- moves: the one writer

    def set_move(self, live: str, move: Move) -> None:
        record = self.set_live(live, move=move)
        self.set_worker(record.selected, cutovers=self.workers[record.selected].cutovers + 1)

    def clear_move(self, live: str, *, slot: bool = True) -> None:
        """Remove the live's move, if it has one; `slot` gives its reservation back as well."""
        record = self.lives[live]
        if record.move is None:
            return
        move = record.move
        self.set_live(live, move=None)
        if move.hold is not None:
            # What stood still under the hold is no stall, so what was noted before is void. And it may flow again,
            # which a look makes sure of: the next one was set for the end of the move.
            self.set_live(live, note=None)
            self.look_by(live, self.now)
            self.wake_controller(live)
        self.set_worker(record.selected, cutovers=self.workers[record.selected].cutovers - 1)
        if slot and self.slot(move.target, live, move.number) == "reserved":
            self.write_slot(move.target, live, move.number, "departing")

    def clear_moves_to(self, worker: str) -> None:
        """Clear every move to this Worker, in the same step that makes the Worker unfit as a target."""
        for live, _, state in self.table(worker):
            if state == "reserved":
                self.clear_move(live)

    def table(self, worker: str) -> list[tuple[str, int, SlotState]]:
        return [(*split_tag(tag), state) for tag, state in self.slots.get(worker, {}).items()]

    # -- agenda and waiting

    def look_at(self, live: str, when: int) -> None:
        """Put the live on the agenda for `when`, neither sooner nor later."""
        self._write(self.agenda, self.lives[live].priority, live, when)
        self._wake_recovery(when)

    def look_by(self, live: str, when: int) -> None:
        """Put the live on the agenda for `when` at the latest."""
        priority = self.lives[live].priority
        at = self.agenda.get(priority, {}).get(live)
        self._write(self.agenda, priority, live, when if at is None else min(at, when))
        self._wake_recovery(when)

    def look_never(self, live: str) -> None:
        self._write(self.agenda, self.lives[live].priority, live, None)

    def join_waiting(self, live: str, pools: tuple[str, ...]) -> None:
        """Queue the live for a free slot in these Pools and in no other; it keeps its position in the queues."""
        record = self.lives[live]
        since = [score for pool in record.waits if (score := self.waiting.get(pool, {}).get(live)) is not None]
        score = since[0] if since else float(record.priority * WAITING_CLASS + self.now)
        for pool in record.waits:
            self._write(self.waiting, pool, live, None)
        for pool in pools:
            self._write(self.waiting, pool, live, score)
        self.set_live(live, waits=pools)
        self._pass_on(pool for pool in record.waits if pool not in pools)

    def leave_waiting(self, live: str) -> None:
        """Remove the live from every queue."""
        pools = self.lives[live].waits
        self.set_live(live, waits=())
        for pool in pools:
            self._write(self.waiting, pool, live, None)
        self._pass_on(pools)

    def _pass_on(self, left: Iterable[str]) -> None:
        """Wake the next live of each Pool with a free slot: the live that left may have been woken for it."""
        for pool in left:
            if self.free.get(pool):
                self.wake_waiting(pool, 1)

    def wake_waiting(self, pool: str, count: int) -> None:
        """Make the first `count` lives in the Pool's queue due now, and reset their backoff: a slot came free."""
        ordered = sorted(self.waiting.get(pool, {}).items(), key=lambda entry: (entry[1], entry[0]))
        for live, _ in ordered[:count]:
            self.look_by(live, self.now)
            self.set_live(live, tries=0)

    def _write(self, maps: dict[Any, Mapping[str, Any]], key: Any, field: str, value: Any) -> None:
        inner = dict(maps.get(key, {}))
        if value is None:
            inner.pop(field, None)
        else:
            inner[field] = value
        maps[key] = frozen(inner)

"""Plan a drain: decide its next actions from the records alone (paper, 6.3). Nothing here reads a clock or a store.

A live leaves a draining Worker in four steps, each of which any replica can continue from the record:

    no move          reserve a place on a target, at most `cutovers_max` lives of one source at a time
    move, no hold    the target prepares; the replica to which the target reports `prepared` holds the input
    move and hold    input stops at the next boundary; once all of it is acked there, the live is cut over
    committed        the target claims, the source's slot is departing, the source stops its runtime

A live that reaches no boundary within `boundary_wait_s` is cut over anyway: forced, and counted apart, because the
target then gets again what the source had not acked. At the drain's deadline all remaining lives are cut over at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from dhsched.store.records.drains import DrainRequest
from dhsched.store.records.lives import LiveOnWorker

State = Literal["moving", "waiting", "queued", "blocked"]
Code = Literal[
    "PREPARING",
    "BOUNDARY",
    "CUTOVERS",
    "NEXT",
    "DEADLINE",
    "NO_FREE_SLOT",
    "ALL_DRAINING",
    "STARTING",
    "NO_POOL",
    "IMMOVABLE",
]
CARRY_ON_S = 1.5
"""Any replica continues a move that has been held this long: the replica that held it may be dead."""
EXPIRY_MARGIN_MS = 15_000
"""A move that expires within this time is forced rather than lost, even if its target never reported `prepared`."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserve a slot on a target for this live."""

    row: LiveOnWorker


@dataclass(frozen=True, slots=True)
class CutOver:
    """Commit the live on its target if the live rests at the boundary: the replica that held it may be gone."""

    row: LiveOnWorker


@dataclass(frozen=True, slots=True)
class Force:
    """Commit the live now, without waiting for a boundary: on its target, or without one on any free slot."""

    row: LiveOnWorker


Action = Reserve | CutOver | Force


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one live of a drain is, with the reason as a code and as text."""

    row: LiveOnWorker
    state: State
    code: Code
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The next actions for one Worker, in order, and the standing of each of its lives."""

    actions: tuple[Action, ...] = ()
    standings: tuple[Standing, ...] = ()
    queue: tuple[LiveOnWorker, ...] = ()
    """The lives to reserve for as cutovers end, in order; without those of `actions`."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why no slot could be reserved for a live when this replica last tried."""

    code: Code
    reason: str


@dataclass(slots=True)
class DrainNotes:
    """One replica's notes about drains. They are a cache: another replica starts without them."""

    held_since: dict[tuple[str, int], float] = field(default_factory=dict)
    """By (live, number): since when, by this replica's own clock, the replica has seen the move held."""
    blocked: dict[str, Blocked] = field(default_factory=dict)
    """By live: why no slot could be reserved when this replica last tried."""
    queue: dict[str, list[LiveOnWorker]] = field(default_factory=dict)
    """By source: the lives that are next once a cutover ends."""

    def read(self, rows: Iterable[LiveOnWorker], *, now_s: float) -> None:
        """Take one reading of a source's lives, and note since when each is held."""
        for row in rows:
            if row.hold:
                self.held_since.setdefault((row.live, row.number), now_s)

    def keep(self, rows: Iterable[LiveOnWorker]) -> None:
        """Delete the notes about all other lives and moves."""
        kept = [*rows]
        lives, moves = {row.live for row in kept}, {(row.live, row.number) for row in kept}
        self.blocked = {live: reason for live, reason in self.blocked.items() if live in lives}
        self.held_since = {move: at for move, at in self.held_since.items() if move in moves}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The limits that a plan keeps to."""

    cutovers_max: int
    move_expires_ms: int


def plan(
    rows: Iterable[LiveOnWorker],
    request: DrainRequest,
    rules: Rules,
    *,
    now_ms: int,
    notes: DrainNotes,
    now_s: float,
) -> Plan:
    """Return the plan for one Worker's lives.

    `now_ms` is the store's time; `now_s` is the time of this replica's own clock, like the times in its notes.
    """
    lives = [*rows]
    if request.deadline_at_ms and now_ms >= request.deadline_at_ms:
        late = tuple(
            Standing(row, "moving", "DEADLINE", "the deadline has passed: it is cut over now") for row in lives
        )
        return Plan(tuple(Force(row) for row in lives), late)
    actions: list[Action] = []
    standings: list[Standing] = []
    queue: list[LiveOnWorker] = []
    under_way = sum(1 for row in lives if row.target)
    for row in sorted(lives, key=order):
        if row.target:
            held_for_s = now_s - notes.held_since.get((row.live, row.number), now_s)
            action, standing = under_way_with(row, request, rules, now_ms, held_for_s)
            actions += [action] if action is not None else []
            standings.append(standing)
        elif row.immovable:
            until = "until the drain's deadline" if request.deadline_at_ms else "for this drain has no deadline"
            standings.append(Standing(row, "blocked", "IMMOVABLE", f"it was created immovable and stays, {until}"))
        else:
            queue.append(row)
            standings.append(queued(row, notes.blocked.get(row.live), under_way, rules))
    # Those that nobody can take now come last, or they would stand before lives that can move.
    queue.sort(key=lambda row: row.live in notes.blocked)
    free = max(0, rules.cutovers_max - under_way)
    return Plan((*actions, *map(Reserve, queue[:free])), tuple(standings), tuple(queue[free:]))


def order(row: LiveOnWorker) -> tuple[int, int, str]:
    """Return the sort key of the queue: the most urgent class first, in it the live with the least pending input."""
    return row.priority, row.pending, row.live


def under_way_with(
    row: LiveOnWorker, request: DrainRequest, rules: Rules, now_ms: int, held_for_s: float
) -> tuple[Action | None, Standing]:
    """Return the action, if any, and the standing of a live that has a move: wait for its target or for its boundary,
    or cut it over."""
    since_s = max(0, now_ms - (row.expires_at_ms - rules.move_expires_ms)) / 1000
    late = now_ms >= row.expires_at_ms - min(EXPIRY_MARGIN_MS, rules.move_expires_ms // 4)
    if not row.hold:
        reason = f"Worker {row.target} has been preparing it for {since_s:.0f} s"
        return (Force(row) if late else None), Standing(row, "moving", "PREPARING", reason)
    reason = (
        f"not at a boundary for {held_for_s:.0f} s, Worker {row.target} is prepared; it is cut over anyway after "
        f"{request.boundary_wait_s:g} s"
    )
    standing = Standing(row, "waiting", "BOUNDARY", reason)
    if held_for_s >= request.boundary_wait_s or late:
        return Force(row), standing
    return (CutOver(row) if held_for_s >= CARRY_ON_S else None), standing


def queued(row: LiveOnWorker, blocked: Blocked | None, under_way: int, rules: Rules) -> Standing:
    if blocked is not None:
        return Standing(row, "blocked", blocked.code, blocked.reason)
    if under_way >= rules.cutovers_max:
        reason = f"{under_way} of {rules.cutovers_max} cutovers of this Worker are under way; the live is queued"
        return Standing(row, "queued", "CUTOVERS", reason)
    return Standing(row, "queued", "NEXT", "a slot is about to be reserved for it")

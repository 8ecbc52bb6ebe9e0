"""What a drain does next, decided from the records alone (paper, 6.3). Nothing here reads a clock or a store.

A live leaves a draining Worker in four steps, each of which any replica can carry on from the record:

    no move          reserve a place on a target, at most `cutovers_max` lives of one source at a time
    move, no hold    the target prepares; when it says that it is prepared, whoever hears it holds the input
    move and hold    input stops at the next boundary; once all of it is acked there, the live is cut over
    committed        the target claims, the source's slot is departing, the source stops its runtime

What does not come to a boundary in `boundary_wait_s` is cut over anyway: forced, and counted apart, because what the
source had in hand is then given to the target once more. At the drain's deadline everything that is left goes at once.
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
"""A move that has been held this long is not being seen through by the replica that held it: it may be dead."""
EXPIRY_MARGIN_MS = 15_000
"""A move that is about to expire is used rather than lost, even if its target never said that it is prepared."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Set a place aside for this live."""

    row: LiveOnWorker


@dataclass(frozen=True, slots=True)
class CutOver:
    """Commit the live on its target if it rests at the boundary: the replica that held it may be gone."""

    row: LiveOnWorker


@dataclass(frozen=True, slots=True)
class Force:
    """Commit the live on its target now, wherever its input stands; without a target, wherever there is a free slot."""

    row: LiveOnWorker


Action = Reserve | CutOver | Force


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one live is, and the reason in words."""

    row: LiveOnWorker
    state: State
    code: Code
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now for one Worker, in order, and how each of its lives stands."""

    actions: tuple[Action, ...] = ()
    standings: tuple[Standing, ...] = ()
    queue: tuple[LiveOnWorker, ...] = ()
    """Those that would be next if a cutover ended, in order."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a live found no place when this replica last tried."""

    code: Code
    reason: str


@dataclass(slots=True)
class DrainNotes:
    """What one replica has seen of drains. A cache: another replica starts without it and finds out by itself."""

    held_since: dict[tuple[str, int], float] = field(default_factory=dict)
    """Since when, by this replica's own clock, it has seen a (live, number) held."""
    blocked: dict[str, Blocked] = field(default_factory=dict)
    """Lives that found no place when this replica last tried, and why."""
    queue: dict[str, list[LiveOnWorker]] = field(default_factory=dict)
    """By source: the lives that are next once a cutover ends."""

    def look(self, rows: Iterable[LiveOnWorker], *, now_s: float) -> None:
        """Take one reading of a source's lives: since when each is held."""
        for row in rows:
            if row.hold:
                self.held_since.setdefault((row.live, row.number), now_s)

    def keep(self, rows: Iterable[LiveOnWorker]) -> None:
        """Forget all but these lives and moves."""
        kept = [*rows]
        lives, moves = {row.live for row in kept}, {(row.live, row.number) for row in kept}
        self.blocked = {live: reason for live, reason in self.blocked.items() if live in lives}
        self.held_since = {move: at for move, at in self.held_since.items() if move in moves}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The limits that a plan keeps."""

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
    """One Worker's lives in, what to do with them out.

    `now_ms` is the store's time, `now_s` is of this replica's own clock, which the times in its notes are of.
    """
    lives = [*rows]
    if request.deadline_at_ms and now_ms >= request.deadline_at_ms:
        late = tuple(Standing(row, "moving", "DEADLINE", "the deadline is over: it is cut over now") for row in lives)
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
    free = max(0, rules.cutovers_max - under_way)
    return Plan((*actions, *map(Reserve, queue[:free])), tuple(standings), tuple(queue))


def order(row: LiveOnWorker) -> tuple[int, int, str]:
    """Who goes first: the most urgent class, and within it those that have the least to say and rest soonest."""
    return row.priority, row.pending, row.live


def under_way_with(
    row: LiveOnWorker, request: DrainRequest, rules: Rules, now_ms: int, held_for_s: float
) -> tuple[Action | None, Standing]:
    """A live that has a move: wait for its target, wait for the boundary, or wait no longer."""
    since_s = max(0, now_ms - (row.expires_at_ms - rules.move_expires_ms)) / 1000
    late = now_ms >= row.expires_at_ms - min(EXPIRY_MARGIN_MS, rules.move_expires_ms // 4)
    if not row.hold:
        reason = f"Worker {row.target} prepares it, for {since_s:.0f} s now"
        return (Force(row) if late else None), Standing(row, "moving", "PREPARING", reason)
    reason = (
        f"not at a boundary since {held_for_s:.0f} s, Worker {row.target} is prepared; it is cut over anyway after "
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
        reason = f"{under_way} of {rules.cutovers_max} cutovers of this Worker are under way; it is among the next"
        return Standing(row, "queued", "CUTOVERS", reason)
    return Standing(row, "queued", "NEXT", "a place is about to be reserved for it")

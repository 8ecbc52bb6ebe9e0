"""place: commit a live's next generation. It is the only way to one.

Create, reassign, recover, drain and rebalance differ in `cause` alone (docs/internals/protocol.md, tables a and b).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dhsched.ownership.admission import Admitted, admit, next_number
from dhsched.ownership.draft import Draft
from dhsched.ownership.finish import finish
from dhsched.ownership.lifetime import lifetime_look_at
from dhsched.ownership.limits import Limits
from dhsched.ownership.needs import needs
from dhsched.ownership.outcomes import Committed, Conflict, Ended, Moot, NotFound, NotYet, PlaceOutcome, Quota, Stale
from dhsched.ownership.poison import blame_head, blames, closes_with, died_of, drop_poison, fall_back, poisoned
from dhsched.ownership.state import Live, Row, State
from dhsched.types import Candidates, Cause, Generation


@dataclass(frozen=True, slots=True)
class Create:
    """The parts of a new live."""

    digital_id: str
    fingerprint: str
    room: str = ""
    metadata: bytes = b""
    config: bytes = b""
    priority: int = 1
    immovable: bool = False
    idle_ms: int = 0  # Without input for so long the live ends; 0 is no limit.
    max_ms: int = 0  # The live ends when it is this old; 0 is no limit.
    labels: bytes = b""


def place(
    state: State,
    now: int,
    limits: Limits,
    *,
    live: str,
    operation: str,
    cause: Cause,
    expected: int = 0,
    create: Create | None = None,
    candidates: Candidates = (),
    pools: Sequence[str] = (),
    at_boundary: bool = False,
    lives_max: int = 0,
) -> tuple[State, PlaceOutcome]:
    """Commit the live's next generation on the first candidate, or the emptiest of equals, else in the named Pools.

    `lives_max` limits the lives of the tenant that have not ended, for a create; 0 is no limit.
    """
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if create is not None:
        if record is not None:
            return state, recreate(record, create)
        if lives_max and (lives := lives_beside(s, live)) >= lives_max:
            return state, Quota(lives, lives_max)
    else:
        if record is None:
            return state, NotFound()
        refused = check(s, live, operation, cause, expected, at_boundary)
        if refused is not None:
            return s.done(), refused
        if blames(s, live, cause) and poisoned(record, limits) and closes_with(record):
            drop_poison(s, live, died_of(s, live))
            finish(s, live)
            return s.done(), Ended()
    found = admit(s, live, record, cause, candidates, pools)
    if not isinstance(found, Admitted):
        if cause == "recover" and pools:
            s.join_waiting(live, tuple(pools))
        elif cause == "recover" and not candidates:
            s.leave_waiting(live)  # Nobody may take it as things are configured: it must not keep others out.
        return s.done(), found
    winner = found.worker
    if create is not None:
        commit_create(s, live, create, winner, operation)
    else:
        commit(s, live, winner, operation, cause)
    generation = s.lives[live].generation
    s.cell = replace(s.cell, placed=s.cell.placed + 1)
    return s.done(), Committed(generation, s.cell.rev, s.workers[winner].load, refusals=found.refusals)


def recreate(record: Live, create: Create) -> PlaceOutcome:
    """Return the outcome of a create on an id that is taken: a repeated call gets its generation."""
    if record.state == "ended":
        return Ended()
    if record.fingerprint != create.fingerprint:
        return Conflict()
    return Committed(record.generation, rev=0, load=0, again=True)


def lives_beside(s: Draft, live: str) -> int:
    """Return how many lives of this live's tenant have not ended."""
    tenant = live.partition("/")[0] + "/"
    return sum(each.startswith(tenant) for each in s.listed - s.ended)


def check(s: Draft, live: str, operation: str, cause: Cause, expected: int, at_boundary: bool) -> PlaceOutcome | None:
    """Return why this place must not go on, or None. The checks are in the order of the table."""
    record = s.lives[live]
    for row in (record.current, *record.history):
        if row.operation == operation:
            made = Generation(row.worker, row.epoch)
            later = None if row.epoch == record.epoch else record.generation
            return Committed(made, rev=0, load=0, again=True, superseded_by=later)
    if record.epoch != expected:
        return Stale(record.generation)
    if record.state == "ended":
        return Ended()
    if cause == "recover" and needs(s, live) is None:
        s.leave_waiting(live)
        return Moot()
    if cause == "drain" and s.workers[record.selected].mode != "draining":
        return Moot()
    rested = record.held and record.acked == record.released
    if at_boundary and not rested:
        return NotYet()
    return None


def commit_create(s: Draft, live: str, create: Create, winner: str, operation: str) -> None:
    epoch = next_number(s, 0)
    s.listed |= {live}
    s.lives[live] = Live(
        digital_id=create.digital_id,
        room=create.room,
        priority=create.priority,
        immovable=create.immovable,
        fingerprint=create.fingerprint,
        metadata=create.metadata,
        config=create.config,
        labels=create.labels,
        epoch=epoch,
        issued=epoch,
        selected=winner,
        active=None,
        pull_no=0,
        controller="",
        state="open",
        current=Row(epoch, winner, "create", operation, s.now),
        created_at=s.now,
        idle_ms=create.idle_ms,
        max_ms=create.max_ms,
        seen=(0, s.now),
    )
    s.write_slot(winner, live, epoch, "starting")
    look_for_claim(s, live)


def commit(s: Draft, live: str, winner: str, operation: str, cause: Cause) -> None:
    """Commit in one step: the epoch advances, selected is set, active is cleared and the old slot departs."""
    record = s.lives[live]
    source, epoch, move = record.selected, record.epoch, record.move
    at_fault = blames(s, live, cause)
    reason = died_of(s, live)
    lost = f"{source}@{epoch}" if needs(s, live) == "lost" else ""
    reserved = move is not None and move.target == winner
    s.clear_move(live, slot=not reserved)
    if reserved and move is not None and move.number > max(s.cell.epoch_base, s.cell.epoch_floor):
        # The number was issued when the place was reserved, unless a term or a home has begun since: the commit may
        # have been made before, in a history that is lost.
        number, issued = move.number, record.issued
    else:
        number = issued = next_number(s, record.issued)
    if reserved and move is not None:
        s.write_slot(winner, live, number, "starting", was=move.number)
    elif winner == source:
        s.write_slot(winner, live, number, "starting", was=epoch)
    else:
        s.write_slot(winner, live, number, "starting")
    if winner != source:
        vacant = s.slot(source, live, epoch) == "vacant"
        s.write_slot(source, live, epoch, None if vacant else "departing")
    if at_fault and record.released > record.acked:
        blame_head(s, live, reason, lost)
    s.leave_waiting(live)
    record = s.lives[live]
    starts = record.starts + (record.active is None)
    if at_fault and starts >= s.limits.poison_max:
        fall_back(s, live, reason)
    s.set_live(
        live,
        epoch=number,
        issued=issued,
        selected=winner,
        active=None,
        pull_no=0,
        controller="",
        released=record.acked,
        at_boundary=record.at_boundary and record.released == record.acked,
        note=None,
        stalled=None,
        tries=0,
        starts=starts,
        forgot=False,
        current=Row(number, winner, cause, operation, s.now),
        history=(*record.history, record.current)[-s.limits.history_max :],
    )
    look_for_claim(s, live)


def look_for_claim(s: Draft, live: str) -> None:
    """Put the live on the agenda for when its claim is late, or for its lifetime if that is sooner."""
    late = s.now + s.limits.claim_wait_ms
    lifetime = lifetime_look_at(s.lives[live], s.now)
    s.look_at(live, late if lifetime is None else min(late, lifetime))

"""The steps that give a live its next generation: place, and before a planned move reserve, hold, cancel.

`place` is the only way to a new generation. Creating, reassigning, recovering, draining and rebalancing differ in
`because` alone (docs/protocol.md, tables a and b).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dhsched.ownership.draft import Draft
from dhsched.ownership.ending import finish
from dhsched.ownership.limits import Limits
from dhsched.ownership.needs import needs
from dhsched.ownership.outcomes import (
    Busy,
    Cancelled,
    CancelOutcome,
    Committed,
    Conflict,
    Ended,
    Full,
    Held,
    HoldOutcome,
    Moot,
    NoMove,
    NotFound,
    NotYet,
    PlaceOutcome,
    Refusal,
    Refused,
    Reserved,
    ReserveOutcome,
    Stale,
    Starting,
    Waiting,
)
from dhsched.ownership.poison import blame_head, blames, closes_with, died_of, drop_poison, fall_back, poisoned
from dhsched.ownership.state import Live, Move, Row, State
from dhsched.types import Because, Candidates, Equals, Generation


@dataclass(frozen=True, slots=True)
class Create:
    """What a new live is made of."""

    digital_id: str
    fingerprint: str
    room: str = ""
    metadata: bytes = b""
    config: bytes = b""
    priority: int = 1
    immovable: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """The Worker that takes the live, and the candidates that did not."""

    worker: str
    refusals: tuple[Refusal, ...]


def place(
    state: State,
    now: int,
    limits: Limits,
    *,
    live: str,
    operation: str,
    because: Because,
    expected: int = 0,
    create: Create | None = None,
    candidates: Candidates = (),
    pools: Sequence[str] = (),
    at_boundary: bool = False,
) -> tuple[State, PlaceOutcome]:
    """Commit the live's next generation on the first candidate, or the emptiest of equals, else in the named Pools."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if create is not None:
        if record is not None:
            return state, recreate(record, create)
    else:
        if record is None:
            return state, NotFound()
        refused = check(s, live, operation, because, expected, at_boundary)
        if refused is not None:
            return s.done(), refused
        if blames(s, live, because) and poisoned(record, limits) and closes_with(record):
            drop_poison(s, live, died_of(s, live))
            finish(s, live)
            return s.done(), Ended()
    found = admit(s, live, record, because, candidates, pools)
    if not isinstance(found, Admitted):
        if because == "recover" and pools:
            s.join_waiting(live, tuple(pools))
        elif because == "recover" and not candidates:
            s.leave_waiting(live)  # Nobody may take it as things are configured: it must not keep others out.
        return s.done(), found
    winner = found.worker
    s.set_budgets(winner)
    if create is not None:
        commit_create(s, live, create, winner, operation)
    else:
        commit(s, live, winner, operation, because)
    generation = s.lives[live].generation
    s.cell = replace(s.cell, placed=s.cell.placed + 1)
    return s.done(), Committed(generation, s.cell.rev, s.workers[winner].load, refusals=found.refusals)


def recreate(record: Live, create: Create) -> PlaceOutcome:
    """Create on an id that is taken: the same call once more is answered with its generation."""
    if record.state == "ended":
        return Ended()
    if record.fingerprint != create.fingerprint:
        return Conflict()
    return Committed(record.generation, rev=0, load=0, again=True)


def check(
    s: Draft, live: str, operation: str, because: Because, expected: int, at_boundary: bool
) -> PlaceOutcome | None:
    """Why this place must not go on, or None. Its order is the table's."""
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
    if because == "recover" and needs(s, live) is None:
        s.leave_waiting(live)
        return Moot()
    if because == "drain" and s.workers[record.selected].mode != "draining":
        return Moot()
    rested = record.held and record.acked == record.released
    if at_boundary and not rested:
        return NotYet()
    return None


def admit(
    s: Draft, live: str, record: Live | None, because: Because, candidates: Candidates, pools: Sequence[str]
) -> Admitted | Full | Starting | Waiting:
    """The first candidate that has room, of equals the emptiest; else the emptiest of each named Pool in turn."""
    refusals: list[Refusal] = []
    whys: set[Refused] = set()
    for candidate in candidates:
        winner, asked = None, candidate.workers if isinstance(candidate, Equals) else (candidate,)
        if isinstance(candidate, Equals) and not goes_after(s, because, candidate.pool):
            room = s.room.get(candidate.pool, {})
            winner = emptiest({worker: room[worker] for worker in asked if worker in room}, reach(s, because))
            if winner is not None:
                # Those without room are told of as well, so that a view which believes in them learns.
                asked = tuple(worker for worker in asked if worker not in room)
        for worker in asked:
            why = refuses(s, worker, record, because)
            if why is None and winner is None:
                return Admitted(worker, tuple(refusals))
            if why is not None:
                whys.add(why)
                known = s.workers.get(worker)
                refusals.append(Refusal(worker, why, known.load if known else 0, known.capacity if known else 0))
        if winner is not None:
            return Admitted(winner, tuple(refusals))
    for pool in pools:
        # Asked to leave, staying is not an answer; a live that lost its runtime may come back.
        left = None if record is None or because == "recover" else record.selected
        ordered = sorted(s.room.get(pool, {}).items(), key=lambda entry: (entry[1] < 0, entry[1], entry[0]))
        room = {worker: score for worker, score in ordered if worker != left}
        if room and goes_after(s, because, pool):
            whys.add("WAITING")
        elif room:
            winner = emptiest(room, reach(s, because))
            if winner is not None:
                return Admitted(winner, tuple(refusals))
            whys.add("STARTING")
    kind = Starting if "STARTING" in whys else Waiting if "WAITING" in whys else Full
    return kind(tuple(refusals))


def goes_after(s: Draft, because: Because, pool: str) -> bool:
    """A create goes after the lives that wait for room in the Pool."""
    return because == "create" and bool(s.waiting.get(pool))


def reach(s: Draft, because: Because) -> int:
    """How many start budgets a Worker may have reached and still start this live: the higher budget allows one."""
    create, recover = s.limits.starts_create_max, s.limits.starts_recover_max
    return int(recover > create if because == "recover" else create > recover)


def emptiest(room: Mapping[str, float], reach: int) -> str | None:
    """Of these entries of room:<pool>, the first with the lowest share among those within reach."""
    low, high = -min(reach, 1), max(reach, 1)
    shares = {worker: score % 1 for worker, score in room.items() if low <= score < high}
    return min(shares, key=shares.__getitem__) if shares else None


def refuses(s: Draft, worker: str, record: Live | None, because: Because) -> Refused | None:
    """Why the Worker cannot take the live, or None."""
    w = s.workers.get(worker)
    if w is None:
        return "UNKNOWN"
    if not w.placeable:
        return unplaceable(w.gone, w.lost, w.mode)
    if record is not None and (record.selected == worker or (record.move and record.move.target == worker)):
        return None  # It holds the live's slot, or its reservation: room is there already.
    if w.load >= w.capacity:
        return "FULL"
    if because == "create" and s.waiting.get(w.pool):
        return "WAITING"
    budget = s.limits.starts_recover_max if because == "recover" else s.limits.starts_create_max
    return "STARTING" if w.starting >= budget else None


def unplaceable(gone: bool, lost: bool, mode: str) -> Refused:
    if gone:
        return "GONE"
    if lost:
        return "LOST"
    if mode == "cordoned":
        return "CORDONED"
    return "DRAINING" if mode == "draining" else "NEW"


def next_number(s: Draft, issued: int) -> int:
    """A number that was never issued for this id, in this term or any before."""
    return max(issued, s.cell.epoch_base, s.cell.epoch_floor) + 1


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
        epoch=epoch,
        issued=epoch,
        selected=winner,
        active=None,
        pull_no=0,
        controller="",
        state="open",
        current=Row(epoch, winner, "create", operation, s.now),
    )
    s.write_slot(winner, live, epoch, "starting")
    s.look_at(live, s.now + s.limits.claim_wait_ms)


def commit(s: Draft, live: str, winner: str, operation: str, because: Because) -> None:
    """The epoch advances, selected is set, active is cleared and the old slot departs: one step."""
    record = s.lives[live]
    source, epoch, move = record.selected, record.epoch, record.move
    at_fault = blames(s, live, because)
    reason = died_of(s, live)
    lost = f"{source}@{epoch}" if needs(s, live) == "lost" else ""
    reserved = move is not None and move.target == winner
    s.clear_move(live, slot=not reserved)
    number = issued = next_number(s, record.issued)
    if reserved and move is not None and move.number > s.cell.epoch_floor:
        # The number was issued when the place was reserved, unless a new term has begun since.
        number, issued = move.number, record.issued
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
        current=Row(number, winner, because, operation, s.now),
        history=(*record.history, record.current)[-s.limits.history_max :],
    )
    s.look_at(live, s.now + s.limits.claim_wait_ms)


# -- planned moves


def reserve(
    state: State, now: int, limits: Limits, *, live: str, expected: int, candidates: Candidates
) -> tuple[State, ReserveOutcome]:
    """Set a place aside for a planned move, with the number its generation will have."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is None:
        return state, NotFound()
    if record.state == "ended":
        return state, Ended()
    if record.epoch != expected:
        return state, Stale(record.generation)
    if record.move is not None:
        return state, Reserved(record.move.target, record.move.number, again=True)
    cutovers = s.workers[record.selected].cutovers
    if cutovers >= limits.cutovers_max:
        return state, Busy(cutovers)
    refusals: list[Refusal] = []
    for worker in emptiest_first(s, record, candidates):
        w = s.workers.get(worker)
        why: Refused | None = None
        if w is None:
            why = "UNKNOWN"
        elif not w.placeable:
            why = unplaceable(w.gone, w.lost, w.mode)
        elif worker == record.selected or w.load >= w.capacity:
            why = "FULL"
        if why is None:
            number = next_number(s, record.issued)
            s.write_slot(worker, live, number, "reserved")
            s.set_live(live, issued=number)
            s.set_move(live, Move(worker, number, now + limits.move_expires_ms))
            s.look_by(live, now + limits.move_expires_ms)
            return s.done(), Reserved(worker, number, again=False)
        refusals.append(Refusal(worker, why, w.load if w else 0, w.capacity if w else 0))
    return state, Full(tuple(refusals))


def emptiest_first(s: Draft, record: Live, candidates: Candidates) -> list[str]:
    """The candidates one by one: the emptiest of equals that has room stands before the others."""
    ordered: list[str] = []
    for candidate in candidates:
        if isinstance(candidate, Equals):
            room = s.room.get(candidate.pool, {})
            # A reservation starts nothing, so budgets do not matter.
            best = emptiest({w: room[w] for w in candidate.workers if w in room and w != record.selected}, reach=2)
            ordered += [best] if best is not None else []
            ordered += [worker for worker in candidate.workers if worker != best]
        else:
            ordered.append(candidate)
    return ordered


def hold(state: State, now: int, limits: Limits, *, live: str, number: int) -> tuple[State, HoldOutcome]:
    """Stop input at the boundary it stands at, or at the next one it comes to."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is None or record.move is None or record.move.number != number:
        return state, NoMove()
    at = record.move.hold
    if not isinstance(at, int):
        at = record.released if rests(record) else "next"
        s.set_live(live, move=replace(record.move, hold=at))
    return s.done(), Held(at)


def rests(record: Live) -> bool:
    """Nothing is half said: input may stop right here. An interrupt that is next is not to be kept waiting."""
    unreleased = record.pending[record.released - record.acked :]
    interrupted = bool(unreleased) and unreleased[0][:1] in (b"I", b"J")
    return (record.at_boundary and not interrupted) or record.acked == record.appended


def cancel(state: State, now: int, limits: Limits, *, live: str, number: int) -> tuple[State, CancelOutcome]:
    """Give up the move with this number, and only that one."""
    s = Draft(state, now, limits)
    record = s.lives.get(live)
    if record is None or record.move is None or record.move.number != number:
        return state, NoMove()
    s.clear_move(live)
    return s.done(), Cancelled()

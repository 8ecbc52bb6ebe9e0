"""One representative for all states of a cell that differ only in time and counting.

Explored states must be finite in number. So every time in a state is set to one constant, and what only counts upwards
is set to zero. Nothing of that decides anything, once time is nondeterministic: a look is explored with its deadlines
past and not past (`aged`), a revision is compared with nothing but other revisions, and a position with nothing but
other positions (spec/failover.py keeps them).

What becomes what:
    cell        rev, placed, workers_issued, pos = 0; of the homes only the last one's name; term, epoch_base,
                epoch_floor and pull_base stay
    lives       current.cause, .operation and all times, history, controller, starts, tries, interrupted = their
                defaults: they choose waiting times and answers to repeated operations, or are only shown. created_at
                and seen = now, expired = none: a look is explored with the lifetime over and not over. note and stalled
                are dropped where they no longer equal the cursors: within a generation cursors never come back to an
                earlier value.
    workers     beat = 0 or 1, slots_rev = 0, lost_at = 0, link = "", pace = 1: limits are the same in every state
    changed, slot_revs   empty
    agenda      who is on it, at time 0: due. A look that comes too early changes nothing.
    waiting     who waits, all since the same time: who of them is woken first matters only to lives below the floor
    blame       empty: a boot that is cordoned at once is a boot and a cordon
Where two states have the same projection to the specification's variables, they must be equal after this in full:
`strict` worlds raise if not, so the projection loses nothing that could matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dhsched.ownership.state import Cell, Home, Live, Row, State, Worker, frozen

NOW = 10**9
LONG_AGO = -(10**15)
NEVER = 10**15


def canonical(state: State) -> State:
    """The representative of the states that are like this one."""
    return replace(
        state,
        cell=canonical_cell(state.cell),
        lives=frozen({name: canonical_live(record) for name, record in state.lives.items()}),
        workers=frozen({name: canonical_worker(record) for name, record in state.workers.items()}),
        changed=frozen({}),
        slot_revs=frozen({}),
        agenda=frozen({number: zeroed(entries) for number, entries in state.agenda.items()}),
        waiting=frozen({pool: frozen(dict.fromkeys(entries, 0.0)) for pool, entries in state.waiting.items()}),
        blame=frozen({}),
    )


def canonical_cell(cell: Cell) -> Cell:
    homes = (Home(cell.home, 0, 0),) if cell.homes else ()
    return Cell(cell.term, cell.epoch_base, cell.epoch_floor, pull_base=cell.pull_base, homes=homes)


def canonical_live(record: Live) -> Live:
    cursors = record.cursors
    return replace(
        record,
        controller="",
        current=Row(record.epoch, record.selected, "create", "", NOW),
        history=(),
        starts=0,
        tries=0,
        ended_at=NOW,
        created_at=NOW,
        seen=(record.appended, NOW),
        expired=None,
        interrupted=(0, 0),
        move=replace(record.move, expires=NEVER) if record.move else None,
        note=(cursors, NOW) if record.note and record.note[0] == cursors else None,
        stalled=cursors if record.stalled == cursors else None,
        producers=frozen({name: (n, seq, NOW) for name, (n, seq, _) in record.producers.items()}),
        recent=zeroed(record.recent),
    )


def canonical_worker(record: Worker) -> Worker:
    return replace(record, pace=1, beat=min(record.beat, 1), slots_rev=0, lost_at=0, link="")


def zeroed(times: Mapping[str, int]) -> Mapping[str, int]:
    return frozen(dict.fromkeys(times, 0))


def aged(
    state: State,
    live: str,
    *,
    expired: bool = False,
    ripe: bool = False,
    forgotten: bool = False,
    outlived: bool = False,
) -> State:
    """The same state, later: the live's move is over its time, its note is a full period old, its end long past, its
    lifetime over."""
    record = state.lives[live]
    if expired and record.move:
        record = replace(record, move=replace(record.move, expires=LONG_AGO))
    if ripe and record.note:
        record = replace(record, note=(record.note[0], LONG_AGO))
    if forgotten:
        record = replace(record, ended_at=LONG_AGO)
    if outlived:
        record = replace(record, created_at=LONG_AGO)
    return replace(state, lives=frozen({**state.lives, live: record}))

"""enter (planned): begin a home, so that no number of a history that may be lost is issued again.

A home is one uninterrupted time of one primary. A server that was promoted or restarted may have lost the end of its
history, and would issue the same numbers once more. `enter` is the first call of every connection that writes. On a
server whose name is not the one that its data carries, the numbers jump: base, pulls, Worker numbers and rev go on far
above anything that the history, or a lost end of it, has given out. The base is no floor: nothing restarts.

A jump makes numbers different, not ordered: nobody may conclude anything from a number of another home.

The product does not run this step yet: it is in no `STEPS`, and no script has it. `spec/Failover.tla` and
`spec/Homes.tla` are explored with it (docs/internals/protocol.md, "Homes (planned)").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dhsched.errors import BadValue
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.state import Cell, Home, State
from dhsched.types import NUMBER_MAX

HOMES_MAX = 64  # The oldest home is forgotten: what was told there counts as lost.
JUMP_MIN = 2**21  # A live may be 2^20 numbers above the base, and a lost end may have given out as many more.
JUMP_SPREAD = 2**28  # What a caller adds at random: two servers with the same past come to different numbers.


@dataclass(frozen=True, slots=True)
class Entered:
    """The home that is current now, and every one before it; `again` if it was current already."""

    home: str
    again: bool
    homes: tuple[Home, ...]


def enter(state: State, now: int, limits: Limits, *, server: str, jump: int) -> tuple[State, Entered]:
    """Make `server` the home, unless it is, and let every number jump."""
    s = Draft(state, now, limits)
    cell = s.cell
    if cell.home == server:
        return state, Entered(server, again=True, homes=cell.homes)
    base = max(cell.epoch_base, cell.epoch_floor) + jump
    if max(base, cell.rev + jump, cell.pull_base + jump) > NUMBER_MAX - JUMP_MIN:
        raise BadValue(f"the numbers of home {server} would not fit: {base} is too close to {NUMBER_MAX}")
    s.cell = replace(
        cell,
        epoch_base=base,
        pull_base=cell.pull_base + jump,
        workers_issued=max(cell.workers_issued, cell.epoch_floor) + jump,
        rev=cell.rev + jump,
        homes=(*cell.homes, Home(server, cell.rev, now))[-HOMES_MAX:],
    )
    return s.done(), Entered(server, again=False, homes=s.cell.homes)


def is_home(cell: Cell, *, greeted: str, server: str | None = None) -> bool:
    """Whether a call may run: it names the home that its connection greeted, and that is the cell's.

    `server` is what INFO says inside the script, for steps that compare it: a connection outlives the demotion and the
    next promotion of its server, and the data may then be those of another, with its home not yet entered.
    """
    return greeted == cell.home and server in (None, cell.home)


def survives(homes: Sequence[Home], home: str, rev: int) -> bool:
    """Whether a history with these homes has what somebody was told in `home` when the revision was `rev`."""
    for place, row in enumerate(homes):
        if row.name == home:
            return all(rev <= later.rev for later in homes[place + 1 : place + 2])
    return False

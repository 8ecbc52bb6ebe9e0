"""enter: begin a home, so that no number of a history that may be lost is issued again.

A home is one uninterrupted time of one primary. A server that was promoted or restarted may have lost the end of its
history, and would issue the same numbers once more. `enter` is the first call of every connection that writes. On a
server whose name is not the one that its data carries, the numbers jump: base, pulls, Worker numbers and rev go on far
above anything that the history, or a lost end of it, has given out. The base is no floor: nothing restarts.

A jump makes numbers different, not ordered: nobody may conclude anything from a number of another home.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dhsched.errors import BadValue
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.outcomes import Entered
from dhsched.ownership.state import Cell, Home, State
from dhsched.types import NUMBER_MAX

HOMES_MAX = 64  # The oldest home is forgotten: what was told there counts as lost.
JUMP_MIN = 2**21  # A live may be 2^20 numbers above the base, and a lost end may have given out as many more.
JUMP_SPREAD = 2**28  # What a caller adds at random: two servers with the same past come to different numbers.
NAMELESS = "none"
"""The name of a server that does not tell one. Its restarts are not noticed, so the first connection of each process
makes the numbers jump instead."""


def enter(
    state: State, now: int, limits: Limits, *, server: str, jump: int, first: bool = False
) -> tuple[State, Entered]:
    """Make `server` the home, unless it is, and let every number jump. `first` is the caller's first connection.

    A caller that has never entered anything begins an empty cell at 1. Whoever remembers a cell that is empty now makes
    the numbers jump; and where nobody does, its secrets are gone with it, and every token is void.
    """
    s = Draft(state, now, limits)
    cell = s.cell
    if first and cell == Cell():
        jump = 0
    if cell.home == server and not (first and server == NAMELESS):
        return state, Entered(server, again=True, pos=cell.pos, homes=cell.homes)
    base = max(cell.epoch_base, cell.epoch_floor) + jump
    issued = max(cell.workers_issued, cell.epoch_floor) + jump
    if max(base, issued, cell.rev + jump, cell.pull_base + jump) > NUMBER_MAX - JUMP_MIN:
        raise BadValue(f"the numbers of home {server} would not fit: {base} is too close to {NUMBER_MAX}")
    s.cell = replace(
        cell,
        epoch_base=base,
        pull_base=cell.pull_base + jump,
        workers_issued=issued,
        rev=cell.rev + jump,
        homes=(*cell.homes, Home(server, cell.pos, now))[-HOMES_MAX:],
    )
    return s.done(), Entered(server, again=False, pos=cell.pos, homes=s.cell.homes)


def is_home(cell: Cell, *, greeted: str, server: str | None = None) -> bool:
    """Whether a call may run: it names the home that its connection greeted, and that is the cell's.

    `server` is what INFO says inside the script, for steps that compare it: a connection outlives the demotion and the
    next promotion of its server, and the data may then be those of another, with its home not yet entered.
    """
    return greeted == cell.home and server in (None, cell.home)


def survives(homes: Sequence[Home], home: str, told: int, pos: int) -> bool:
    """Whether a history with these homes, now at `pos`, has what somebody was told in `home` at position `told`."""
    return any(kept(homes, row, told, pos) == told for row in homes if row.name == home)


def kept(homes: Sequence[Home], home: Home, told: int, pos: int) -> int:
    """The highest position, up to `told`, that a history with these homes has of `home`; -1 if it has nothing of it.

    A slot of a cluster that comes back to a node begins another home of the same name. A connection that did not notice
    that the slot was away goes on in the later home, so `told` may be a position there.
    """
    if home not in homes:
        return -1
    ends = [*(row.pos for row in homes[1:]), pos]
    times = [(row, end) for row, end in zip(homes, ends, strict=True) if row.name == home.name]
    return max((min(told, end) for row, end in times if home.pos <= row.pos <= told), default=told)

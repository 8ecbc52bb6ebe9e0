"""Plans which lives change their Worker to make a Pool even: loads in, moves out (paper, 6.2).

A move goes from the fullest Worker that can give to the one that would be the least full after taking, each measured as
a share of its capacity, and only if the giver is still at least as full as the taker afterwards. So within one plan,
and between plans made from what the last one left, no Worker both gives and takes: nothing ever moves back. Moves begin
only when the gap is wider than `spread` and go on until the gap is half as wide: few moves, seldom, instead of one for
every live that comes or goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

STOP_SHARE = 0.5  # Moves stop when the gap is this share of the spread at which they began.


@dataclass(frozen=True, slots=True)
class Holding:
    """One placeable Worker of the Pool: its load once the moves under way are done."""

    load: int
    capacity: int
    movable: int
    """Number of its lives that may be moved."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Move this many lives from one Worker to another."""

    source: str
    target: str
    lives: int


def advise(
    workers: Mapping[str, Holding], *, spread: float, under_way: bool = False, moves_max: int = 1_000
) -> list[Advice]:
    """Return the fewest moves, in order, after which no more are advised; at most `moves_max` of them.

    `under_way`: moves have begun and are not done, because only some of them could be made at a time.
    """
    loads = {name: holding.load for name, holding in workers.items()}
    movable = {name: holding.movable for name, holding in workers.items()}
    moves: dict[tuple[str, str], int] = {}
    begin, stop = spread, spread * STOP_SHARE
    for count in range(moves_max):
        pair = widest(workers, loads, movable)
        if pair is None or pair[2] <= (stop if count or under_way else begin):
            break
        source, target, _ = pair
        loads[source], loads[target] = loads[source] - 1, loads[target] + 1
        movable[source] -= 1
        moves[source, target] = moves.get((source, target), 0) + 1
    return [Advice(source, target, lives) for (source, target), lives in moves.items()]


def widest(
    workers: Mapping[str, Holding], loads: Mapping[str, int], movable: Mapping[str, int]
) -> tuple[str, str, float] | None:
    """Return the giver, the taker, and how much fuller the giver is than the taker would be; None if none should."""
    takers = [name for name, holding in workers.items() if loads[name] < holding.capacity]
    if not takers:
        return None
    target = min(takers, key=lambda name: ((loads[name] + 1) / workers[name].capacity, name))
    taken = (loads[target] + 1) / workers[target].capacity
    givers = [
        name
        for name, holding in workers.items()
        if name != target and movable[name] > 0 and (loads[name] - 1) / holding.capacity >= taken
    ]
    if not givers:
        return None
    source = max(givers, key=lambda name: (loads[name] / workers[name].capacity, name))
    return source, target, loads[source] / workers[source].capacity - taken

"""Which lives should change their Worker so that a Pool is even again: loads in, moves out (paper, 6.2).

A move goes from the fullest Worker that can give to the one that would be the least full after taking, each measured as
a share of its capacity, and only if the giver is still at least as full as the taker afterwards. So within one plan,
and between plans made from what the last one left, no Worker both gives and takes: nothing ever moves back. It begins
only when the gap is wider than `spread` and goes on until it is half as wide: few moves, seldom, instead of one for
every live that comes or goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

STOP_SHARE = 0.5  # Of the spread at which it begins: where it is even enough.


@dataclass(frozen=True, slots=True)
class Holding:
    """One placeable Worker of the Pool: what it will hold once the moves under way are done."""

    load: int
    capacity: int
    movable: int
    """Lives of it that may be asked to leave."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Move this many lives from one Worker to another."""

    source: str
    target: str
    lives: int


def advise(
    workers: Mapping[str, Holding], *, spread: float, under_way: bool = False, moves_max: int = 1_000
) -> list[Advice]:
    """The fewest moves, in order, after which no more are advised; at most `moves_max` of them.

    `under_way`: it has begun and is not done, because only some of the moves could be made at a time.
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
    """Who should give to whom, and how much fuller the giver is than the taker would be; None where nobody should."""
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

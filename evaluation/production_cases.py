"""The cases of the production replay, and what they share: lives, rates and losses, all fixed here (production.py)."""

from __future__ import annotations

from dataclasses import dataclass

DAY = {"creates": 125_728, "pushes": 18_470_000, "migrations": 9_927, "moves": 2_040, "losses": 51}
PEAK = 49_987
PAPER_P99_MS = {"create": 98.3, "select": 9.9, "push": 16.5}
CAPACITY = 206
BIG_HOSTS, BIG_HOST_WORKERS = 4, 51
SMALL_HOSTS, SMALL_HOST_WORKERS = 17, 3
RUNS = 3
PUSHES = 200_000  # A run: of a day's 51 losses, 0.55 fall on so many pushes.
LOSS_S = 5.0  # So long after a kill is with a loss: it is noticed, its lives start elsewhere, the host is forked anew.
ROLES = ("store", "dispatch", "infer", "workers", "load")


@dataclass(frozen=True, slots=True)
class Case:
    """A rate of pushes, and the hosts that are killed: each has three Workers."""

    per_s: int
    hosts_lost: int


CASES = {
    "day": Case(640, 1),  # As many losses as fall on so many pushes of the day: one host.
    "losses": Case(640, SMALL_HOSTS),  # All losses of the day.
    "dense": Case(1_667, 0),
    "cost": Case(500, 0),  # And the upkeep of idle lives before.
}

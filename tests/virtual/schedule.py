"""Schedules of faults: drawn from a seed, written down, read back. Pure, and nothing of the product is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Self

MEANS_S = (8.0, 15.0, 30.0, 40.0)  # Between two faults, one of these for a seed: 90 to 450 an hour, which overlap.
SMALL_MEAN_S = 150.0  # In a small deployment there are times in which nothing happens.
FOR_S = (0.2, 20.0)
KINDS = {
    "kill-worker": 10,
    "stop-worker": 4,
    "freeze-worker": 8,
    "kill-replica": 6,
    "freeze-replica": 3,
    "kill-controller": 6,
    "freeze-controller": 4,
    "cut": 8,
    "cut-one-way": 4,
    "half-open": 6,
    "slow": 5,
    "store-pause": 5,
    "store-clock": 4,
    "store-forget": 3,
    "store-promote": 3,
    "store-full": 3,
    "store-move": 2,
    "kill-room": 2,
    "freeze-room": 2,
}
"""How often each kind comes, beside the others."""
AIMED = {"part-worker": 16, "lose-store": 5, "store-forget": 8}
"""Kinds of a dense seed beside those: what seldom meets anything in a schedule that is spread evenly."""
DENSE_KINDS = {**KINDS, **AIMED}
EXTRA = {"block-worker": 2, "duplicate": 2, "forget-twice": 1, "forget-apart": 1}
"""Kinds that are drawn by a generator of their own, so that the other faults of a seed are what they were without."""
CELL_KINDS = {"lose-cell": 6, "lose-store": 5}
"""Kinds of a run with several cells, beside the others."""
CELLS_MEANS_S = (15.0, 30.0, 45.0)  # There faults are fewer, so that one cell is away and nothing else is wrong.
EXTRA_TIMES = 8  # The mean time between two of them is so many times that between two others.
EXTRA_SHARE = 0.5  # Of bursts that have one.
EVERY_KIND = tuple({**DENSE_KINDS, **EXTRA, **CELL_KINDS})
FOCUS = "focus"
"""Aims what follows at one live: its Worker is chosen wherever a Worker is, and its application acts."""
BURST_MEAN_S = 18.0  # Between two bursts of a dense seed.
BURST_FAULTS = (2, 3, 4, 5, 6)
BURST_KINDS = 3  # Of one burst: so the same fault comes again and again, or two meet.
BURST_S = 12.0  # All faults of a burst begin within this time, or
FOCUS_S = (5.0, 45.0)  # within half of this one, if that is longer: three losses of a Worker take half a minute.


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of a schedule: at `at_s`, for `for_s` seconds; `one` and `other` choose among what there is."""

    at_s: float
    kind: str
    one: int
    other: int
    for_s: float

    def __str__(self) -> str:
        return f"{self.at_s:10.3f} {self.kind:18} {self.one:4} {self.other:4} {self.for_s:8.3f}"

    @classmethod
    def read(cls, row: str) -> Self:
        """A row of a schedule, as `str` writes it."""
        at_s, kind, one, other, for_s = row.split()
        if kind not in (*EVERY_KIND, FOCUS):
            raise ValueError(f"a schedule names the fault {kind}: there are {', '.join((*EVERY_KIND, FOCUS))}")
        return cls(float(at_s), kind, int(one), int(other), float(for_s))


def is_dense(seed: int, swarm: str) -> bool:
    """Return whether a seed of a swarm is dense: every other one, if the swarm leaves it to the seed."""
    return swarm == "dense" or (swarm in ("any", "cells") and Random(f"dense {seed}").random() < 0.5)


def draw_faults(seed: int, hours: float, swarm: str = "any") -> list[Fault]:
    """Return the schedule of a seed."""
    more = CELL_KINDS if swarm == "cells" else {}
    if is_dense(seed, swarm):
        return draw_bursts(seed, hours, {**DENSE_KINDS, **more})
    r = Random(f"faults {seed}")
    mean_s = SMALL_MEAN_S if swarm == "small" else r.choice(CELLS_MEANS_S if more else MEANS_S)
    found = draw_evenly(r, hours, mean_s, {**KINDS, **more})
    found += draw_evenly(Random(f"extra {seed}"), hours, EXTRA_TIMES * mean_s, EXTRA)
    return sorted(found, key=lambda fault: fault.at_s)


def draw_evenly(r: Random, hours: float, mean_s: float, kinds: Mapping[str, int]) -> list[Fault]:
    """Return faults that are spread over the whole run."""
    found, at = list[Fault](), 0.0
    while (at := at + r.expovariate(1 / mean_s)) < hours * 3600:
        found.append(drawn(r, at, r.choices([*kinds], [*kinds.values()])[0]))
    return found


def draw_bursts(seed: int, hours: float, among: Mapping[str, int] = DENSE_KINDS) -> list[Fault]:
    """Return the schedule of a dense seed: a few faults of few kinds within seconds, aimed at one live, and a rest."""
    r, found, at = Random(f"bursts {seed}"), list[Fault](), 0.0
    extra = Random(f"extra {seed}")
    while (at := at + r.expovariate(1 / BURST_MEAN_S)) < hours * 3600:
        focus_s = r.uniform(*FOCUS_S)
        found.append(drawn(r, at, FOCUS, focus_s))
        kinds = r.choices([*among], [*among.values()], k=BURST_KINDS)
        for _ in range(r.choice(BURST_FAULTS)):
            begins = at + r.uniform(0.0, max(BURST_S, focus_s / 2))
            if begins < hours * 3600:
                found.append(drawn(r, begins, r.choice(kinds)))
        if extra.random() < EXTRA_SHARE and (begins := at + extra.uniform(0.0, BURST_S)) < hours * 3600:
            found.append(drawn(extra, begins, extra.choices([*EXTRA], [*EXTRA.values()])[0]))
    return sorted(found, key=lambda fault: fault.at_s)


def drawn(r: Random, at: float, kind: str, for_s: float = 0.0) -> Fault:
    return Fault(round(at, 3), kind, r.randrange(1000), r.randrange(1000), round(for_s or r.uniform(*FOR_S), 3))


def written(faults: Iterable[Fault]) -> str:
    """A schedule as text, a row each."""
    return "".join(f"{fault}\n" for fault in faults)


def read(text: str) -> list[Fault]:
    return [Fault.read(row) for row in text.splitlines() if row.strip() and not row.startswith("#")]

"""What one seed decides about its run: sizes, limits, delays and settings. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from dhsched.infer.settings import InferSettings
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.settings import DispatchSettings
from dhsched.worker.settings import WorkerSettings
from tests.chaos.limits import CHAOS_LIMITS
from tests.virtual.schedule import is_dense


@dataclass(frozen=True, slots=True)
class Swarm:
    """The deployment of one seed. `capacity` is of each Worker."""

    replicas: int
    controllers: int
    pools: tuple[int, ...]
    """Workers of each Pool."""
    capacity: int
    lives: int
    credit: int
    limits: Limits
    delay_s: tuple[float, float]
    push_mean_s: float
    worker_ttl_s: float
    cut_over_s: float
    recover_s: float
    refresh_max_s: float
    drain_s: float
    """How long a Worker that is stopped waits for its lives to move."""
    teardown_s: float
    numbers_from: int = 0
    """Every epoch is above this number."""
    rooms: int = 0
    keys: bool = False
    small: bool = False
    dense: bool = False
    """Faults come in bursts, and what applications do comes soon after another: see `schedule.py` and `load.py`."""
    cells: int = field(default=1, repr=False)  # The trace of a run with one cell has no word of cells.
    one_address: bool = field(default=False, repr=False)
    """Whether applications know Dispatch alone, which passes their input on to the controllers."""

    @property
    def workers(self) -> int:
        return sum(self.pools)

    @property
    def cell_names(self) -> tuple[str, ...]:
        """The names of the cells, where there are several; the only one has none."""
        return CELL_NAMES[: self.cells] if self.cells > 1 else ("",)


LIVES_MAX, DENSE_LIVES_MAX = 8, 4
CELL_NAMES = ("a", "b", "c")
CELL_CAPACITY = 12  # All lives may fall into one cell, where one Worker may be left.
SMALL_CAPACITY = 200  # A small fleet has room for a crowd (`probes.py`).
MIDDLE = Limits(claim_wait_ms=5_000, ack_wait_ms=10_000, backoff_max_ms=60_000, move_expires_ms=30_000, reap_ms=120_000)
"""Between the limits of chaos, which a storm of seconds meets, and the product's own."""


def draw_any(seed: int) -> Swarm:
    """Return the deployment of a seed, which is dense or plain."""
    return draw_dense(seed) if is_dense(seed, "any") else draw(seed)


def draw_dense(seed: int) -> Swarm:
    """Return the deployment of a dense seed. There are few lives, so that faults meet; waits are short, so that what
    begins in a burst is over in the run; and half of these seeds have a room."""
    r, plain = Random(f"dense swarm {seed}"), draw(seed)
    pools = r.choice([(3,), (4,), (2, 2)])
    return replace(
        plain,
        pools=pools,
        controllers=r.choice([1, 2]),
        lives=min(DENSE_LIVES_MAX, (sum(pools) - 2) * plain.capacity),
        push_mean_s=r.choice([6.0, 12.0]),
        limits=r.choice([CHAOS_LIMITS, CHAOS_LIMITS, CHAOS_LIMITS, MIDDLE]),
        rooms=r.choice([0, 1]),
        dense=True,
    )


def draw(seed: int) -> Swarm:
    """Return the deployment of a plain seed."""
    r = Random(f"swarm {seed}")
    pools = r.choice([(4,), (4,), (2, 2), (3, 1), (6,), (3,)])
    capacity = r.choice([3, 4, 6])
    # One Worker may be gone and another one cordoned, and there is a slot for every live yet.
    lives = min(LIVES_MAX, max(1, (sum(pools) - 2) * capacity))
    return Swarm(
        replicas=r.choice([1, 2, 2, 3]),
        controllers=r.choice([1, 2, 2]),
        pools=pools,
        capacity=capacity,
        lives=lives,
        credit=r.choice([1, 4, 8, 16]),
        limits=r.choice([DEFAULT_LIMITS, DEFAULT_LIMITS, MIDDLE, CHAOS_LIMITS]),
        delay_s=r.choice([(0.0001, 0.001), (0.0005, 0.01), (0.001, 0.05)]),
        # The fewer lives there are, the more each is pushed to: an hour has more than a thousand pushes in every seed.
        push_mean_s=r.choice([12.0, 20.0, 32.0]) * lives / LIVES_MAX,
        worker_ttl_s=r.choice([3.0, 3.0, 6.0]),
        cut_over_s=r.choice([0.1, 0.5]),
        recover_s=r.choice([0.2, 0.5, 1.0]),
        refresh_max_s=r.choice([1.0, 2.0]),
        drain_s=20.0,
        teardown_s=5.0,
        numbers_from=r.choice([0, 0, 10**14]),
        rooms=r.choice([0, 0, 0, 1]),
        keys=r.choice([False, False, True]),
    )


def draw_cells(seed: int) -> Swarm:
    """Return a deployment of several cells: a dense or a plain one, with at least two Workers for each cell."""
    r = Random(f"cells {seed}")
    cells = r.choice([2, 2, 3])
    return replace(
        draw_dense(seed) if is_dense(seed, "cells") else draw(seed),
        cells=cells,
        replicas=r.choice([1, 2, 2]),
        controllers=r.choice([1, 2]),
        pools=r.choice([(2 * cells,), (2 * cells + 1,), (cells, cells)]),
        capacity=CELL_CAPACITY,
        one_address=r.choice([False, True]),
    )


def draw_small(seed: int) -> Swarm:
    """Return a deployment of few processes for long runs. Every limit and setting has its default value."""
    r = Random(f"small {seed}")
    return Swarm(
        replicas=r.choice([1, 1, 2]),
        controllers=1,
        pools=r.choice([(2,), (1, 1)]),
        capacity=SMALL_CAPACITY,
        lives=r.choice([2, 3]),
        credit=default_of(InferSettings, "credit"),
        limits=DEFAULT_LIMITS,
        delay_s=r.choice([(0.0001, 0.001), (0.0005, 0.01)]),
        push_mean_s=r.choice([60.0, 90.0]),
        worker_ttl_s=default_of(DispatchSettings, "worker_ttl_s"),
        cut_over_s=default_of(DispatchSettings, "cut_over_s"),
        recover_s=default_of(DispatchSettings, "recover_s"),
        refresh_max_s=default_of(DispatchSettings, "refresh_max_s"),
        drain_s=default_of(WorkerSettings, "drain_s"),
        teardown_s=default_of(WorkerSettings, "teardown_s"),
        small=True,
    )


def default_of(kind: type[Any], name: str) -> Any:
    """Return the default value of a setting."""
    return kind.__dataclass_fields__[name].default


SWARMS = {"any": draw_any, "plain": draw, "dense": draw_dense, "small": draw_small, "cells": draw_cells}

"""For each mutant a run that finds it: a seed, hours, a schedule, a judge. Without the mutant the run finds nothing.

`one` and `other` of a cut choose among the hosts: replicas, controllers, Workers, rooms, the store, in this order;
`other` among those that `one` has left.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.virtual.schedule import EXTRA, Fault, draw_faults


class Case(NamedTuple):
    """A run that finds a mutant."""

    judge: str
    seed: int
    hours: float
    faults: tuple[Fault, ...] = ()
    swarm: str = "plain"


def cuts(at_s: float, pairs: list[tuple[int, int]], for_s: float) -> tuple[Fault, ...]:
    return tuple(Fault(at_s, "cut", one, other, for_s) for one, other in pairs)


def drawn_faults(seed: int, hours: float, swarm: str) -> tuple[Fault, ...]:
    """The schedule of a seed as it was when its run was found: without the kinds that came later."""
    return tuple(fault for fault in draw_faults(seed, hours, swarm) if fault.kind not in EXTRA)


PAUSES = tuple(Fault(8.0 + 16 * n, "store-pause", 0, 0, 13.0) for n in range(6))
"""Answers are lost, so requests are repeated."""
KILLS = (
    Fault(8.0, "kill-worker", 0, 0, 2.0),
    Fault(20.0, "kill-worker", 1, 0, 2.0),
    Fault(30.0, "freeze-worker", 2, 0, 9.0),
    Fault(45.0, "kill-worker", 3, 0, 2.0),
    Fault(55.0, "kill-controller", 0, 0, 2.0),
)
FORGETS = tuple(
    fault
    for at_s in (15.0, 60.0, 105.0)
    for fault in (
        Fault(at_s, "store-forget", 0, 0, 5.0),
        *cuts(at_s + 4.5, [(worker, 1) for worker in (2, 3, 4, 5)], 12.0),
    )
)
"""The store forgets while Workers cannot pull: when they can again, it has as many items, but others."""
UNKNOWN_EPOCHS = (
    Fault(5.0, "store-forget", 0, 0, 5.0),
    Fault(6.0, "kill-worker", 0, 0, 15.0),
    *cuts(9.5, [(worker, 0) for worker in (3, 4, 5)], 3.0),
    Fault(9.6, "kill-controller", 0, 0, 0.2),
)
"""A live is placed anew, the store forgets it, and the runtime pulls again before it has heard of it."""
STOP_ALONE = (
    *(Fault(20.0 + n / 10, "kill-worker", n, 0, 300.0) for n in (1, 2, 3)),
    Fault(21.0, "stop-worker", 0, 0, 1.0),
)
"""A Worker is asked to end when its lives have nowhere to go."""
FREEZES = tuple(Fault(10.0 + 5 * n, "freeze-worker", n % 4, 0, 7.0) for n in range(40))
CELL = 100  # The hundreds of the numbers of a fault of the store choose the cell.
CELLS_AWAY = (Fault(8.0, "lose-cell", CELL, 0, 8.0), Fault(38.0, "lose-cell", 0, 0, 8.0))
"""First the second cell and then the first one has no store for 24 s."""
BOOTS_FORGOTTEN = (
    *(Fault(8.0, "kill-worker", n, 0, 60.0) for n in (1, 3)),
    *(Fault(8.0, "kill-worker", n, 0, 1.0) for n in (0, 2)),
    Fault(8.5, "store-forget", CELL, 0, 5.0),
)
"""A cell forgets the boots of Workers that run lives, while the lives of another cell wait for a Worker."""

CASES = {
    "request-id-ignored": Case("ledger", 40, 0.03, PAUSES),
    "journal-not-read": Case("state", 40, 0.02, KILLS),
    "configuration-not-read": Case("configuration", 40, 0.02, KILLS),
    "stopped-worker-stays": Case("waits", 40, 0.055, STOP_ALONE),
    "watchdog-is-not-heard": Case("blocked", 40, 0.025, (Fault(60.0, "block-worker", 0, 0, 8.0),)),
    "handshake-without-end": Case(
        "waits", 40, 0.05, tuple(Fault(20.0, "freeze-controller", n, 0, 145.0) for n in (0, 1))
    ),
    "nobody-recovers": Case("stands", 40, 0.02, KILLS),
    "get-remembers": Case("answers", 2, 0.01),
    "counts-without-marks": Case("ledger", 40, 0.04, FORGETS),
    "scripts-run-on-a-moving-slot": Case("model", 40, 0.005, (Fault(6.0, "store-move", 0, 0, 1.5),)),
    "pull-begins-a-term": Case("terms", 40, 0.008, UNKNOWN_EPOCHS),
    "numbers-of-fourteen-digits": Case("model", 3, 0.01),
    "controller-is-never-left": Case("stands", 37, 0.05, cuts(10.0, [(1, 6)], 170.0)),
    "interrupt-is-progress": Case("hang", 103, 0.12),
    "forgiven-at-the-claim": Case("generations", 42, 0.1),
    "configuration-stays": Case("generations", 91, 0.12),
    "configuration-is-a-proof": Case("generations", 714849, 0.08, drawn_faults(714849, 0.08, "dense"), swarm="dense"),
    "loss-is-said-once": Case("ledger", 3144, 0.05, drawn_faults(3144, 0.05, "dense"), swarm="dense"),
    "silence-is-death": Case("poison", 40, 0.055, FREEZES),
    "room-shows-ended-lives": Case("room", 383, 0.061, cuts(124.4, [(3, 0), (3, 1)], 75.0)),
    "room-forgets-the-highest": Case("room", 383, 0.01, cuts(12.0, [(2, 0), (2, 1)], 12.0)),
    "nobody-leaves-the-line": Case(
        "waits", 9894, 0.14, tuple(Fault(20.0 + n / 10, "kill-worker", n, 0, 60.0) for n in range(4))
    ),
    "create-in-another-cell": Case("cells", 6, 0.005, swarm="cells"),
    "registers-while-stopping": Case("cells", 6, 0.01, BOOTS_FORGOTTEN, swarm="cells"),
    "waits-for-every-cell": Case("beside", 6, 0.018, CELLS_AWAY, swarm="cells"),
    "configuration-is-not-copied": Case("cells", 6, 0.005, swarm="cells"),
}

"""What a runtime of a small run does at its worst: it writes too much, starts too slowly, or does not stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from dhsched.errors import BadValue
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.worker import Session
from tests.virtual.loop import NODE
from tests.virtual.passed import Passed

MUCH, LONG, STUBBORN = "much", "long", "stubborn"
"""Texts that begin so make a runtime write much, or long lines, or hold out against everybody."""
SLOW, SLOW_MOVE, CROWD = "default/P-slow-", "default/P-slowmove-", "default/P-crowd-"
"""Lives whose runtimes are slow to start: the first one takes SLOW_S, or all but the first do, or each a little."""
SLOW_S = 340.0
CROWD_S = (0.3, 3.0)
STUBBORN_S = 800.0
ENTRY_BYTES = 60_000
LINES = 320


def start_s(live: str, generations: int, r: Random) -> float:
    """Return how long the runtime of a live takes to start; `generations` is how many there were, with this one."""
    if live.startswith(CROWD):
        return r.uniform(*CROWD_S)
    slow = (live.startswith(SLOW) and generations == 1) or (live.startswith(SLOW_MOVE) and generations > 1)
    return SLOW_S if slow else 0.0


async def write_much(session: Session, text: str, passed: Passed) -> None:
    """Write more than is kept. What is refused leaves what was there before."""
    journal = await session.journal()
    try:
        session.state = "x" * (DEFAULT_LIMITS.state_bytes_max + 1)
    except BadValue:
        passed.mark("state_bytes_max")
    for name, entries in (
        ("journal_entries_max", [0] * (DEFAULT_LIMITS.journal_entries_max + 1)),
        ("journal_bytes_max", ["x" * ENTRY_BYTES] * (DEFAULT_LIMITS.journal_bytes_max // ENTRY_BYTES + 1)),
    ):
        try:
            journal.replace(entries)
        except BadValue:
            passed.mark(name)
    for n in range(LINES):
        session.log("x" * 400 if text.startswith(LONG) else f"{n}")
        session.emit("much", {"n": n, "text": "x" * 200 if text.startswith(LONG) else ""})
        if n % 32 == 31:
            await session.emits_stored()


async def hold_out(session: Session, passed: Passed, now: Callable[[], float]) -> None:
    """Do not stop for STUBBORN_S, whoever asks, unless the process is dead."""
    node, until = NODE.get(), now() + STUBBORN_S
    while now() < until:
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            if node is None or node.dead:
                raise
            if session.stopping.is_set():
                passed.mark("worker.teardown_s")

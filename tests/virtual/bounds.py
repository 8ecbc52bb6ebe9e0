"""Judges of what the product must do by itself, and of what it must not do: whatever the faults are.

`stands`: a live with input makes progress within the product's own limits. `terms`: only an operator begins a term, and
only a probe of a small run is one. `poison`: an item is not dropped because Workers were silent for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dhsched.ownership.draft import Draft
from dhsched.ownership.needs import needs
from dhsched.ownership.state import State
from tests.virtual.loop import VirtualLoop
from tests.virtual.swarm import Swarm

MARGIN_S = 120.0  # Beside the product's own limits: for a recovery that finds its store or its Workers away.
CELLS_MARGIN_S = 180.0  # Beside it with several cells: a store is away for longer, and Workers come from elsewhere.


def standstill_max_s(swarm: Swarm) -> float:
    """Return how long a live with input may make no progress: it is noticed, placed anew, and claimed; and its Worker
    may be stopping, with nowhere to move the live to."""
    limits = swarm.limits
    noticed_ms = 2 * limits.ack_wait_ms + 2 * limits.claim_wait_ms + 2 * limits.backoff_max_ms
    return noticed_ms / 1000 + swarm.drain_s + MARGIN_S + (CELLS_MARGIN_S if swarm.cells > 1 else 0.0)


class Bounds:
    """See the module. `wrong` takes a violation."""

    def __init__(self, loop: VirtualLoop, swarm: Swarm, wrong: Callable[[str], None]) -> None:
        self._loop, self._limits, self._wrong = loop, swarm.limits, wrong
        self._most_s = standstill_max_s(swarm)
        self._standing: dict[str, tuple[Any, float]] = {}
        """Lives with input: what was acked, and since when it is so."""
        self._ends: dict[tuple[str, int], list[tuple[bool, str]]] = {}
        """By live and item at its head, of each generation that ended over it: was it only silent, and where. A store
        that is set back has an earlier item at the head again, with the generations that had ended over it then."""
        self._term = 1
        self._asked = False

    def operator_asks(self) -> None:
        """An operator asks for another term: one may begin."""
        self._asked = True

    def look(self, state: State) -> None:
        """Look at every live. This is called every few seconds."""
        now, standing = self._loop.now, dict[str, tuple[Any, float]]()
        for live, record in state.lives.items():
            if record.state == "ended" or record.acked == record.appended:
                continue
            # An item over which a generation has ended is tried again, a bounded number of times: then it is poison.
            at_item = (record.acked, record.suspect)
            acked, since = self._standing.get(live, ((-1, None), now))
            standing[live] = (at_item, since if acked == at_item else now)
            if acked == at_item and now - since > self._most_s:
                at = f"{record.selected}@{record.epoch}, active {record.active}, tries {record.tries}"
                self._wrong(f"stands: {live} acked nothing after item {record.acked} for {now - since:.0f} s ({at})")
                standing[live] = (at_item, now)
        self._standing = standing
        if state.cell.term != self._term:
            if not self._asked:
                self._wrong(f"terms: term {state.cell.term} has begun, and no operator has asked for it")
            self._term, self._asked = state.cell.term, False

    def on_recovery(self, before: State, after: State, live: str, now: int) -> None:
        """A place with the cause `recover` has changed a live: note why, and judge an item that was dropped with it.

        A live that the store has forgotten is in neither state.
        """
        old, new = before.lives.get(live), after.lives.get(live)
        if old is None or new is None or old.released == old.acked:
            return
        head = old.acked + 1
        ends = self._ends.setdefault((live, head), [])
        back = [worker for silent, worker in ends if silent and is_there(before, worker)]
        died = len(ends) - len(back) + 1
        if new.dropped_poison > old.dropped_poison and died < self._limits.poison_max:
            self._wrong(f"poison: item {head} of {live} was dropped after {died} died; {back} were only silent")
        draft = Draft(before, now, self._limits)
        silent = needs(draft, live) == "lost" and draft.slot(old.selected, live, old.epoch) != "vacant"
        ends.append((silent, old.selected))


def is_there(state: State, worker: str) -> bool:
    record = state.workers.get(worker)
    return record is not None and not record.lost and not record.gone

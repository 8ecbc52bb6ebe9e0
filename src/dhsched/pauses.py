"""Pauses of a process, in which its event loop serves nobody: how they are kept short, and how they are measured.

The rule for Python's garbage collector, in every process of the product that runs an event loop:

- Objects that exist before the loop begins are frozen, and in a service also those that exist when it listens: modules,
  classes, routes, keys. They stay for ever. A full collection looked at these 80,000 objects for 40 to 80 ms; it does
  not look at frozen ones.
- A collection of generation 0 begins after 2,000 new objects (Python: 700), of generation 1 after ten of those. Almost
  everything here is freed without the collector, so rare collections free as much as frequent ones.
- A collection of generation 2 looks at everything that is not frozen. In a service it begins after 50 collections of
  generation 1 (Python: 10): in an Infer-Controller once in some 200,000 pushed items. It is short because there is
  little to look at: 0.3 ms in an Infer-Controller and in a Dispatch replica, with 5,000 lives or none. What is kept per
  live must therefore be no object of the collector: numbers, text, or a Struct with gc=False.
- A Worker runs code of others, in which only the collector may find what holds a GPU's memory. So there it begins after
  ten, as in any Python program, and looks at what the runtimes have made: some 22 objects per live are the Worker's
  own, 15 us.
- Nothing is frozen later, while lives come and go: a frozen object that becomes garbage is never freed.
"""

from __future__ import annotations

import asyncio
import gc
from time import monotonic, perf_counter
from typing import Any

from dhsched.durations import Durations

YOUNG_OBJECTS = 2_000  # New objects that begin a collection of generation 0.
YOUNG_COLLECTIONS = 10  # Collections of generation 0 that begin one of generation 1.
SERVICE_COLLECTIONS = 50  # Collections of generation 1 that begin one of generation 2, in a service,
WORKER_COLLECTIONS = 10  # and in a process that runs code of others.
GENERATIONS = 3
PROBE_S = 0.25  # Between two measurements of the loop's lag: an idle process is woken four times a second.
PROBES_MISSED_MAX = 240  # After a longer standstill, such as a machine's sleep, further missed probes are not counted.


def keep_short(*, runs_code_of_others: bool = False) -> None:
    """Set the garbage collector of this process by the rule above. Call this before the event loop begins."""
    freeze()
    full = WORKER_COLLECTIONS if runs_code_of_others else SERVICE_COLLECTIONS
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, full)


def freeze() -> None:
    """Exempt every present object from later collections."""
    gc.freeze()


class Pauses:
    """The garbage collections of this process by generation, and the lag of its event loop."""

    def __init__(self) -> None:
        self.collections = tuple(Durations() for _ in range(GENERATIONS))
        self.lag = Durations()
        self._began = 0.0
        self._due = 0.0
        self._probe: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure from now on; `loop` is the loop of this process."""
        self.end()
        gc.callbacks.append(self._collector_calls)
        self._wait(loop)

    def end(self) -> None:
        """Measure no longer."""
        if self._collector_calls in gc.callbacks:
            gc.callbacks.remove(self._collector_calls)
        if self._probe is not None:
            self._probe.cancel()

    def loop_was_late(self, seconds: float) -> None:
        """Count that a probe ran so late, and the probes that were missed meanwhile.

        A request may arrive at any time. So after a second without a probe, waits of 1, 0.75, 0.5, 0.25 and 0 s are
        counted: the share of late probes is then the share of requests that have to wait.
        """
        self.lag.add(max(0.0, seconds))
        for missed in range(1, min(int(seconds / PROBE_S), PROBES_MISSED_MAX) + 1):
            self.lag.add(seconds - missed * PROBE_S)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not the loop's own time, which uvloop reads once a tick.
        self._due = monotonic() + PROBE_S
        self._probe = loop.call_later(PROBE_S, self._measure_lag, loop)

    def _measure_lag(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop_was_late(monotonic() - self._due)
        self._wait(loop)

    def _collector_calls(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = perf_counter()
        elif self._began:
            self.collections[info["generation"]].add(perf_counter() - self._began)
            self._began = 0.0


PAUSES = Pauses()
"""Of this process; without figures in a process that does not measure (a Worker that serves no metrics)."""

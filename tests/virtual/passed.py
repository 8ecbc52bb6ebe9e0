"""Which limits and settings a run has passed at their default values: reached, run out or exceeded.

A limit of a step is passed where the same step with twice the limit has another result (`Limits`). What a service or a
Worker limits by itself is passed where a probe (`probes.py`) or the log of events shows it. A period passes by itself,
in every run that is longer. docs/internals/virtual-runs.md has the table, which `make virtual SWARM=small APPEND=1`
writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

from dhsched.infer.settings import InferSettings
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.ownership.state import State
from dhsched.ownership.steps import STEPS
from dhsched.settings import DispatchSettings
from dhsched.worker.settings import WorkerSettings
from tests.chaos.trace import Taken
from tests.virtual.swarm import default_of

PAGE = Path(__file__).parents[2] / "docs/internals/virtual-runs.md"
TABLE = re.compile(r"(?<=<!-- passed -->\n).*?(?=<!-- end of passed -->)", re.DOTALL)
SEEDS_SHOWN = 6

BY_STATE: Mapping[str, tuple[str, ...]] = {
    "register_worker": ("boots_window_ms", "boots_max"),
    "report": ("start_wait_max_ms", "walk_max"),
    "set_worker": ("reap_ms", "walk_max"),
    "place": ("history_max", "poison_max", "dead_max"),
    "pull": ("start_quick_ms", "start_slow_ms", "pace_max", "walk_max"),
    "append_input": ("pending_max", "producers_max", "recent_min", "recent_ms", "recent_max"),
    "emit": ("emits_max", "emits_bytes_max"),
    "new_term": ("term_step",),
    "look": ("backoff_max_ms",),
}
"""Limits by the step that would leave another state, or give another answer, if they were twice what they are."""
BY_WAIT = {"claim_wait_ms": o.Recover, "ack_wait_ms": o.Recover, "ended_ttl_ms": o.Swept}
"""Waits that a look finds over, by what it answers then; with twice the wait it answers something else."""

NUMBERS = {
    kind.ROLE: [
        each.name for each in fields(kind) if "low" in each.metadata and each.name not in ("port", "metrics_port")
    ]
    for kind in (DispatchSettings, InferSettings, WorkerSettings)
}
"""The settings of each role that are numbers; a setting of the room has no role in a virtual run."""
PERIODS = frozenset(
    (
        *("dispatch.refresh_min_s", "dispatch.refresh_max_s", "dispatch.full_every_s", "dispatch.liveness_s"),
        *("dispatch.reconcile_s", "dispatch.recover_s", "dispatch.drain_s", "dispatch.cut_over_s"),
        *("dispatch.meter_s", "dispatch.rebalance_s", "dispatch.blame_window_s", "dispatch.wait_retry_s"),
    )
)
"""Settings that are the time between two rounds, or for which something is remembered."""
KEYS = "needs access with keys"
MANY = "needs ten thousand connections"
STOPS = "services are killed here, and not stopped"
NOT_HERE = {
    "candidates_max": "needs seventeen Workers",
    "dispatch.connections_per_address_max": MANY,
    "dispatch.key_rate_per_s": KEYS,
    "dispatch.connections_per_key_max": KEYS,
    "dispatch.stop_s": STOPS,
    "dispatch.waiting_max": "needs a thousand creates that wait at once",
    "infer.connections_per_address_max": MANY,
    "infer.key_rate_per_s": KEYS,
    "infer.connections_per_key_max": KEYS,
    "infer.streams_max": MANY,
    "infer.stream_in_flight_max": "the Python client stops before it",
    "infer.join_ms": "needs streams of tokens",
    "infer.watch_s": "nobody watches events",
    "infer.log_lines_per_s": "a Worker's own limit is lower",
    "infer.stop_s": STOPS,
    "worker.capacity": "has no default",
    "worker.device_crashes_max": "needs a Worker with several devices",
    "worker.blocked_max_s": "needs the thread of the watchdog",
}
"""What no small run passes, and why."""
TROUBLES = {"loss": "dispatch.losses_max", "stall": "dispatch.stalls_max", "crash": "dispatch.crashes_max"}


def all_names() -> list[str]:
    """Every limit of a step, and every setting that is a number."""
    return [
        *(each.name for each in fields(Limits)),
        *(f"{role}.{name}" for role, names in NUMBERS.items() for name in names),
    ]


class Passed:
    """The names of what one run has passed."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._more = {name: doubled(name) for name in (*BY_WAIT, *chain(*BY_STATE.values()))}

    def mark(self, *names: str) -> None:
        self._names.update(dict.fromkeys(names))

    def names(self, hours: float) -> list[str]:
        """Return all of them, in the order of the table."""
        periods = {
            name for name in PERIODS if default_of(DispatchSettings, name.removeprefix("dispatch.")) < hours * 3600
        }
        return [name for name in all_names() if name in self._names or name in periods]

    def on_step(self, taken: Taken, before: State, after: State) -> None:
        """Look at a step of the model."""
        for name in BY_STATE.get(taken.step, ()):
            if name not in self._names and self._otherwise(name, taken, before) != (after, taken.answer):
                self.mark(name)
        match taken.step, taken.answer:
            case "look", _ if taken.arguments["live"] in before.lives:
                self._look(taken, before)
            case "place", o.Starting():
                recovers = taken.arguments["cause"] == "recover"
                self.mark("starts_recover_max" if recovers else "starts_create_max")
            case "reserve", o.Reserved():
                source = after.workers[after.lives[taken.arguments["live"]].selected]
                if source.cutovers >= source.pace * source.cutovers_max:
                    self.mark("cutovers_max")
            case "expire_worker", _ if after is not before:
                self.mark("dispatch.worker_ttl_s")
            case "release_input", o.Items():
                record = after.lives[taken.arguments["live"]]
                if record.released - record.acked >= default_of(InferSettings, "credit"):
                    self.mark("infer.credit")

    def _look(self, taken: Taken, before: State) -> None:
        record = before.lives[taken.arguments["live"]]
        if record.move is not None and taken.now >= record.move.expires:
            self.mark("move_expires_ms")
        if isinstance(taken.answer, o.Recover) and taken.answer.tries > 1:
            self.mark("lease_ms")
        for name, answer in BY_WAIT.items():
            if name not in self._names and isinstance(taken.answer, answer):
                _, other = self._otherwise(name, taken, before)
                if not isinstance(other, answer):
                    self.mark(name)

    def _otherwise(self, name: str, taken: Taken, before: State) -> tuple[State, Any]:
        """Return what the step would have done with twice the limit."""
        return STEPS[taken.step](before, taken.now, self._more[name], **taken.arguments)

    def on_event(self, kind: str, numbers: Mapping[str, Any]) -> None:
        """Look at an event of the log."""
        match kind:
            case "worker_cordoned" | "worker_blamed":
                self.mark(*(TROUBLES[each] for each in TROUBLES if each == numbers.get("trouble")))
                if kind == "worker_blamed":
                    self.mark("dispatch.cordon_share")
                if "departing_max_s" in numbers:
                    self.mark("dispatch.departing_max_s")
            case "forced_move":
                self.mark("dispatch.boundary_wait_s")


def doubled(name: str) -> Limits:
    """The default limits, but with twice this one."""
    return replace(DEFAULT_LIMITS, **{name: 2 * getattr(DEFAULT_LIMITS, name)})


# -- the table of the page


def write_table(seed: int, names: Iterable[str]) -> None:
    """Add what the run of a seed has passed to the table of the page."""
    text = PAGE.read_text()
    seeds = read_table(text)
    for name, found in seeds.items():
        found.discard(seed)
        if name in names:
            found.add(seed)
    PAGE.write_text(TABLE.sub(lambda _: table(seeds), text))


def read_table(text: str) -> dict[str, set[int]]:
    """The seeds of each limit, as the page has them."""
    seeds: dict[str, set[int]] = {name: set() for name in all_names()}
    found = TABLE.search(text)
    for row in found.group().splitlines() if found else []:
        name, said = (cell.strip() for cell in row.strip("|").split("|"))
        if (name := name.strip("`")) in seeds:
            seeds[name] = {int(each) for each in re.findall(r"\d+", said)} if said.startswith("seeds") else set()
    return seeds


def table(seeds: Mapping[str, set[int]]) -> str:
    """The rows: a limit, and the seeds that passed it, or why there are none."""
    rows = ["| limit or setting | passed by |", "|---|---|"]
    for name in all_names():
        passed = seeds.get(name, set())
        said = "seeds " + ", ".join(map(str, sorted(passed)[:SEEDS_SHOWN])) if passed else "no seed"
        if not passed:
            said += f": {NOT_HERE.get(name, 'not yet')}"
        rows.append(f"| `{name}` | {said} |")
    return "\n".join(rows) + "\n"

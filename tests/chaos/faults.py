"""The faults of a storm, which the seed decides alone, and how each is done.

Every kind comes once, in some order, before any comes again by chance: a short storm is a whole one.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from dhsched.errors import StoreError
from tests.chaos.cluster import NODES, Cluster
from tests.chaos.deployment import WORKER_TTL_S, Deployment, Size
from tests.chaos.store import Replicated, StoreKind

KINDS: dict[str, float] = {
    "kill": 10,
    "pause": 9,
    "late": 5,
    "leave": 2,
    "cut": 5,
    "drop": 5,
    "delay": 6,
    "half-open": 4,
    "refuse": 3,
    "clock": 3,
    "store-kill": 1,
    "store-restart": 1,
    "store-pause": 2,
    "disk-full": 1,
    "forget": 0.5,
    "power-cut": 0.5,
    "promote": 0.5,
    "two-primaries": 0.5,
    "reshard": 4,
}
"""Each kind and how often it comes. `leave` is SIGTERM to a Worker: it asks to be drained, and exits. `late` is one
that is silent for about as long as it may be, while the replicas that judge it are slow to reach the store. `power-cut`
is `forget`, and all Dispatch replicas are killed in the same moment."""
LOSSES = ("forget", "power-cut", "promote", "two-primaries")
"""Kinds that take back what the store has told."""
ONLY_WITH: dict[str, StoreKind] = {
    **dict.fromkeys(LOSSES, "replicated"),
    "disk-full": "replicated",  # A node that cannot write its nodes.conf exits.
    "reshard": "cluster",
}
"""Kinds that need one kind of store."""
GAP_MEAN_S = 0.7
CUT_S = 0.3  # For which two primaries-to-be are without replication before one is promoted.


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `size` is what kind of fault it needs: a delay, a clock's jump, a share of connections, a way."""

    at_s: float
    kind: str
    target: str
    seconds: float
    size: float


def kinds_of(words: str, store: StoreKind = "replicated") -> dict[str, float]:
    """The kinds that were asked for: `all` that this kind of store can have, `lossless` for those of them that take
    back nothing, or names with commas between them. Raise ValueError for a name that this store does not have."""
    possible = {name: weight for name, weight in KINDS.items() if ONLY_WITH.get(name, store) == store}
    names = {"all": [*possible], "lossless": [*possible.keys() - {*LOSSES}]}.get(words, words.split(","))
    if strange := {*names} - KINDS.keys():
        raise ValueError(f"no such fault: {', '.join(sorted(strange))}; there are {', '.join(possible)}")
    if elsewhere := sorted({*names} - possible.keys()):
        needed = " and ".join(f"{name} needs --store {ONLY_WITH[name]}" for name in elsewhere)
        raise ValueError(f"{needed}: with --store {store} there are {', '.join(possible)}")
    return {name: weight for name, weight in possible.items() if name in names}


def draw_faults(
    seed: int, storm_s: float, size: Size, kinds: dict[str, float] | None = None, store: StoreKind = "replicated"
) -> list[Fault]:
    """All faults of a storm; without `kinds`, of all kinds that the store can have."""
    kinds = kinds or kinds_of("all", store)
    r = Random(f"faults {seed}")
    first = [*kinds]
    r.shuffle(first)
    faults: list[Fault] = []
    at_s = 0.0
    # A short storm is a dense one: every kind must fit.
    gap_s = min(GAP_MEAN_S, storm_s / (len(kinds) + 3))
    while True:
        at_s += min(r.expovariate(1 / gap_s), 2 * gap_s)
        if at_s >= storm_s:
            return faults
        kind = first.pop() if first else r.choices([*kinds], [*kinds.values()])[0]
        faults.append(Fault(at_s, kind, target_of(kind, r, size, store), *extent_of(kind, r)))


def target_of(kind: str, r: Random, size: Size, store: StoreKind) -> str:
    dispatch = [f"dispatch-{n}" for n in range(1, size.dispatch + 1)]
    infer = [f"infer-{n}" for n in range(1, size.infer + 1)]
    workers = [f"worker-{n}" for n in range(1, size.workers + 1)]
    match kind:
        case "kill" | "pause":
            return r.choice(r.choice([dispatch, infer, workers, workers]))
        case "clock" | "leave" | "late":
            return r.choice(workers)
        case "cut" | "drop" | "delay" | "half-open" | "refuse":
            controller = r.choice([*dispatch, *infer])
            # The nodes of a cluster have one proxy each, which all controllers share.
            to_store = f"{controller}-to-store" if store == "replicated" else f"to-{r.choice(NODES)}"
            return r.choice([f"to-{controller}", to_store])
        case "store-kill" | "store-restart" | "store-pause" if store == "cluster":
            return r.choice(NODES)
    return "store"


def extent_of(kind: str, r: Random) -> tuple[float, float]:
    """How long, and how much."""
    match kind:
        case "kill":
            return r.uniform(0.1, 2.5), 0.0
        case "pause":
            # Around the time after which a silent Worker is called lost: that is where races are.
            return r.choice([r.uniform(0.2, 1.0), r.uniform(1.2, 2.4), r.uniform(2.0, 6.0)]), 0.0
        case "late":
            return WORKER_TTL_S + r.uniform(0.0, 1.0), r.uniform(0.06, 0.18)
        case "delay":
            return r.uniform(1.0, 4.0), r.uniform(0.02, 0.5)
        case "drop" | "half-open" | "refuse":
            return r.uniform(0.5, 4.0), 0.0
        case "cut":
            return 0.0, r.uniform(0.2, 1.0)
        case "clock":
            return 0.0, r.choice([-1.0, 1.0]) * 10 ** r.uniform(0, 6)
        case "store-kill" | "store-restart":
            return r.uniform(0.0, 1.0), 0.0
        case "store-pause":
            return r.uniform(0.3, 3.0), 0.0
        case "disk-full":
            return r.uniform(0.5, 3.0), 0.0
        case "forget" | "power-cut" | "promote":
            return r.uniform(0.3, 2.0), 0.0
        case "two-primaries":
            return r.uniform(1.0, 5.0), r.random()
        case "reshard":
            return r.uniform(0.2, 3.0), r.random()
    return 0.0, 0.0


def old_side(fault: Fault, size: Size) -> list[str]:
    """The controllers that stay with the old primary: some of each kind, and never all."""
    r, stay = Random(fault.size), list[str]()
    for kind, count in (("dispatch", size.dispatch), ("infer", size.infer)):
        stay += r.sample([f"{kind}-{n}" for n in range(1, count + 1)], r.randint(1, count - 1))
    return stay


class Injector:
    """Carries the faults out. `done` counts what was done, `running` what is still under way."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._deployment = deployment
        self._rng = Random(f"injector {seed}")
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, faults: list[Fault], say: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for fault in faults:
            await asyncio.sleep(max(0.0, began + fault.at_s - loop.time()))
            say(f"{fault.at_s:7.2f} s  {fault.kind} {fault.target} {fault.seconds:.2f} s")
            self.done[fault.kind] += 1
            task = asyncio.create_task(self._do(fault))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def settled(self) -> None:
        """Every fault is over."""
        while self._running:
            await asyncio.gather(*self._running)

    async def _do(self, fault: Fault) -> None:
        # A store that is down cannot be asked to fill its disk: that fault is simply not there.
        with contextlib.suppress(StoreError, ProcessLookupError):
            await self._kinds()[fault.kind](fault)

    def _kinds(self) -> dict[str, Callable[[Fault], Awaitable[None]]]:
        deployment, proxies, store = self._deployment, self._deployment.proxies, self._deployment.store

        async def kill(fault: Fault) -> None:
            deployment.kill(fault.target, fault.seconds)

        async def pause(fault: Fault) -> None:
            pid = deployment.roles[fault.target].pid
            deployment.signal(fault.target, signal.SIGSTOP)
            await asyncio.sleep(fault.seconds)
            if deployment.roles[fault.target].pid == pid:
                deployment.signal(fault.target, signal.SIGCONT)

        async def late(fault: Fault) -> None:
            slow = (way.delay(fault.seconds + 2.0, fault.size) for way in store.ways_of("dispatch"))
            await asyncio.gather(pause(fault), *slow)

        async def leave(fault: Fault) -> None:
            deployment.signal(fault.target, signal.SIGTERM)

        async def clock(fault: Fault) -> None:
            deployment.set_clock(fault.target, fault.size)

        async def cut(fault: Fault) -> None:
            proxies[fault.target].cut(lambda: self._rng.random() < fault.size)

        kinds: dict[str, Callable[[Fault], Awaitable[None]]] = {
            "kill": kill,
            "pause": pause,
            "late": late,
            "leave": leave,
            "clock": clock,
            "cut": cut,
            "drop": lambda fault: proxies[fault.target].drop(fault.seconds),
            "delay": lambda fault: proxies[fault.target].delay(fault.seconds, fault.size),
            "half-open": lambda fault: proxies[fault.target].half_open(fault.seconds),
            "refuse": lambda fault: proxies[fault.target].refuse(fault.seconds),
            "store-kill": lambda fault: store.restart(fault.target, kill=True, down_s=fault.seconds),
            "store-restart": lambda fault: store.restart(fault.target, kill=False, down_s=fault.seconds),
            "store-pause": lambda fault: store.pause(fault.target, fault.seconds),
        }
        match store:
            case Replicated():
                kinds |= {
                    "disk-full": lambda fault: store.fill_disk(fault.seconds),
                    "forget": lambda fault: store.set_back(fault.seconds),
                    "power-cut": lambda fault: store.set_back(fault.seconds, lambda: deployment.kill_all("dispatch")),
                    "promote": lambda fault: store.promote(fault.seconds),
                    "two-primaries": lambda fault: store.promote(
                        CUT_S, divided_s=fault.seconds, stay=old_side(fault, deployment.size)
                    ),
                }
            case Cluster():
                kinds["reshard"] = lambda fault: store.reshard(fault.size, fault.seconds)
        return kinds

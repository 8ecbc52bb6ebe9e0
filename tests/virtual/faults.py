"""How each fault of a schedule (`schedule.py`) is done to a deployment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from tests.virtual.blocked import Watchdogs
from tests.virtual.cells import Judges
from tests.virtual.deployment import APPLICATIONS_HOST, Deployment, Process
from tests.virtual.load import Load
from tests.virtual.loop import Node
from tests.virtual.moving import moving
from tests.virtual.schedule import Fault
from tests.virtual.store import StoreServer

T = TypeVar("T")
CLOCK_STEP_MAX_S = 10  # A step of the store's clock, forward or back.
FORGET_MAX_S = 5.0  # A store that comes back from its files has lost at most this much.
PARTED_TIMES, LOST_TIMES = 5, 10  # These faults last as many times as long as others: one at a time, and others go on.
APART_S, APART_FOR_S = 4.5, 12.0  # Workers are cut off so long after a store began to forget, and for so long.
BREAKS_SHARE = 0.2  # Of the answers to a host that loses some.
CELL_LOST_TIMES = 3  # So many times as long as others lasts the fault that a cell has no store.
OF_A_STORE = frozenset(
    (
        *("store-pause", "store-clock", "store-forget", "forget-twice", "store-promote", "store-full", "store-move"),
        *("lose-store", "lose-cell"),
    )
)
"""Faults that are of the store of one cell alone."""
HURRY_STEP_S, HURRY_STEPS = 0.1, 100  # When the application begins to hurry, after the focus has come to its live.


class Faults:
    """Does the faults of a schedule at their times."""

    def __init__(self, deployment: Deployment, judges: Judges, load: Load, watchdogs: Watchdogs) -> None:
        self._d, self._judges, self._load, self._watchdogs = deployment, judges, load, watchdogs
        self._parted = self._lost = self._cell_lost = False
        self._setting_back, self._moving = set[StoreServer](), set[StoreServer]()
        self._focus, self._focus_until, self._until = "", 0.0, 0.0

    async def run(self, faults: Sequence[Fault], until: float) -> None:
        """Return at `until`, when everything is healed."""
        loop, self._until = self._d.loop, until
        began, doing = loop.now, []
        for fault in faults:
            await asyncio.sleep(max(0.0, began + fault.at_s - loop.now))
            self._d.note(f"fault {fault}")
            doing.append(asyncio.create_task(self._among_others(fault)))
        await asyncio.gather(*doing)
        await asyncio.sleep(max(0.0, until - loop.now))

    async def _among_others(self, fault: Fault) -> None:
        cell = self._store(fault).cell if fault.kind in OF_A_STORE else ""
        with self._watchdogs.among_faults(), self._judges.beside.trouble(cell):
            await self._do(fault)

    async def _do(self, fault: Fault) -> None:
        d, store = self._d, self._store(fault)
        pick = self._pick
        match fault.kind:
            case "kill-worker":
                self._worker(fault.one).kill(fault.for_s)
            case "kill-replica":
                pick(d.replicas, fault.one).kill(fault.for_s)
            case "kill-controller":
                pick(d.controllers, fault.one).kill(fault.for_s)
            case "kill-room" if d.rooms:
                pick(d.rooms, fault.one).kill(fault.for_s)
            case "freeze-room" if d.rooms:
                await self._freeze(pick(d.rooms, fault.one).node, fault.for_s)
            case "kill-room" | "freeze-room":
                pass  # This seed has no room.
            case "stop-worker":
                self._worker(fault.one).leave()
            case "freeze-worker":
                await self._freeze(self._worker(fault.one).node, fault.for_s)
            case "block-worker":
                await self._block(self._worker(fault.one).node, fault.for_s)
            case "freeze-replica":
                await self._freeze(pick(d.replicas, fault.one).node, fault.for_s)
            case "freeze-controller":
                await self._freeze(pick(d.controllers, fault.one).node, fault.for_s)
            case "store-pause":
                await self._freeze(store.node, fault.for_s)
            case "cut" | "cut-one-way":
                await self._cut(fault)
            case "half-open":
                node = pick(d.processes, fault.one).node
                if node is not None:
                    d.net.forget(node)
            case "duplicate":
                await self._lose_answers(pick([APPLICATIONS_HOST, *self._hosts()], fault.one), fault.for_s)
            case "slow":
                await self._slow(pick(self._hosts(), fault.one), 0.01 * (1 + fault.other % 100), fault.for_s)
            case "store-clock":
                store.offset_ms += 1000 * (fault.one % (2 * CLOCK_STEP_MAX_S + 1) - CLOCK_STEP_MAX_S)
            case "store-forget":
                await self._set_back(store, min(fault.for_s, FORGET_MAX_S), hang_up=True)
            case "forget-twice":
                await self._forget_twice(store, fault)
            case "forget-apart":
                await self._forget_apart(store)
            case "store-promote":
                await self._set_back(store, 0.5 * (fault.one % 2), hang_up=fault.other % 2 == 0)
            case "store-full":
                store.keyspace.full = True
                await asyncio.sleep(fault.for_s)
                store.keyspace.full = False
            case "store-move":
                await self._move_slot(store, fault.for_s)
            case "focus":
                await self._aim(fault)
            case "part-worker" if not self._parted:
                self._parted = True
                await self._part(self._worker(fault.one), fault)
                self._parted = False
            case "lose-store" if not self._lost:
                self._lost = True
                await self._lose_store(store, fault)
                self._lost = False
            case "lose-cell" if not self._cell_lost:
                self._cell_lost = True
                await self._freeze(store.node, min(fault.for_s * CELL_LOST_TIMES, self._until - d.loop.now))
                self._cell_lost = False
            case "part-worker" | "lose-store" | "lose-cell":
                pass  # One at a time.
            case unknown:
                raise ValueError(f"a schedule names the fault {unknown}, which there is not")

    @staticmethod
    def _pick(among: Sequence[T], number: int) -> T:
        return among[number % len(among)]

    def _store(self, fault: Fault) -> StoreServer:
        """The store that a fault is of: that of one cell, where there are several. The hundreds of the fault's numbers
        choose the cell."""
        return self._pick(self._d.stores, fault.one // 100 + fault.other // 100)

    def _worker(self, number: int) -> Process:
        """The Worker of the live that faults are aimed at, or any."""
        if self._d.loop.now < self._focus_until:
            record = self._judges.lives.get(self._focus)
            for process in self._d.workers:
                if record is not None and record.selected.startswith(f"{process.name}#"):
                    return process
        return self._pick(self._d.workers, number)

    async def _aim(self, fault: Fault) -> None:
        """Aim at one of the open lives; its application hurries, too."""
        lives = [live for live, record in self._judges.lives.items() if record.state != "ended"]
        if lives:
            self._focus, self._focus_until = self._pick(sorted(lives), fault.one), self._d.loop.now + fault.for_s
            live = self._focus.partition("/")[2]
            await asyncio.sleep(HURRY_STEP_S * (fault.other % HURRY_STEPS))
            self._load.hurry(live, fault.other // HURRY_STEPS, fault.for_s)

    async def _part(self, worker: Process, fault: Fault) -> None:
        """A Worker does not reach the controllers for a while; or for longer, and no replica either. It reaches the
        room."""
        d, alone = self._d, fault.other % 2
        cuts = [
            d.net.cut(worker.host, each.host, both=True) for each in (*d.controllers, *(d.replicas if alone else ()))
        ]
        await self._last(fault.for_s * (PARTED_TIMES if alone else 1))
        for cut in cuts:
            d.net.mend(cut)

    async def _lose_store(self, store: StoreServer, fault: Fault) -> None:
        """A replica or a controller does not reach the store for long, and another one does."""
        among = [each for role in (self._d.replicas, self._d.controllers) if len(role) > 1 for each in role]
        if among:
            cut = self._d.net.cut(self._pick(among, fault.one).host, store.node.host, both=True)
            await self._last(fault.for_s * LOST_TIMES)
            self._d.net.mend(cut)

    async def _forget_twice(self, store: StoreServer, fault: Fault) -> None:
        """The store forgets, and once more what was written since, before long: also what was said of the loss."""
        await self._set_back(store, min(fault.for_s, FORGET_MAX_S), hang_up=True)
        await asyncio.sleep(0.01 * (fault.one % 100))
        await self._set_back(store, 1.0 + 0.02 * (fault.other % 100), hang_up=True)

    async def _forget_apart(self, store: StoreServer) -> None:
        """The store forgets while no Worker reaches a controller: when they do again, it may have other items."""
        forgetting = asyncio.create_task(self._set_back(store, FORGET_MAX_S, hang_up=True))
        await asyncio.sleep(APART_S)
        net, controllers = self._d.net, self._d.controllers
        cuts = [net.cut(worker.host, each.host, both=True) for worker in self._d.workers for each in controllers]
        await forgetting
        await self._last(APART_FOR_S)
        for cut in cuts:
            net.mend(cut)

    async def _last(self, seconds: float) -> None:
        """What lasts long ends with the schedule at the latest."""
        await asyncio.sleep(max(0.0, min(seconds, self._until - self._d.loop.now)))

    def _hosts(self) -> list[str]:
        return [*(each.host for each in self._d.processes), *(each.node.host for each in self._d.stores)]

    async def _freeze(self, node: Node | None, for_s: float) -> None:
        if node is None or node.frozen or node.dead:
            return
        node.freeze()
        await asyncio.sleep(for_s)
        if node.frozen:
            node.thaw()

    async def _block(self, node: Node | None, for_s: float) -> None:
        """A runtime blocks the loop of its Worker."""
        if node is not None and not node.frozen and not node.dead:
            await self._watchdogs.block(node, for_s)

    async def _lose_answers(self, host: str, for_s: float) -> None:
        """What a host asks of others is done, but connections break before it has the answer: it asks again."""
        self._d.net.breaks[host] = BREAKS_SHARE
        await asyncio.sleep(for_s)
        self._d.net.breaks.pop(host, None)

    async def _cut(self, fault: Fault) -> None:
        hosts = self._hosts()
        one = self._pick(hosts, fault.one)
        other = self._pick([host for host in hosts if host != one], fault.other)
        cut = self._d.net.cut(one, other, both=fault.kind == "cut")
        await asyncio.sleep(fault.for_s)
        self._d.net.mend(cut)

    async def _slow(self, host: str, by_s: float, for_s: float) -> None:
        self._d.net.slow[host] = by_s
        await asyncio.sleep(for_s)
        self._d.net.slow.pop(host, None)

    async def _move_slot(self, store: StoreServer, for_s: float) -> None:
        """A cluster begins to move the cell's slot, and gives it up again. One at a time."""
        if store in self._moving:
            return
        self._moving.add(store)
        with moving(store.keyspace):
            await asyncio.sleep(for_s)
        self._moving.discard(store)

    async def _set_back(self, store: StoreServer, lag_s: float, *, hang_up: bool) -> None:
        """The store goes on as another server, without what was written in the last `lag_s`. One at a time: what is
        kept is of the history that goes on."""
        if store in self._setting_back:
            return
        self._setting_back.add(store)
        judges = self._judges.at(store)
        kept = judges.keep()
        await asyncio.sleep(lag_s)
        judges.part(kept)
        store.become_another(kept.data, hang_up=hang_up)
        self._setting_back.discard(store)

"""What applications and operators do where there are several cells, beside the rest of `load.py`.

The operator: a cell without a Worker that takes lives gets one of another cell. A Worker registers in the cell that has
the least free, and later where it was last. If that cell is away when the Worker starts again, it registers in another
one, and stays there: to move it is an operator's work (docs/guides/scale.md). The application: lives whose ids the
server or the client makes, so that they are where slots are free.
"""

from __future__ import annotations

import json
from collections import defaultdict
from random import Random

from dhsched.client import Client
from dhsched.client.models.summary import CellList
from dhsched.types import name_of
from tests.virtual.beside import Beside
from tests.virtual.deployment import DIGITAL_ID, Deployment

LOOK_S = 10.0  # Between two looks of the operator.
EMPTY_S = 30.0  # A Worker that was killed is back by then.
ANYWHERE_MEAN_S = 30.0  # Between two lives without an id of their own.
MOVED_SHARE = 0.7  # Of the Workers that are sent to another cell, those that Dispatch moves.
MOVE_S = 20.0  # Lives that are left on such a Worker after this are cut over at once.
IDLE_S = 60.0  # Such a live ends by itself, also where the answer was lost and nobody knows of it.


class Spreading:
    """See the module."""

    def __init__(self, deployment: Deployment, client: Client, beside: Beside, seed: int) -> None:
        self._deployment, self._client, self._beside = deployment, client, beside
        self._rng = Random(f"anywhere {seed}")
        self._anywhere_at = 0.0
        self._empty_since: dict[str, float] = {}

    async def look(self) -> None:
        """Send a Worker to each cell that has had none for EMPTY_S."""
        with self._beside.call("list"):
            cells = (await self._client._dispatch.read(CellList, "GET", "cells")).cells
        now = self._deployment.loop.now
        empty = [each.name for each in cells if each.ready and not each.capacity]
        self._empty_since = {name: self._empty_since.get(name, now) for name in empty}
        for name in empty:
            if now - self._empty_since[name] >= EMPTY_S:
                del self._empty_since[name]
                await self._send_one(name)

    async def _send_one(self, cell: str) -> None:
        """Move a Worker of the cell that has the most to this one: mostly as Dispatch does it, now and then by stopping
        it and starting it again with the cell named."""
        workers: dict[str, list[str]] = defaultdict(list)
        async for row in self._client.workers(status="ready"):
            workers[str(row.cell)].append(row.worker)
        crowded = max(workers.values(), key=len, default=[])
        if len(crowded) < 2:
            return
        if self._rng.random() < MOVED_SHARE:
            self._deployment.note(f"operator moves {crowded[0]} to cell {cell}")
            await self._client.drain(crowded[0], deadline_s=MOVE_S, to_cell=cell)
            return
        for process in self._deployment.workers:
            if process.name == name_of(crowded[0]):
                self._deployment.note(f"operator sends {process.name} to cell {cell}")
                process.cell = cell
                process.leave()

    async def create_anywhere(self) -> None:
        """Now and then make a live wherever a slot is free, get it, and end it."""
        now, r = self._deployment.loop.now, self._rng
        if now < self._anywhere_at:
            return
        self._anywhere_at = now + r.expovariate(1 / ANYWHERE_MEAN_S)
        if r.random() < 0.5:
            live_id = (await self._client.create(DIGITAL_ID, idle_s=IDLE_S)).live_id
        else:
            body = {"digital_id": DIGITAL_ID, "idle_s": IDLE_S}
            live_id = json.loads(await self._client._dispatch.call("POST", "lives", body=body, twice=False))["live_id"]
        self._deployment.note(f"anywhere {live_id}")
        await self._client.get(live_id)
        await self._client.end(live_id)

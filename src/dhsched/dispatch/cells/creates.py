"""Which cell a new live is created in.

A live whose id is given belongs to the cell of that id: where that is full, the refusal says whether another cell has
free slots, and another id may be tried. An id that the server makes follows the free slots: of two random cells it is
drawn for the one with more of them, as far as this replica's views know; where no slot is free there after all, it is
drawn anew for other cells, because nothing was made. Nothing is tried again whose outcome is unknown.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from msgspec import structs

from dhsched.cells.fixed import draw_id
from dhsched.cells.tries import cells_to_try
from dhsched.dispatch.api.create import live_id_of
from dhsched.dispatch.cells.served import ServedCell
from dhsched.errors import StoreUnavailable
from dhsched.web import YES, Problem, Request

NO_SLOT = frozenset({"FULL", "STARTING", "WAITING"})
"""Refusals of a create that has made nothing, because no slot was free."""


class CreatesOverCells:
    """The creates of one replica. `served` returns the cells that are served, in their order."""

    def __init__(
        self,
        names: Sequence[str],
        served: Callable[[], list[ServedCell]],
        of_live: Callable[[str, str], ServedCell],
    ) -> None:
        self._names = names
        self._served = served
        self._of_live = of_live
        self._rng = Random()

    async def create(self, asked: Request) -> Any:
        body = asked.body
        if not isinstance(body.live_id, str) and not asked.header("Idempotency-Key"):
            return await self._anywhere(asked)
        body.live_id = live_id_of(asked, body)
        cell, query = self._of_live(asked.caller.tenant, body.live_id), asked.query
        if query.wait_s and query.redraw in YES:
            asked.query = structs.replace(query, wait_s=0)
            try:
                return await cell.answer("create_live", asked)
            except Problem as problem:
                refusal = self._with_elsewhere(problem, cell, asked)
                if problem.code not in NO_SLOT or "elsewhere" in refusal.numbers:
                    raise refusal from None
            asked.query = query
        try:
            return await cell.answer("create_live", asked)
        except Problem as problem:
            raise self._with_elsewhere(problem, cell, asked) from None

    async def _anywhere(self, asked: Request) -> Any:
        """Create in the emptier one of two random cells; with no free slot there, in others that have some. Wait, if
        that was requested, only after all of these were tried."""
        first, *others = self._tries(asked.body.digital_id)
        query = asked.query
        asked.query = structs.replace(query, wait_s=0)
        for cell in (first, *others) if others else ():
            try:
                return await self._create_in(cell, asked)
            except (Problem, StoreUnavailable) as error:
                if not made_nothing(error):
                    raise
        asked.query = query
        return await self._create_in(first, asked)

    def _tries(self, digital_id: str) -> list[ServedCell]:
        """Return the cell to create in, then others with free slots, the emptiest first."""
        served = [each for each in self._served() if each.answers_now] or self._served()
        if not served:
            raise StoreUnavailable("no cell is served", unknown=False)
        return cells_to_try({cell: free_for(cell, digital_id) for cell in served}, self._rng)

    async def _create_in(self, cell: ServedCell, asked: Request) -> Any:
        tenant = asked.caller.tenant
        asked.body.live_id = draw_id(self._names, tenant, cell.name, lambda: "lv-" + secrets.token_hex(8))
        # A draw that has failed a thousand times has left an id of another cell.
        return await self._of_live(tenant, asked.body.live_id).answer("create_live", asked)

    def _with_elsewhere(self, problem: Problem, full: ServedCell, asked: Request) -> Problem:
        """Return the refusal of a full cell, and say where slots are free: an admin is told how many."""
        free = {cell.name: free_for(cell, asked.body.digital_id) for cell in self._served() if cell is not full}
        free = {name: count for name, count in free.items() if count}
        if problem.code not in NO_SLOT or not free:
            return problem
        numbers: dict[str, Any] = {"cell": full.name, "elsewhere": True}
        told = f"cell {full.name} has no free slot for it, and another cell has: create it under another id"
        if asked.caller.admin:
            numbers["free_in_cells"] = free
            told += f" (free slots: {', '.join(f'{name} {count}' for name, count in free.items())})"
        detail = f"{problem.detail}; {told}"
        return Problem(problem.code, detail, retry_after_s=problem.retry_after_s, **problem.numbers, **numbers)


def made_nothing(error: Problem | StoreUnavailable) -> bool:
    """Return whether a create that failed has surely made nothing, and may be tried under another id."""
    return error.code in NO_SLOT if isinstance(error, Problem) else not error.unknown


def free_for(cell: ServedCell, digital_id: str) -> int:
    """Return the free slots for a DigitalID in a cell, as this replica sees it: what it has placed since its last
    snapshot is taken off, so that a burst does not follow one snapshot into one cell."""
    fleet = cell.context.fleet
    request = fleet.requests.get(digital_id)
    return fleet.free_slots() if request is None else fleet.view.free_slots(request.pools)

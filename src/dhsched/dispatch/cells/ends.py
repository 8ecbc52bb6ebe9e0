"""Ending the lives that match filters, in all cells: the first ones by name, and no more than were asked for."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from msgspec import structs

from dhsched.client.models import lives as m
from dhsched.dispatch.api.live_lists import refuse_without_filter
from dhsched.dispatch.api.selection import Selection, id_of
from dhsched.dispatch.cells.answers import ended_lives, lacking, one_page
from dhsched.dispatch.cells.served import ServedCell
from dhsched.errors import StoreError
from dhsched.web import Request


async def end_in_cells(cells: Sequence[ServedCell], asked: Request) -> m.EndedLives:
    """Choose the lives from one page of all cells, and end them in their cells. The answer names the cells that cannot
    be asked: their lives are left. If a cell cannot end its lives, the others end theirs, then its error is raised, as
    in a deployment of one cell."""
    body: m.EndLives = asked.body
    refuse_without_filter(body)
    chosen, until, without = await choose(cells, asked)
    ended = [m.EndedLives([], until is not None, until)]

    async def end(cell: ServedCell, ids: set[str]) -> m.EndedLives:
        in_cell = replace(asked, body=structs.replace(body, limit=len(ids)))
        one = cast(m.EndedLives, await cell.answer("end_lives", in_cell))
        # Others may have come in between: then the next call begins where this cell broke off.
        return structs.replace(one, more=False, next=None) if {*one.live_ids} == ids else one

    for found in await asyncio.gather(*(end(*each) for each in chosen.items()), return_exceptions=True):
        if isinstance(found, BaseException):
            raise found
        ended.append(found)
    return lacking(ended_lives(ended), without)


async def choose(
    cells: Sequence[ServedCell], asked: Request
) -> tuple[dict[ServedCell, set[str]], str | None, list[str]]:
    """Return the ids to end by cell, the id to go on after (None at the end), and the cells that cannot be asked."""
    body: m.EndLives = asked.body
    after = body.after if isinstance(body.after, str) else ""
    selection = Selection(asked.caller.tenant, body, not_ended=True)
    asks = (each.promptly(partial(read, each, selection, after, body.limit)) for each in cells)
    found = await asyncio.gather(*asks, return_exceptions=True)
    pages: list[tuple[list[tuple[str, ServedCell]], str | None]] = []
    without = []
    for cell, page in zip(cells, found, strict=True):
        if isinstance(page, StoreError):
            without.append(cell.name)
        elif isinstance(page, BaseException):
            raise page
        else:
            pages.append(page)
    rows, until = one_page(pages, lambda row: row[0], body.limit)
    chosen: defaultdict[ServedCell, set[str]] = defaultdict(set)
    for live_id, cell in rows:
        chosen[cell].add(live_id)
    return chosen, until, without


async def read(
    cell: ServedCell, selection: Selection, after: str, limit: int
) -> tuple[list[tuple[str, ServedCell]], str | None]:
    """Return a page of a cell: id and cell of each live, and the id to go on after."""
    rows, end = await selection.page(cell.context, after, limit)
    return [(id_of(row.live), cell) for row in rows], end

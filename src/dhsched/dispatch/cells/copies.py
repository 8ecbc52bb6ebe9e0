"""The configuration and the key ring in every cell: equal to the newest that any cell has.

Both are written in the first cell, and every replica copies them to the others about once a second. So all cells have
them when the first one is away: then nothing can be changed, and nothing else follows. A first cell that comes back
from an earlier state is given the newest copy. Where two cells have the same revision and other contents, which only a
cell that has forgotten brings about, the first one is right.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import structlog

from dhsched.errors import StoreError, StoreUnavailable
from dhsched.store.reaching import ReachedCell
from dhsched.store.records.config import KINDS, Copy, What

log = structlog.get_logger(__name__)

COPY_S = 1.0  # Time between two comparisons of the revisions.
WHOLE_S = 30.0  # Time between two comparisons of the contents.
CELL_S = 1.0  # A cell that does not tell its revisions within this time is left out of a round.
FORGOTTEN_S = 60.0  # After this, changes that no cell has which can be reached are given up: others can be made again.


class Copies:
    """The copies of one replica. `cells` are all of the deployment, the first one first."""

    def __init__(self, cells: Sequence[ReachedCell]) -> None:
        self._cells = cells
        self._names = [each.name for each in cells]
        self._lock = asyncio.Lock()
        self._compare_at = float("-inf")
        self._highest: dict[What, int] = dict.fromkeys(KINDS, 0)
        self._revs: dict[ReachedCell, dict[What, int]] = {}
        self._older_since: float | None = None
        self._rounds = 0

    async def round(self) -> None:
        """Bring what is older in a cell up to date, in all cells that can be reached now. Who waits for a round while
        another one begins is content with that one."""
        begun = self._rounds
        async with self._lock:
            if self._rounds <= begun:
                self._rounds += 1
                await self._round()

    def refuse_older(self) -> None:
        """Raise StoreUnavailable if the first cell is known to lack changes, or could not be asked in the last round:
        what is written there now would be taken for older than these, and be undone."""
        first, now = self._cells[0], asyncio.get_running_loop().time()
        revs = self._revs.get(first)
        if revs is None:
            self._older_since = None
            raise StoreUnavailable(
                f"cell {first.name} cannot be asked whether it has all changes of the configuration; try again in a "
                "moment",
                unknown=False,
            )
        if all(revs[what] >= self._highest[what] for what in KINDS):
            self._older_since = None
            return
        self._older_since = self._older_since or now
        if now - self._older_since >= FORGOTTEN_S:
            log.error("changes of the configuration are lost: no cell has them", cell=first.name)
            self._highest, self._older_since = dict(revs), None
            return
        raise StoreUnavailable(
            f"cell {first.name} has forgotten changes of the configuration, and the cell that has a copy cannot be "
            "reached now; try again in a moment",
            unknown=False,
        )

    async def _round(self) -> None:
        cells = [each for each in self._cells if each.linked]
        read = await asyncio.gather(*(self._revs_of(each) for each in cells))
        revs = self._revs = {cell: one for cell, one in zip(cells, read, strict=True) if one is not None}
        now = asyncio.get_running_loop().time()
        contents = now >= self._compare_at
        if contents:
            self._compare_at = now + WHOLE_S
            await asyncio.gather(*(self._keep_list(each) for each in revs))
        for what in KINDS:
            await self._spread(what, {cell: one[what] for cell, one in revs.items()}, contents=contents)

    async def _revs_of(self, cell: ReachedCell) -> dict[What, int] | None:
        try:
            async with asyncio.timeout(CELL_S):
                return await cell.records.config.revs()
        except (StoreError, TimeoutError):
            return None

    async def _keep_list(self, cell: ReachedCell) -> None:
        """Write the list of cells again into a cell that has forgotten it: no service could start with it otherwise."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(CELL_S):
                await cell.store.records.cells.keep(self._names)

    async def _spread(self, what: What, revs: dict[ReachedCell, int], *, contents: bool) -> None:
        if not revs:
            return
        known = 0 if len(revs) == len(self._cells) else self._highest[what]  # What no cell has is lost.
        highest = self._highest[what] = max(known, *revs.values())
        if not contents and min(revs.values()) == highest:
            return
        newest, copy = await self._newest([cell for cell in revs if revs[cell] == max(revs.values())], what)
        if newest is None or copy is None:
            return
        older = [cell for cell in revs if cell is not newest and (contents or revs[cell] < revs[newest])]
        await asyncio.gather(*(self._bring(cell, what, copy, equal=revs[cell] == revs[newest]) for cell in older))

    async def _newest(self, cells: Sequence[ReachedCell], what: What) -> tuple[ReachedCell | None, Copy | None]:
        """Return the first of these cells that has anything, and what it has. One of them may have lost all of it."""
        read: list[Copy | None] = []
        for cell in cells:
            copy = await self._read(cell, what)
            if copy is not None and copy.rows:
                return cell, copy
            read.append(copy)
        # All of the configuration may have been deleted. A key ring is never empty: it has secrets from its first read.
        deleted = what == "config" and all(copy is not None and copy.rev for copy in read)
        return (cells[0], read[0]) if deleted else (None, None)

    async def _bring(self, cell: ReachedCell, what: What, copy: Copy, *, equal: bool) -> None:
        """Give a copy to a cell that has an older one, or the same revision and other contents."""
        try:
            if equal and await self._read(cell, what) in (copy, None):
                return
            taken = await cell.store.records.config.take_over(what, copy, also_equal=equal)
        except StoreError as error:
            log.warning("the configuration cannot be copied", what=what, cell=cell.name, reason=str(error))
            return
        if taken:
            self._revs[cell][what] = copy.rev
            log.info("copied the configuration", what=what, cell=cell.name, rev=copy.rev)

    async def _read(self, cell: ReachedCell, what: What) -> Copy | None:
        try:
            return await cell.records.config.copy(what)
        except StoreError:
            return None

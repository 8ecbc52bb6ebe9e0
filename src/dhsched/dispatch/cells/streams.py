"""The log of events and the feed of changes over several cells: each cell has its own, with its own cursor.

The cursor of all is the cursors of the cells in their order, separated by commas; the place of a cell that was never
read is empty.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from msgspec import structs

from dhsched.access.callers import Caller
from dhsched.client.models import fleet as fm
from dhsched.client.models import summary as sm
from dhsched.dispatch.api.changes import WAIT_S, encode, encode_all, event
from dhsched.dispatch.api.events import PAGE, POLL_S, event_out
from dhsched.dispatch.api.followers import Followers
from dhsched.dispatch.api.summary import OVERVIEW_S
from dhsched.dispatch.cells.answers import left_out
from dhsched.dispatch.cells.served import ServedCell
from dhsched.dispatch.view.changes import ChangeFeed
from dhsched.errors import BadValue, StoreError, StoreUnavailable
from dhsched.store.records.events import Logged
from dhsched.tasks import first
from dhsched.web import Request

FIRST_S = 3.0  # A cell whose Workers were not read by then is left out until they are.

Overview = Callable[[], Awaitable[sm.Overview | None]]


class Cursors:
    """Where a reader is in each cell, by name. A cursor without a comma is a time, and counts in every cell."""

    def __init__(self, names: Sequence[str], text: str) -> None:
        parts = text.split(",") if text else []
        if len(parts) == 1:
            parts = parts * len(names)
        if len(parts) not in (0, len(names)):
            raise BadValue(f"the cursor has {len(parts)} parts, and there are {len(names)} cells; begin without one")
        self._names = names
        self.at = dict(zip(names, parts or [""] * len(names), strict=True))

    def __str__(self) -> str:
        return ",".join(self.at[name] for name in self._names)


class Streams:
    """The readers of one replica. `cells` are all of the deployment, in their order."""

    def __init__(self, cells: Sequence[ServedCell]) -> None:
        self._cells = cells
        self._names = [each.name for each in cells]
        self._event_readers: Followers | None = None
        self._change_readers: Followers | None = None

    def _served(self) -> list[ServedCell]:
        return [each for each in self._cells if not each.trouble]

    # -- events

    async def events(self, asked: Request) -> Any:
        query = asked.query
        cursors = Cursors(self._names, query.after if isinstance(query.after, str) else asked.header("Last-Event-ID"))
        found, without = await self._next(cursors, query.limit, latest=not any(cursors.at.values()))
        if len(without) == len(self._names):
            raise StoreUnavailable(f"no cell can be read: {', '.join(without)}", unknown=False)
        if "text/event-stream" in asked.header("Accept"):
            if self._event_readers is None:
                self._event_readers = Followers(self._served()[0].context, "event streams")
            return await self._event_readers.send(asked, self._event_rounds(asked, found, cursors))
        last = str(cursors) if any(cursors.at.values()) else None
        return fm.EventList(found, last, left_out(without))

    async def _event_rounds(
        self, asked: Request, found: list[fm.EventOut], cursors: Cursors
    ) -> AsyncIterator[list[bytes]]:
        while not asked.service.stopping:
            yield [event(each.kind, each, each.id) for each in found]
            if len(found) < PAGE:
                await asyncio.sleep(POLL_S)
            found, _ = await self._next(cursors, PAGE)

    async def _next(self, cursors: Cursors, limit: int, *, latest: bool = False) -> tuple[list[fm.EventOut], list[str]]:
        """Return the next events of all cells by their time, each with the cursor to go on after it as its id, and the
        cells that could not be read. Move the cursors behind them."""
        served = self._served()

        def reading(cell: ServedCell) -> Callable[[], Awaitable[list[Logged]]]:
            log = cell.records.events
            return partial(log.last, limit) if latest else partial(log.after, cursors.at[cell.name] or "0-0", limit)

        read = await asyncio.gather(*(each.promptly(reading(each)) for each in served), return_exceptions=True)
        pages: dict[str, list[Logged]] = {}
        for cell, one in zip(served, read, strict=True):
            if isinstance(one, BaseException) and not isinstance(one, StoreError):
                raise one
            if not isinstance(one, BaseException):
                pages[cell.name] = one
        ordered = ([(each.at_ms, n, name, each) for n, each in enumerate(page)] for name, page in pages.items())
        rows = [*heapq.merge(*ordered)]
        rows = rows[-limit:] if latest else rows[:limit]
        if latest:
            shown = Counter(name for _, _, name, _ in rows)
            for name, page in pages.items():
                if before := page[: len(page) - shown[name]]:
                    cursors.at[name] = before[-1].id
        if latest and rows:
            for name in set(self._names) - set(pages):
                cursors.at[name] = str(rows[0][0])  # Once that cell is back, its older events are not sent.
        found = []
        for _, _, name, logged in rows:
            cursors.at[name] = logged.id
            found.append(structs.replace(event_out(logged), id=str(cursors), cell=name))
        return found, [name for name in self._names if name not in pages]

    # -- changes

    async def changes(self, asked: Request, overview: Overview) -> Any:
        if "text/event-stream" not in asked.header("Accept"):
            cursors, workers = Cursors(self._names, ""), 0
            served = self._served()
            asks = (cell.promptly(cell.replica.changes.now) for cell in served)
            for cell, table in zip(served, await asyncio.gather(*asks, return_exceptions=True), strict=True):
                if isinstance(table, StoreError):
                    continue  # A stream from this cursor is given all Workers, once the cell is back.
                if isinstance(table, BaseException):
                    raise table
                cursors.at[cell.name] = f"{cell.replica.changes.boot}.{table.number}"
                workers += len(table.known)
            return sm.ChangeCursor(str(cursors), workers)
        query = asked.query
        after = Cursors(self._names, query.after if isinstance(query.after, str) else asked.header("Last-Event-ID"))
        if self._change_readers is None:
            self._change_readers = Followers(self._served()[0].context, "change feeds")
        told = overview if query.summary and asked.caller.every_tenant else None
        return await self._change_readers.send(asked, self._change_rounds(asked, after, told))

    async def _change_rounds(
        self, asked: Request, cursors: Cursors, overview: Overview | None
    ) -> AsyncIterator[list[bytes]]:
        """Yield what changed, in batches; all Workers of all cells, where a cell does not know the reader's cursor. A
        cell whose Workers were not read yet is waited for as long as it can be reached, FIRST_S at most."""
        loop = asyncio.get_running_loop()
        first_by = loop.time() + FIRST_S
        shown: sm.Overview | None = None
        feeds: dict[str, ChangeFeed] = {}
        with ExitStack() as held:
            while not asked.service.stopping:
                for cell in self._served():
                    if cell.name not in feeds:
                        feeds[cell.name], first_by = cell.replica.changes, loop.time() + FIRST_S
                        held.enter_context(cell.replica.changes.reading())
                batched = [feed.batched for feed in feeds.values()]
                known = {name: feed for name, feed in feeds.items() if feed.table.whole}
                batches = {name: after(feed, cursors.at[name]) for name, feed in known.items()}
                lost = any(one is None for one in batches.values())
                unread = any(cell.reachable and cell.name not in known for cell in self._served())
                if lost and not (unread and loop.time() < first_by):
                    for name, feed in known.items():
                        cursors.at[name] = f"{feed.boot}.{feed.table.number}"
                    rows = [each.now for feed in known.values() for each in feed.table.known.values()]
                    yield encode_all(asked.caller, rows, str(cursors))
                    continue
                if not lost:
                    yield encoded(asked.caller, batches, cursors)
                if overview is not None:
                    before, shown = shown, await overview()
                    yield [event("summary", shown, "")] if shown is not None and shown is not before else []
                if lost or not any(batches.values()):
                    most_s = WAIT_S if overview is None else OVERVIEW_S
                    await first(*batched, within_s=min(most_s, FIRST_S) if lost else most_s)


def after(feed: ChangeFeed, cursor: str) -> list[sm.Changes] | None:
    """Return the batches of a cell after a reader's cursor; None if they are not all kept."""
    boot, _, number = cursor.partition(".")
    return feed.table.after(int(number)) if boot == feed.boot and number else None


def encoded(caller: Caller, batches: Mapping[str, list[sm.Changes] | None], cursors: Cursors) -> list[bytes]:
    """Return the batches of all cells as events, and move the cursors behind them."""
    found = []
    for name, some in batches.items():
        for batch in some or ():
            boot, _, number = cursors.at[name].partition(".")
            cursors.at[name] = f"{boot}.{int(number) + 1}"
            found.append(encode(caller, batch, str(cursors)))
    return found

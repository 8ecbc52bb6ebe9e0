"""The lives that a filter selects, read a page at a time: lists, and ends of many lives."""

from __future__ import annotations

from dataclasses import dataclass

from dhsched.client.models.base import UNSET
from dhsched.client.models.lives import LiveFilters
from dhsched.dispatch.context import DispatchContext
from dhsched.store.records.lives import LiveRow
from dhsched.types import check_id, check_worker

SCAN_MAX = 1_000  # Lives read for one page; past this the page ends, and its cursor goes on there.
SCAN_STEP = 500  # Lives read in one step: other requests come in between.


@dataclass(frozen=True, slots=True)
class Selection:
    """The lives of a tenant that match all filters. `not_ended` leaves out lives that have ended."""

    tenant: str
    filters: LiveFilters
    not_ended: bool = False

    async def page(self, context: DispatchContext, after: str, limit: int) -> tuple[list[LiveRow], str | None]:
        """Return up to `limit` lives by name after the id `after`, and the id to go on after; None at the end.

        It reads at most SCAN_MAX lives, so a page may be short, or empty, although more lives match.
        """
        lives, worker = context.records.lives, self.filters.worker
        if after:
            check_id(after, "after")
        if worker is not UNSET:
            check_worker(worker)
        timed = self.filters.age_s is not UNSET or self.filters.idle_s is not UNSET
        now_ms = await context.records.server.now_ms() if timed else 0
        found: list[LiveRow] = []
        for _ in range(SCAN_MAX // SCAN_STEP):
            if isinstance(worker, str):
                names = await lives.names_on(worker, self.tenant, after, SCAN_STEP)
            else:
                names = await lives.names(self.tenant, after, SCAN_STEP)
            for row in await lives.rows(names):
                if self.matches(context, row, now_ms):
                    found.append(row)
                if len(found) == limit:
                    more = row.live != names[-1] or len(names) == SCAN_STEP
                    return found, id_of(row.live) if more else None
            if len(names) < SCAN_STEP:
                return found, None
            after = id_of(names[-1])
        return found, after

    def matches(self, context: DispatchContext, row: LiveRow, now_ms: int) -> bool:
        """Return whether a live matches every filter that is given. `now_ms` is the store's time."""
        wanted = self.filters
        if self.not_ended and row.state == "ended":
            return False
        same = (
            (wanted.state, row.state),
            (wanted.digital_id, row.digital_id),
            (wanted.worker, row.worker),
            (wanted.stalled, row.stalled),
        )
        if any(given is not UNSET and given != found for given, found in same):
            return False
        if isinstance(wanted.label, str) and not set(wanted.label.split(",")) <= set(row.labels):
            return False
        if isinstance(wanted.age_s, float) and now_ms - row.created_at < 1_000 * wanted.age_s:
            return False
        if isinstance(wanted.idle_s, float) and (
            row.idle_since is None or now_ms - row.idle_since < 1_000 * wanted.idle_s
        ):
            return False
        if wanted.pool is not UNSET:
            worker = context.fleet.view.workers.get(row.worker)
            return worker is not None and worker.pool == wanted.pool
        return True


def id_of(live: str) -> str:
    return live.partition("/")[2]

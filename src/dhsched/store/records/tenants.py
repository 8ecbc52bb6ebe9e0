"""What is counted per tenant: the replicas' last reports, the usage of each tenant since the beginning, and the input
that it has pending.

`counts` is a hash of replicas to one report each, with the store's own time, so no clock of another machine is
compared. A report that is older than `FRESH_MS` is not passed on: its replica has stopped, and what it counted has
ended with it. `usage` is a hash of totals, which only grow. `pending` is a string: when pending input was measured
last, then tenant and bytes of each tenant that has a limit and some input.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dhsched.store.records.part import Part

REPORT_DEADLINE_S = 1.0  # A report that the store does not answer within this time is made again with the next one.
FRESH_MS = 5_000  # An older report of a replica is not passed on: the replica has stopped.
FORGET_MS = 60_000  # A batch of items that comes again later than this is added again.
METER_TURN_MS = 5_000  # A metering sooner than this after the last one, of any replica, does nothing.
METER_TENANTS = 100  # Tenants of one script, about a millisecond of the store's time; more take more scripts.
MEASURE_TURN_MS = 700  # A measurement sooner than this after the last page of another one does nothing.
MEASURE_LIVES = 250  # Lives of one page, about a millisecond of the store's time; more take more pages.
MEASURE_BYTES = 64 * 1024 * 1024  # A page ends after lives with so much input: a long list takes longer to measure.
MEASURE_TENANTS = 100  # Tenants of one page, where single tenants are measured.
PENDING_MS = 30_000  # A measurement is forgotten after this time: nobody is refused by a figure that nobody renews.
PENDING_TENANTS = 10_000  # Tenants of one measurement that are kept, those with the most input.


class TenantCounts(NamedTuple):
    """What one replica counts of one tenant. `requests` is per second."""

    streams: int
    waiting: int
    requests: int


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """The totals of one tenant, and how many of its lives have not ended now."""

    lives: int
    live_ms: int
    items: int


class Heard(NamedTuple):
    """What a replica hears when it reports: the revision of the configuration, the counts of every other replica, and
    the pending bytes of the last measurement, by tenant."""

    config_rev: int
    others: list[dict[str, TenantCounts]]
    pending: dict[str, int]


class Pending(NamedTuple):
    """A measurement of pending input, or a page of one: when, and bytes by tenant. `after` is the live to go on after,
    empty on the last page. `at_ms` is 0 if there was none, or if another replica had its turn."""

    at_ms: int
    bytes: dict[str, int]
    after: str = ""


class Metered(NamedTuple):
    """What one page of a metering added: `elapsed_ms` for each live of each tenant. `after` is empty on the last."""

    elapsed_ms: int
    after: str
    lives: dict[str, int]


class TenantRecords(Part):
    """What is counted per tenant in a cell."""

    async def report(
        self,
        replica: str,
        counts: Mapping[str, TenantCounts],
        *,
        batch: int = 0,
        items: Mapping[str, int] | None = None,
    ) -> Heard:
        """Keep this replica's counts by tenant, and add its items to the usage unless this batch was added before."""
        said = " ".join(f"{tenant} {c.streams} {c.waiting} {c.requests}" for tenant, c in counts.items())
        added = " ".join(f"{tenant} {count}" for tenant, count in (items or {}).items())
        arguments = (replica, said, batch, added, FRESH_MS, FORGET_MS)
        rev, measured, *others = await self._run("count_tenants", *arguments, deadline_s=REPORT_DEADLINE_S)
        return Heard(int(rev), [parse(each.decode()) for each in others], parse_pending(measured.decode()).bytes)

    async def meter_lives(self, after: str = "", elapsed_ms: int = 0, *, gap_max_ms: int) -> Metered:
        """Add the time since the last metering to each tenant's live time, for a page of tenants.

        The first page decides how long that time is; the others are given it. It is 0 if another replica had its
        turn, and `gap_max_ms` at most.
        """
        arguments = (after, elapsed_ms, METER_TENANTS, METER_TURN_MS, gap_max_ms)
        elapsed, next_, *rows = await self._run("meter_lives", *arguments)
        lives = {tenant.decode(): int(count) for tenant, count in zip(rows[::2], rows[1::2], strict=True)}
        return Metered(int(elapsed), next_.decode(), lives)

    async def measure_pending(self, tenants: Sequence[str], after: str = "", *, turn: bool = False) -> Pending:
        """Measure what the pending input of these tenants takes, or of all tenants if none is named, for a page of
        lives. With `turn`, do so only if no replica has measured a page just now."""
        turn_ms = MEASURE_TURN_MS if turn else 0
        arguments = (after, MEASURE_LIVES, MEASURE_BYTES, turn_ms, " ".join(tenants))
        at, next_, *rows = await self._run("measure_pending", *arguments)
        found = {tenant.decode(): int(count) for tenant, count in zip(rows[::2], rows[1::2], strict=True)}
        return Pending(int(at), found, next_.decode())

    async def keep_pending(self, at_ms: int, found: Mapping[str, int]) -> None:
        """Keep a whole measurement in place of the one before."""
        most = sorted(found.items(), key=lambda row: -row[1])[:PENDING_TENANTS]
        said = " ".join([str(at_ms), *(f"{tenant} {count}" for tenant, count in most)])
        await self._call("SET", "pending", "", said, "PX", PENDING_MS)

    async def pending(self) -> Pending:
        """Return the last measurement of pending input."""
        return parse_pending((await self._call("GET", "pending") or b"").decode())

    async def usage(self, tenant: str) -> TenantUsage:
        """Return the usage of one tenant. A live may end between the commands."""
        between = (f"[{tenant}/", f"({tenant}0")  # The byte after the slash is 0.
        lives, ended, totals = await asyncio.gather(
            self._call("ZLEXCOUNT", "lives", "", *between),
            self._call("ZLEXCOUNT", "ended", "", *between),
            self._call("HMGET", "usage", "", f"{tenant} live_ms", f"{tenant} items"),
        )
        live_ms, items = (int(each or 0) for each in totals)
        return TenantUsage(max(0, lives - ended), live_ms, items)


def parse(said: str) -> dict[str, TenantCounts]:
    """Return the counts by tenant of one report."""
    words = said.split()
    rows = (words[at : at + 4] for at in range(0, len(words), 4))
    return {tenant: TenantCounts(*map(int, numbers)) for tenant, *numbers in rows}


def parse_pending(said: str) -> Pending:
    """Return a measurement of pending input as it is kept; an empty one if there is none."""
    at, *words = said.split() or ["0"]
    return Pending(int(at), {tenant: int(count) for tenant, count in zip(words[::2], words[1::2], strict=True)})

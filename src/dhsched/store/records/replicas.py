"""The replicas of the roles, as each tells of itself every few seconds: Dispatch replicas and Infer-Controllers.

`replicas` is a hash of `role/name` to the store's time and a report, so no clock of another machine is compared. The
list is for people: nothing is decided by it. A replica that has told nothing for `AGE_MAX_MS` is not listed.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from dhsched.store.records.part import Part
from dhsched.store.records.server import ServerRecords
from dhsched.store.steps.replies import text

REPORT_S = 3.0  # Time between two reports of a replica, on average.
REPORT_DEADLINE_S = 1.0  # A report that the store does not take within this time is left out.
AGE_MAX_MS = 15_000  # Older reports are not listed ...
FORGET_MS = 60_000  # ... and reports of this age are removed by the next report of any replica.
REPLICAS_MAX = 256  # Further replicas are not listed.
MISSING_MAX = 8  # Further reasons why a replica is not ready are left out.
LAG_MS = 50  # Event loops of Workers that are less late than this are not told of.
LAGS_MAX = 64  # Of more late Workers at one replica the least late are left out.


class SafetyCounts(msgspec.Struct):
    """What one replica has found since it started that must never be, and how long ago it looked last (None: not yet).
    `workers` counts the Workers that it has looked at."""

    drift: int = 0
    overshoots: int = 0
    dual_owners: int = 0
    workers: int = 0
    checked_ms_ago: int | None = None


class ReplicaReport(msgspec.Struct, frozen=True):
    """A replica as it tells of itself. `missing` are the reasons for which it is not ready; empty if it is."""

    role: str
    name: str
    version: str
    url: str = ""
    up_s: int = 0
    missing: tuple[str, ...] = ()
    creates_waiting: int = 0
    silent: int = 0
    """Workers that this replica finds silent while its brake is on."""
    safety: SafetyCounts | None = None
    lags: dict[str, int] | None = None
    """How late event loops of Workers were that are linked to this replica, in ms, from LAG_MS on."""

    def lag_of(self, worker: str) -> int | None:
        """Return the lag of a Worker that is linked to this replica: 0 if it is below LAG_MS, None if it is unknown."""
        if self.lags is None or (len(self.lags) >= LAGS_MAX and worker not in self.lags):
            return None
        return self.lags.get(worker, 0)


class Reported(NamedTuple):
    """A report, and how old it is."""

    report: ReplicaReport
    age_ms: int


_decoder = msgspec.json.Decoder(ReplicaReport)


class ReplicaRecords(Part):
    """The reports of the replicas of a cell."""

    async def report(self, report: ReplicaReport) -> None:
        """Keep this report in place of the replica's earlier one."""
        name, told = f"{report.role}/{report.name}", msgspec.json.encode(report)
        await self._run("report_replica", name, told, FORGET_MS, deadline_s=REPORT_DEADLINE_S)

    async def withdraw(self, role: str, name: str) -> None:
        """Remove the report of a replica that stops."""
        await self._call("HDEL", "replicas", "", f"{role}/{name}")

    async def all(self) -> list[Reported]:
        """Return the reports of the last AGE_MAX_MS, by role and name."""
        now_ms, found = await asyncio.gather(ServerRecords(self._link).now_ms(), self._call("HGETALL", "replicas"))
        rows = sorted((text(name), value) for name, value in found.items())
        reported = [_reported(value, now_ms) for _, value in rows]
        return [each for each in reported if each.age_ms <= AGE_MAX_MS][:REPLICAS_MAX]


def _reported(value: bytes, now_ms: int) -> Reported:
    at, _, report = value.partition(b" ")
    return Reported(_decoder.decode(report), max(0, now_ms - int(at)))

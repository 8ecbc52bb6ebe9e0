"""The context that all parts of a dispatch replica share: store, records, view, settings, telemetry."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Protocol

from dhsched.access.quota_reports import QuotaReports
from dhsched.access.ring import KeyRing
from dhsched.dispatch.recovery.safety import SafetyTotals
from dhsched.dispatch.recovery.terms import Terms
from dhsched.dispatch.telemetry.audit import Audit
from dhsched.dispatch.telemetry.events import Events
from dhsched.dispatch.telemetry.handoffs import Handoffs
from dhsched.dispatch.telemetry.metering import Metering
from dhsched.dispatch.telemetry.metrics import Metrics
from dhsched.dispatch.telemetry.pending import PendingInput
from dhsched.dispatch.view.create_queue import CreateQueue
from dhsched.dispatch.view.fleet_view import Fleet
from dhsched.ownership import outcomes as o
from dhsched.placement import Choice, Won
from dhsched.settings import DispatchSettings
from dhsched.store.records import Records
from dhsched.store.steps.redis import RedisStore
from dhsched.web import Service


@dataclass(frozen=True, slots=True)
class Remembered:
    """The last choice that this replica made for a live, and the store's answer to the choice."""

    choice: Choice
    outcome: str
    epoch: int
    refusals: tuple[o.Refusal, ...]
    won: Won | None = None


class Created(Protocol):
    """What a replica has created of a tenant in one cell, since it counted there last."""

    made: int


class Elsewhere(Protocol):
    """The lives of tenants in other cells than this one (cells/counts.py)."""

    async def count(self, tenant: str) -> int:
        """Return how many lives of a tenant that have not ended are in other cells."""

    def creating(self, tenant: str) -> AbstractContextManager[Created]:
        """Count one more live of a tenant here while the block runs. Whoever has created it adds 1 to `made`."""


@dataclass(slots=True, kw_only=True)
class DispatchContext:
    """The state of one replica. All but the store is a cache, so a replica may be killed at any instruction."""

    replica: str
    """This replica's id, which is part of the name of its channel in the store."""
    cell: str
    """The name of the cell, where the deployment has several; else empty."""
    store: RedisStore
    records: Records
    ring: KeyRing
    fleet: Fleet
    settings: DispatchSettings
    service: Service
    metrics: Metrics
    create_queue: CreateQueue
    handoffs: Handoffs
    events: Events
    audit: Audit
    terms: Terms
    metering: Metering
    pending_input: PendingInput
    quota_reports: QuotaReports
    lives_elsewhere: Elsewhere | None = None
    """What creates here need to know of the other cells. None where there are none."""
    safety: SafetyTotals = field(default_factory=SafetyTotals)
    """What the safety checks of this replica have found."""
    rng: Random = field(default_factory=Random)
    remembered: OrderedDict[str, Remembered] = field(default_factory=OrderedDict)
    """The last choice for each live, the latest last: `commit` keeps REMEMBERED_MAX of them."""
    operation: Callable[[], str] = field(default_factory=lambda: operation_ids("op"))
    """Returns an operation id that was never used."""
    forced_operation: Callable[[], str] = field(default_factory=lambda: operation_ids("forced"))
    """The same for a cutover that does not wait for its boundary: the live's history shows it."""

    def loop_time(self) -> float:
        """Return the time of this process's own monotonic clock, in seconds."""
        return asyncio.get_running_loop().time()


def operation_ids(kind: str) -> Callable[[], str]:
    """Return a function that returns another operation id at each call. A replica may come back under its name, so all
    ids of one function have the same random beginning."""
    return map(f"{kind}-{secrets.token_hex(6)}-{{}}".format, count(1)).__next__

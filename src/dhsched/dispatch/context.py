"""The context that all parts of a dispatch replica share: store, records, view, settings, telemetry."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TypeVar

from dhsched import failpoints
from dhsched.access.quota_reports import QuotaReports
from dhsched.access.ring import KeyRing
from dhsched.dispatch.recovery.terms import Terms
from dhsched.dispatch.telemetry.audit import Audit
from dhsched.dispatch.telemetry.events import Events
from dhsched.dispatch.telemetry.handoffs import Handoffs
from dhsched.dispatch.telemetry.metering import Metering
from dhsched.dispatch.telemetry.metrics import Metrics
from dhsched.dispatch.telemetry.pending import PendingInput
from dhsched.dispatch.view.create_queue import CreateQueue
from dhsched.dispatch.view.fleet_view import Fleet
from dhsched.errors import StoreUnavailable
from dhsched.ownership import outcomes as o
from dhsched.placement import Choice, Won
from dhsched.settings import DispatchSettings
from dhsched.store.records import Records
from dhsched.store.steps.redis import RedisStore
from dhsched.web import Service

REMEMBERED_MAX = 4_096  # Choices kept for `why`; past this the oldest is forgotten, and `why` explains "now".
RETRY_S = 0.1  # Time between two tries of a store call whose outcome is unknown.
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Remembered:
    """The last choice that this replica made for a live, and the store's answer to the choice."""

    choice: Choice
    outcome: str
    epoch: int
    refusals: tuple[o.Refusal, ...]
    won: Won | None = None


@dataclass(slots=True, kw_only=True)
class DispatchContext:
    """The state of one replica. All but the store is a cache, so a replica may be killed at any instruction."""

    replica: str
    """This replica's id, which is part of the name of its channel in the store."""
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
    rng: Random = field(default_factory=Random)
    _remembered: OrderedDict[str, Remembered] = field(default_factory=OrderedDict)
    _operations: count[int] = field(default_factory=lambda: count(1))
    _boot: str = field(default_factory=lambda: secrets.token_hex(6))

    def operation(self, kind: str = "op") -> str:
        """Return an operation id that was never used. A replica may come back under its name, so the id has its boot.

        A live's history shows the id: a cutover that did not wait for its boundary is of the kind `forced`.
        """
        return f"{kind}-{self._boot}-{next(self._operations)}"

    def loop_time(self) -> float:
        """Return the time of this process's own monotonic clock, in seconds."""
        return asyncio.get_running_loop().time()

    def until(self) -> float:
        """Return the loop time at which a request that begins now stops retrying store calls."""
        return asyncio.get_running_loop().time() + self.settings.deadline_s

    def remember(self, live: str, remembered: Remembered) -> None:
        self._remembered[live] = remembered
        self._remembered.move_to_end(live)
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def remembered(self, live: str) -> Remembered | None:
        return self._remembered.get(live)


async def retry_unknown(point: str, call: Callable[[], Awaitable[T]], *, until: float) -> T:
    """Make a store call that changes something, repeat it unchanged while its outcome is unknown, return its outcome.

    After `until` (loop time) the last StoreUnavailable is raised. Each such call is safe to repeat: by its operation
    id, by its request id, or because twice is the same as once.
    """
    loop = asyncio.get_running_loop()
    while True:
        if failpoints.point == f"{point}.before":
            failpoints.die()
        try:
            answer = await call()
        except StoreUnavailable:
            if loop.time() + RETRY_S >= until:
                raise
            await asyncio.sleep(RETRY_S)
            continue
        if failpoints.point == f"{point}.after":
            failpoints.die()
        return answer

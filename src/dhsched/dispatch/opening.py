"""A replica in one cell: from the address of its store to the context that its parts share.

What a replica has once, however many cells it serves, is in `Shared`.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from dhsched.access.quota_reports import QuotaReports
from dhsched.access.ring import KeyRing
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery.terms import Terms
from dhsched.dispatch.telemetry.audit import Audit
from dhsched.dispatch.telemetry.events import Events
from dhsched.dispatch.telemetry.fleet_metrics import FleetMetrics
from dhsched.dispatch.telemetry.handoffs import Handoffs
from dhsched.dispatch.telemetry.metering import Metering
from dhsched.dispatch.telemetry.metrics import Metrics
from dhsched.dispatch.telemetry.pending import PendingInput
from dhsched.dispatch.view.create_queue import CreateQueue
from dhsched.dispatch.view.fleet_view import Fleet
from dhsched.errors import StoreError
from dhsched.ownership.limits import Limits
from dhsched.settings import DispatchSettings
from dhsched.store.homes import Entry
from dhsched.store.link.address import Address
from dhsched.store.link.link import LinkSettings
from dhsched.store.records import Records
from dhsched.store.steps.redis import RedisStore
from dhsched.types import check_id
from dhsched.web import Service

PING_S = 1.0  # A store that does not answer within this time makes /readyz fail.
TRY_MAX_S = 2.0  # A step that the store does not answer within this time has an unknown outcome, and is repeated.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What a replica has once for all of its cells. `first` is the cell where the configuration is written and tenants
    are counted; empty where there is only one."""

    name: str
    service: Service
    ring: KeyRing
    settings: DispatchSettings
    first: str = ""


def replica_name(settings: DispatchSettings) -> str:
    return check_id(settings.name or f"d-{secrets.token_hex(4)}", "name")


@asynccontextmanager
async def open_store(
    address: Address, cell: str, settings: DispatchSettings, *, cells: Sequence[str], limits: Limits
) -> AsyncIterator[tuple[RedisStore, Records]]:
    """Connect to one cell of the deployment that has `cells`: with a link for steps, and one for large reads."""
    # One try gets half of the request's deadline, so that a call whose outcome is unknown can be repeated in time.
    link = LinkSettings(deadline_s=min(TRY_MAX_S, settings.deadline_s / 2), client_name="dhsched-dispatch")
    async with (
        await RedisStore.open(address, cell=cell, settings=link, limits=limits) as store,
        await Records.open(address, cell=cell) as records,
    ):
        await store.records.server.refuse_eviction(allowed=settings.allow_eviction)
        await store.records.cells.refuse_others(cells)
        yield store, records


@asynccontextmanager
async def open_in_cell(
    store: RedisStore, records: Records, shared: Shared, *, registry: CollectorRegistry, cell: str = ""
) -> AsyncIterator[DispatchContext]:
    """Read the first view and yield the context; write what is still to be written when the block is left. `cell` is
    the name of one cell of several."""
    fleet = Fleet(records, shared.settings, store=store)
    async with AsyncExitStack() as stack:
        await fleet.start()
        stack.push_async_callback(fleet.stop)
        context = make_context(store, records, fleet, shared, registry=registry, cell=cell)
        await context.quota_reports.read_limits()
        stack.push_async_callback(context.events.written)
        stack.push_async_callback(context.audit.written)
        yield context


def make_context(
    store: RedisStore, records: Records, fleet: Fleet, shared: Shared, *, registry: CollectorRegistry, cell: str
) -> DispatchContext:
    """Return the context of a replica over an open store, its records and its view. Its metrics are in `registry`."""
    name, service, settings = shared.name, shared.service, shared.settings
    create_queue = CreateQueue(settings.waiting_max)
    fleet.on_refresh.append(lambda: create_queue.wake(fleet.free_slots()))
    events = Events(store.records.events, replica=name, registry=registry)
    store.link.two_primaries.report_to(
        lambda found: events.say("two_primaries", used=found.used, refused=[*found.refused])
    )
    context = DispatchContext(
        replica=name,
        cell=cell,
        store=store,
        records=records,
        ring=shared.ring,
        fleet=fleet,
        settings=settings,
        service=service,
        metrics=Metrics(registry),
        create_queue=create_queue,
        handoffs=Handoffs(records, registry),
        events=events,
        audit=Audit(store.records.audit, registry=registry),
        terms=Terms(store, fleet, events),
        metering=Metering(store.records, registry, settings.meter_s),
        pending_input=PendingInput(store.records, service.quotas),
        quota_reports=QuotaReports(
            f"dispatch/{name}",
            service.quotas,
            reads=records,
            writes=store.records,
            counts=cell in ("", shared.first),
        ),
    )
    registry.register(FleetMetrics(fleet))

    def entered(entry: Entry) -> None:
        for kind, numbers in entry.events():
            events.say(kind, worker="", live="", **numbers)

    entered(store.homes.latest)
    store.homes.on_entered.append(entered)
    context.metrics.watch(context)
    return context


async def missing(context: DispatchContext) -> list[str]:
    """Return the reasons for which this replica should get no traffic; empty when it is ready."""
    found: list[str] = []
    settling = context.store.link.settling
    try:
        # Where replies are settled the ping is too, so an idle replica notices that its store settles again.
        await context.store.records.server.ping(deadline_s=PING_S)
    except StoreError as error:
        found.append((settling.trouble if settling is not None else "") or str(error))
    if context.fleet.age_s > context.settings.fresh_s:
        age = f"{context.fleet.age_s:.1f} s old, and {context.settings.fresh_s:g} s is the limit"
        found.append(f"its view of the fleet is {age}")
    return found

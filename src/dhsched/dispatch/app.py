"""One dispatch replica: build its parts, start its loops, serve its API, and stop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from aiohttp import web

from dhsched.access.development import development_key, noted
from dhsched.access.quota_reports import REPORT_S, QuotaReports
from dhsched.access.ring import KeyRing, open_ring
from dhsched.dispatch.api.audit import AuditTrail
from dhsched.dispatch.api.blocked import BlockedWorkers
from dhsched.dispatch.api.changes import ChangesFeed
from dhsched.dispatch.api.configuration import Configuration
from dhsched.dispatch.api.create import Creates
from dhsched.dispatch.api.dead_letters import DeadLetters
from dhsched.dispatch.api.drains import Drains
from dhsched.dispatch.api.events import EventFeed
from dhsched.dispatch.api.keys import KeyEndpoints
from dhsched.dispatch.api.live_lists import LiveLists
from dhsched.dispatch.api.lives import Lives
from dhsched.dispatch.api.logs import Logs
from dhsched.dispatch.api.machines import Machines
from dhsched.dispatch.api.publishing import PublishTokens
from dhsched.dispatch.api.reassign import Reassign
from dhsched.dispatch.api.rebalance import RebalanceView
from dhsched.dispatch.api.recoveries import Recoveries
from dhsched.dispatch.api.saved_state import SavedStates
from dhsched.dispatch.api.store import StoreView
from dhsched.dispatch.api.summary import SummaryView
from dhsched.dispatch.api.tenants import Tenants
from dhsched.dispatch.api.viewers import ViewerTokens
from dhsched.dispatch.api.why import Why
from dhsched.dispatch.api.workers import Workers
from dhsched.dispatch.console import console_routes
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.loops import Round, running
from dhsched.dispatch.moves.cutover import Cutovers
from dhsched.dispatch.moves.drain import Draining
from dhsched.dispatch.moves.plan import DrainNotes
from dhsched.dispatch.moves.rebalance import Rebalancing
from dhsched.dispatch.passing import Passing
from dhsched.dispatch.recovery.liveness import Liveness
from dhsched.dispatch.recovery.reconcile import Reconciliation
from dhsched.dispatch.recovery.recover import Recovery
from dhsched.dispatch.recovery.silences import Silences
from dhsched.dispatch.recovery.terms import Terms
from dhsched.dispatch.telemetry.audit import Audit
from dhsched.dispatch.telemetry.events import Events
from dhsched.dispatch.telemetry.fleet_metrics import FleetMetrics
from dhsched.dispatch.telemetry.handoffs import Handoffs
from dhsched.dispatch.telemetry.metering import Metering
from dhsched.dispatch.telemetry.metrics import Metrics
from dhsched.dispatch.telemetry.pending import PENDING_S, PendingInput
from dhsched.dispatch.telemetry.replica_reports import ReplicaReports
from dhsched.dispatch.telemetry.traces import tracing
from dhsched.dispatch.view.changes import ChangeFeed
from dhsched.dispatch.view.create_queue import CreateQueue
from dhsched.dispatch.view.fleet_view import Fleet
from dhsched.dispatch.worker_link import WorkerLinks
from dhsched.errors import StoreError
from dhsched.input_routes import INPUT
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.settings import DispatchSettings
from dhsched.store.homes import Entry
from dhsched.store.link.address import Address
from dhsched.store.link.link import LinkSettings
from dhsched.store.records import Records
from dhsched.store.records.replicas import REPORT_S as REPLICA_REPORT_S
from dhsched.store.server.embedded import given_or_embedded
from dhsched.store.steps.redis import RedisStore
from dhsched.types import check_id
from dhsched.web import MINT, SESSIONS, Endpoint, make_app, make_service, open_gate, serve_role

HANDOFFS_S = 1.0  # Time between two readings of how far new generations have come.
PING_S = 1.0  # A store that does not answer within this time makes /readyz fail.
TRY_MAX_S = 2.0  # A step that the store does not answer within this time has an unknown outcome, and is repeated.


async def run_dispatch(settings: DispatchSettings, stop: asyncio.Event, say: Callable[[str], None]) -> None:
    """Run one replica until `stop` is set."""
    async with (
        given_or_embedded(settings.store) as address,
        open_context(address, settings) as context,
        tracing(context) as traces,
    ):
        replica = Replica(context)
        with noted(await development_key(settings, context.ring), say) as listening:
            async with running({**replica.loops(), **traces}, rng=context.rng):
                await serve_role(settings, replica.app(), stop=stop, say=listening)


@asynccontextmanager
async def open_context(
    address: Address, settings: DispatchSettings, *, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[DispatchContext]:
    """Connect to the store, read the first view, yield the context, and close everything when the block is left."""
    async with AsyncExitStack() as stack:
        # One try gets half of the request's deadline, so that a call whose outcome is unknown can be repeated in time.
        link = LinkSettings(deadline_s=min(TRY_MAX_S, settings.deadline_s / 2), client_name="dhsched-dispatch")
        opening = RedisStore.open(address, cell=settings.cell, settings=link, limits=limits)
        store = await stack.enter_async_context(await opening)
        await store.records.server.refuse_eviction(allowed=settings.allow_eviction)
        records = await stack.enter_async_context(await Records.open(address, cell=settings.cell))
        fleet = Fleet(records, settings, store=store)
        await fleet.start()
        stack.push_async_callback(fleet.stop)
        ring = await open_ring(store.link, store.keys)
        context = make_context(store, records, ring, fleet, settings)
        await context.quota_reports.read_limits()
        await stack.enter_async_context(open_gate(context.service, settings, ring))
        stack.push_async_callback(context.events.written)
        stack.push_async_callback(context.audit.written)
        yield context


def make_context(
    store: RedisStore, records: Records, ring: KeyRing, fleet: Fleet, settings: DispatchSettings
) -> DispatchContext:
    """Return the context of a replica over an open store, its records, key ring and view."""

    async def ready() -> Sequence[str]:
        return await missing(context)

    name = check_id(settings.name or f"d-{secrets.token_hex(4)}", "name")
    service = make_service(settings, role="dispatch", instance=name, ready=ready)
    create_queue = CreateQueue(settings.waiting_max)
    fleet.on_refresh.append(lambda: create_queue.wake(fleet.free_slots()))
    events = Events(store.records.events, replica=name, registry=service.registry)
    store.link.two_primaries.report_to(
        lambda found: events.say("two_primaries", used=found.used, refused=[*found.refused])
    )
    audit = Audit(store.records.audit, registry=service.registry)
    service.audit = audit.note
    context = DispatchContext(
        replica=name,
        store=store,
        records=records,
        ring=ring,
        fleet=fleet,
        settings=settings,
        service=service,
        metrics=Metrics(service.registry),
        create_queue=create_queue,
        handoffs=Handoffs(records, service.registry),
        events=events,
        audit=audit,
        terms=Terms(store, fleet, events),
        metering=Metering(store.records, service.registry, settings.meter_s),
        pending_input=PendingInput(store.records, service.quotas),
        quota_reports=QuotaReports(f"dispatch/{name}", service.quotas, reads=records, writes=store.records),
    )
    service.registry.register(FleetMetrics(fleet))

    def entered(entry: Entry) -> None:
        for kind, numbers in entry.events():
            events.say(kind, worker="", live="", **numbers)

    entered(store.homes.latest)
    store.homes.on_entered.append(entered)
    context.metrics.watch(context)
    return context


class Replica:
    """The parts of one replica over its context: the endpoints that it serves, and the loops that it runs."""

    def __init__(self, context: DispatchContext) -> None:
        self.context = context
        self.silences = Silences()
        self.drain_notes = DrainNotes()
        self.rebalancing = Rebalancing(context)
        self.changes = ChangeFeed(context)
        self._cutovers = Cutovers(context, self.silences)
        self._worker_links = WorkerLinks(context, self.silences, on_prepared=self._cutovers.prepared)

    def app(self) -> web.Application:
        passing = Passing(self.context)
        raw = [*self._worker_links.routes(), *passing.routes(), *console_routes(self.context.settings.room)]
        self.context.service.passed_on = frozenset(each.name for each in INPUT)
        app = make_app(self.context.service, self.endpoints(), raw, INPUT)
        app.on_shutdown.append(passing.stop)
        app.on_cleanup.append(passing.close)
        return app

    def loops(self) -> dict[str, tuple[Round, float]]:
        """Return this replica's loops by name: the function that does one round, and the seconds between rounds."""
        context, settings = self.context, self.context.settings
        recovery = Recovery(context, self.silences)
        reconciliation = Reconciliation(context, recovery)
        liveness = Liveness(context, self.silences)
        draining = Draining(context, self._cutovers, self.drain_notes)
        context.fleet.on_refresh.append(self.changes.refreshed)
        reports = ReplicaReports(context, self.silences, partial(missing, context), self._worker_links.lags)
        return {
            "drain": (draining.round, settings.drain_s),
            "drain, new": (draining.begin, 0.0),
            "drain, next": (draining.follow, 0.0),
            "rebalance": (self.rebalancing.round, settings.rebalance_s),
            "cutovers": (self._cutovers.round, settings.cut_over_s),
            "liveness": (liveness.round, settings.liveness_s),
            "liveness, told": (liveness.follow, 0.0),
            "recovery": (recovery.round, settings.recover_s),
            "recovery, told": (recovery.follow, 0.0),
            "handoffs": (context.handoffs.round, HANDOFFS_S),
            "reconciliation": (reconciliation.round, settings.reconcile_s),
            "quotas": (context.quota_reports.round, REPORT_S),
            "metering": (context.metering.round, settings.meter_s),
            "pending input": (context.pending_input.round, PENDING_S),
            "terms": (reconciliation.follow, 0.0),
            "replica report": (reports.round, REPLICA_REPORT_S),
            "changes": (self.changes.follow, 0.0),
        }

    def endpoints(self) -> list[Endpoint]:
        """Return every endpoint of the API: served by `app`, and listed in /openapi.json."""
        context = self.context
        summaries = SummaryView(context, self.rebalancing)
        parts = (
            *(Creates(context), Lives(context), LiveLists(context), Reassign(context), Why(context)),
            *(DeadLetters(context), Logs(context), SavedStates(context)),
            *(Workers(context), BlockedWorkers(context), Drains(context, self.drain_notes)),
            *(
                Configuration(context),
                Tenants(context),
                RebalanceView(context),
                Recoveries(context),
                EventFeed(context),
                ChangesFeed(context, self.changes, summaries),
                summaries,
            ),
            *(PublishTokens(context), ViewerTokens(context), StoreView(context), AuditTrail(context)),
        )
        served = [endpoint for part in parts for endpoint in part.endpoints()]
        return [*served, MINT, *SESSIONS, *KeyEndpoints(context).endpoints(), *Machines(context).endpoints()]


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

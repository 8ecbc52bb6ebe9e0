"""The parts of one Dispatch replica in one cell: the endpoints that it serves, and the loops that it runs."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from dhsched.access.quota_reports import REPORT_S
from dhsched.dispatch.api.audit import AuditTrail
from dhsched.dispatch.api.blocked import BlockedWorkers
from dhsched.dispatch.api.cells import CellView
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
from dhsched.dispatch.loops import Round
from dhsched.dispatch.moves.cutover import Cutovers
from dhsched.dispatch.moves.drain import Draining
from dhsched.dispatch.moves.plan import DrainNotes
from dhsched.dispatch.moves.rebalance import Rebalancing
from dhsched.dispatch.opening import missing
from dhsched.dispatch.passing import Passing
from dhsched.dispatch.recovery.liveness import Liveness
from dhsched.dispatch.recovery.reconcile import Reconciliation
from dhsched.dispatch.recovery.recover import Recovery
from dhsched.dispatch.recovery.silences import Silences
from dhsched.dispatch.telemetry.pending import PENDING_S
from dhsched.dispatch.telemetry.replica_reports import ReplicaReports
from dhsched.dispatch.view.changes import ChangeFeed
from dhsched.dispatch.worker_link import WorkerLinks
from dhsched.input_routes import INPUT
from dhsched.store.records.replicas import REPORT_S as REPLICA_REPORT_S
from dhsched.web import MINT, SESSIONS, Endpoint, make_app

HANDOFFS_S = 1.0  # Time between two readings of how far new generations have come.


class Replica:
    """The parts of one replica over its context: the endpoints that it serves, and the loops that it runs."""

    def __init__(self, context: DispatchContext) -> None:
        self.context = context
        self.silences = Silences()
        self.drain_notes = DrainNotes()
        self.rebalancing = Rebalancing(context)
        self.changes = ChangeFeed(context)
        self._cutovers = Cutovers(context, self.silences)
        self.summaries = SummaryView(context, self.rebalancing)
        self.configuration = Configuration(context)
        self.machines = Machines(context)
        self.worker_links = WorkerLinks(context, self.silences, on_prepared=self._cutovers.prepared)

    def app(self) -> web.Application:
        passing = Passing(self.context)
        raw = [*self.worker_links.routes(), *passing.routes(), *console_routes(self.context.settings.room)]
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
        draining = Draining(context, self._cutovers, self.drain_notes, self.worker_links.send_to)
        context.fleet.on_refresh.append(self.changes.refreshed)
        reports = ReplicaReports(context, self.silences, partial(missing, context), self.worker_links.lags)
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
        parts = (
            *(Creates(context), Lives(context), LiveLists(context), Reassign(context), Why(context)),
            *(DeadLetters(context), Logs(context), SavedStates(context)),
            *(Workers(context), BlockedWorkers(context), Drains(context, self.drain_notes)),
            *(
                self.configuration,
                Tenants(context),
                RebalanceView(context),
                Recoveries(context),
                EventFeed(context),
                ChangesFeed(context, self.changes, self.summaries),
                self.summaries,
            ),
            *(PublishTokens(context), ViewerTokens(context), StoreView(context), CellView(context)),
            AuditTrail(context),
        )
        served = [endpoint for part in parts for endpoint in part.endpoints()]
        return [*served, MINT, *SESSIONS, *KeyEndpoints(context).endpoints(), *self.machines.endpoints()]

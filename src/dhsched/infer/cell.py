"""A controller in one cell: from the address of its store to the parts that serve the cell's lives and Workers."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry

import dhsched
from dhsched.access.quota_reports import QuotaReports
from dhsched.access.ring import KeyRing
from dhsched.errors import StoreError
from dhsched.infer.append_rules import store_full
from dhsched.infer.context import Connections, InferContext, Metrics
from dhsched.infer.emits import Emits
from dhsched.infer.item_traces import ItemTraces
from dhsched.infer.logs import Logs
from dhsched.infer.pull import PullText
from dhsched.infer.pulls import Pulls
from dhsched.infer.settings import InferSettings
from dhsched.ownership.limits import Limits
from dhsched.store.homes import Entry
from dhsched.store.link.address import Address
from dhsched.store.link.connect import LinkSettings
from dhsched.store.records import Records
from dhsched.store.records.controllers import ANNOUNCE_S, Controller
from dhsched.store.records.events import Event
from dhsched.store.records.replicas import MISSING_MAX, REPORT_S, ReplicaReport
from dhsched.store.records.writer import Writer
from dhsched.store.steps.redis import RedisStore
from dhsched.store.steps.scripts import Script
from dhsched.tasks import is_set_within
from dhsched.tokens import Tokens
from dhsched.web import Service, make_service, open_gate
from dhsched.web.figures import SettlingFigures
from dhsched.web.otlp import open_sender

log = structlog.get_logger(__name__)

GOODBYE_S = 0.2  # Time between `goodbye` to the Workers and the end of serving.
LAST_REPORTS_MAX = 10  # Batches of items that a controller still writes when it stops; further ones are lost.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What a controller has once for all of its cells. `first` is the cell where tenants are counted; empty where there
    is only one."""

    name: str
    service: Service
    ring: KeyRing
    settings: InferSettings
    connections: Connections
    traces: ItemTraces | None = None
    first: str = ""


@dataclass(slots=True)
class InferCell:
    """One cell of a controller, ready to be served."""

    context: InferContext
    pull_text: PullText

    async def announce_until(self, url: str, stop: asyncio.Event) -> None:
        """Announce this controller's URL and report what it counts of tenants every ANNOUNCE_S; after `stop`, withdraw
        the URL and send the Workers away, to whom the connections stay open for a moment."""
        store = self.context.store
        controller = Controller(self.context.service.instance, url)
        loop = asyncio.get_running_loop()
        began = report_at = loop.time()
        while not stop.is_set():
            try:
                await store.records.controllers.announce(controller)
                if loop.time() >= report_at:
                    report_at = loop.time() + REPORT_S
                    await store.records.replicas.report(await self._report(url, loop.time() - began))
                await self.context.quota_reports.round()
                self.context.memory_share = await self.context.records.server.memory_share()
            except StoreError as error:
                log.warning("cannot announce this controller", reason=str(error))
                self.pull_text.unavailable(error)
            await is_set_within(ANNOUNCE_S, stop)
        with contextlib.suppress(StoreError):
            await store.records.controllers.withdraw(controller)
            await store.records.replicas.withdraw("infer", controller.id)
        self.pull_text.goodbye()
        await asyncio.sleep(GOODBYE_S)
        await self.context.logs.written()
        with contextlib.suppress(StoreError):
            for _ in range(LAST_REPORTS_MAX):
                if self.context.metrics.usage.unwritten:
                    await self.context.quota_reports.round()

    async def _report(self, url: str, up_s: float) -> ReplicaReport:
        """Return what this controller tells of itself, for `GET /v1/replicas`."""
        return ReplicaReport(
            role="infer",
            name=self.context.service.instance,
            version=dhsched.__version__,
            url=url,
            up_s=int(up_s),
            missing=tuple(await self.context.service.ready())[:MISSING_MAX],
        )


@asynccontextmanager
async def open_shared(
    settings: InferSettings, ring: KeyRing, *, ready: Callable[[], Awaitable[Sequence[str]]], first: str = ""
) -> AsyncIterator[Shared]:
    """Yield what the controller has once for all of its cells, of which `first` is the first of several."""
    name = settings.name or f"i-{secrets.token_hex(4)}"
    service = make_service(settings, role="infer", instance=name, ready=ready)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_gate(service, settings, ring))
        traces = None
        if settings.otlp:
            traces = ItemTraces(await stack.enter_async_context(open_sender(settings.otlp, "dhsched-infer", name)))
        yield Shared(
            name=name,
            service=service,
            ring=ring,
            settings=settings,
            connections=Connections(settings, service),
            traces=traces,
            first=first,
        )


@asynccontextmanager
async def open_store(
    address: Address,
    cell: str,
    settings: InferSettings,
    *,
    cells: Sequence[str],
    limits: Limits,
    scripts: Mapping[str, Script] | None = None,
) -> AsyncIterator[tuple[RedisStore, Records]]:
    """Connect to one cell of the deployment that has `cells`: with a link for steps, and one for large reads."""
    linked = LinkSettings(client_name="dhsched-infer")
    async with (
        await RedisStore.open(address, cell=cell, limits=limits, settings=linked, scripts=scripts) as store,
        await Records.open(address, cell=cell) as records,
    ):
        await store.records.server.refuse_eviction(allowed=settings.allow_eviction)
        await store.records.cells.refuse_others(cells)
        yield store, records


async def open_in_cell(
    store: RedisStore, records: Records, shared: Shared, *, registry: CollectorRegistry, cell: str = ""
) -> InferCell:
    """Return what serves a cell over its open store. Its metrics are in `registry`. `cell` is the name of one cell of
    several."""
    name, service, settings = shared.name, shared.service, shared.settings
    pulls = Pulls(store, settings.credit, name)
    pulls.traces = shared.traces
    metrics = Metrics(registry)
    emits = Emits(store, pulls)
    logs = Logs(store.records.logs, settings, lambda: store_full(context.memory_share, settings.memory_max) is not None)
    context = InferContext(
        store=store,
        records=records,
        settings=settings,
        service=service,
        metrics=metrics,
        pulls=pulls,
        emits=emits,
        logs=logs,
        quota_reports=QuotaReports(
            f"infer/{name}",
            service.quotas,
            metrics.usage,
            reads=records,
            writes=store.records,
            counts=cell in ("", shared.first),
        ),
        connections=shared.connections,
        cell=cell,
    )
    # First what may fail: after a failure all of this is made again over the same store.
    await context.quota_reports.read_limits()
    await store.link.subscribe(store.keys.of("infer", name), pulls.on_hint)
    pull_text = PullText(context, Tokens(shared.ring))
    registry.register(SettlingFigures(store.link.settling))
    metrics.watch(pulls, emits, logs, store.homes, service.quotas, store.keys.cell_name)
    tell_entered(store, name)
    shared.ring.changed.append(pull_text.end_refused)
    store.link.on_reconnect.append(pulls.reconnected)
    return InferCell(context, pull_text)


def why_not_ready(store: RedisStore) -> str:
    """Return why a controller can serve nothing of this cell now; empty if it can."""
    settling = store.link.settling
    if store.link.state != "connected":
        return "the store cannot be reached"
    return settling.trouble if settling is not None else ""


def tell_entered(store: RedisStore, name: str) -> None:
    """Write an event for each home that this controller begins, and for each loss that it knows of."""

    writer = Writer("event", store.records.events.write, lambda event, reason: None)  # It is in the log already.

    def entered(entry: Entry) -> None:
        for kind, numbers in entry.events():
            log.warning(kind, **numbers)
            writer.write(Event(kind, name, numbers=numbers), insist=True)

    entered(store.homes.latest)
    store.homes.on_entered.append(entered)

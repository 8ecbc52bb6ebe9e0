"""One Infer-Controller: build its parts, serve, announce its address to the Workers, and stop.

A controller holds only caches, and any number of controllers serve one cell. When a controller is killed, its Workers
pull from another one, and its clients connect again. A controller that is cut off from the store releases nothing,
because only the store releases.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from aiohttp import web

import dhsched
from dhsched.access.development import development_key, noted
from dhsched.access.quota_reports import QuotaReports
from dhsched.access.ring import KeyRing, open_ring
from dhsched.errors import BadSetting, StoreError
from dhsched.infer import events, push, stream
from dhsched.infer.append_rules import store_full
from dhsched.infer.context import InferContext, Metrics
from dhsched.infer.emits import Emits
from dhsched.infer.item_traces import ItemTraces
from dhsched.infer.logs import Logs
from dhsched.infer.pull import PullText
from dhsched.infer.pulls import Pulls
from dhsched.infer.settings import InferSettings
from dhsched.input_routes import RAW
from dhsched.ownership.limits import DEFAULT_LIMITS, Limits
from dhsched.store.homes import Entry
from dhsched.store.link.address import parse_address
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
from dhsched.web import MINT, make_app, make_service, open_gate, serve_role
from dhsched.web.figures import SettlingFigures
from dhsched.web.otlp import open_sender

log = structlog.get_logger(__name__)

LAST_REPORTS_MAX = 10  # Batches of items that a controller still writes when it stops; further ones are lost.
GOODBYE_S = 0.2  # Time between `goodbye` to the Workers and the end of serving.


@dataclass(slots=True)
class Infer:
    """A controller that is ready to be served."""

    context: InferContext
    pull_text: PullText
    app: web.Application
    ring: KeyRing

    async def announce_until(self, url: str, stop: asyncio.Event) -> None:
        """Announce this controller's URL and report what it counts of tenants every ANNOUNCE_S; after `stop`, withdraw
        the URL and send the Workers away."""
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
async def open_infer(
    settings: InferSettings, *, limits: Limits = DEFAULT_LIMITS, scripts: Mapping[str, Script] | None = None
) -> AsyncIterator[Infer]:
    """Connect to the store and yield a controller to serve. `scripts` replaces the steps' scripts, for measurements."""
    if settings.store is None:
        raise BadSetting("an Infer-Controller needs the store that Dispatch uses; give --store URL or DHSCHED_STORE")
    address = parse_address(settings.store)
    name = settings.name or f"i-{secrets.token_hex(4)}"
    linked = LinkSettings(client_name="dhsched-infer")
    async with (
        await RedisStore.open(address, cell=settings.cell, limits=limits, settings=linked, scripts=scripts) as store,
        await Records.open(address, cell=settings.cell) as records,
        AsyncExitStack() as stack,
    ):

        async def ready() -> Sequence[str]:
            settling = store.link.settling
            if store.link.state != "connected":
                return ("the store cannot be reached",)
            return (settling.trouble,) if settling is not None and settling.trouble else ()

        await store.records.server.refuse_eviction(allowed=settings.allow_eviction)
        ring = await open_ring(store.link, store.keys)
        service = make_service(settings, role="infer", instance=name, ready=ready)
        await stack.enter_async_context(open_gate(service, settings, ring))
        tell_entered(store, name)
        pulls = Pulls(store, settings.credit, name)
        if settings.otlp:
            send = await stack.enter_async_context(open_sender(settings.otlp, "dhsched-infer", name))
            pulls.traces = ItemTraces(send)
        service.registry.register(SettlingFigures(store.link.settling))
        metrics = Metrics(service.registry)
        emits = Emits(store, pulls)
        logs = Logs(
            store.records.logs, settings, lambda: store_full(context.memory_share, settings.memory_max) is not None
        )
        metrics.watch(pulls, emits, logs, store.homes, service.quotas)
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
                f"infer/{name}", service.quotas, metrics.usage, reads=records, writes=store.records
            ),
        )
        await context.quota_reports.read_limits()
        pull_text = PullText(context, Tokens(ring))
        ring.changed.append(pull_text.end_refused)
        raw = [*pull_text.routes(), *stream.routes(context), *events.routes(context)]
        app = make_app(service, [*push.endpoints(context), MINT], raw, RAW)
        app.on_shutdown.append(context.close_sockets)
        await store.link.subscribe(store.keys.of("infer", name), pulls.on_hint)
        store.link.on_reconnect.append(pulls.reconnected)
        yield Infer(context, pull_text, app, ring)


def tell_entered(store: RedisStore, name: str) -> None:
    """Write an event for each home that this controller begins, and for each loss that it knows of."""

    writer = Writer("event", store.records.events.write, lambda event, reason: None)  # It is in the log already.

    def entered(entry: Entry) -> None:
        for kind, numbers in entry.events():
            log.warning(kind, **numbers)
            writer.write(Event(kind, name, numbers=numbers), insist=True)

    entered(store.homes.latest)
    store.homes.on_entered.append(entered)


async def run_infer(
    settings: InferSettings,
    stop: asyncio.Event,
    *,
    limits: Limits = DEFAULT_LIMITS,
    scripts: Mapping[str, Script] | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Run one controller until `stop` is set."""
    async with open_infer(settings, limits=limits, scripts=scripts) as infer:
        announced: list[asyncio.Task[None]] = []
        served = asyncio.Event()

        def listening(url: str) -> None:
            announced.append(asyncio.create_task(infer.announce_until(settings.advertise or url, stop)))
            announced[0].add_done_callback(lambda _: served.set())
            if say is not None:
                say(url)

        with noted(await development_key(settings, infer.ring), listening) as noting:
            await serve_role(settings, infer.app, stop=served, say=noting)

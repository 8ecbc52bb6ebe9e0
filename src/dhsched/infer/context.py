"""The context that all parts of an Infer-Controller share: store, records, settings, metrics, pulls."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from dhsched.access.quota_reports import QuotaReports
from dhsched.access.quotas import Quotas
from dhsched.access.usage import Usage
from dhsched.durations import SECONDS_BUCKETS, Durations
from dhsched.infer.emits import Emits
from dhsched.infer.logs import Logs
from dhsched.infer.pulls import Appended, Pulls
from dhsched.infer.settings import InferSettings
from dhsched.links.outbox import close_soon
from dhsched.ownership import outcomes as o
from dhsched.store.homes import Homes
from dhsched.store.records import Records
from dhsched.store.steps.redis import Append, RedisStore
from dhsched.web import Problem, Service
from dhsched.web.figures import Figure, Figures, TenantGauges, TenantTotals, histogram


class Metrics(Collector):
    """Metrics of a controller, beside those of its HTTP requests. Items are counted in plain numbers that are read at
    each scrape (durations.py)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes: defaultdict[type, int] = defaultdict(int)
        self._seconds = Durations()
        self._items = TenantTotals("dhsched_tenant_items_total", "Items stored.")
        self.usage = Usage()
        self._registry = registry
        registry.register(self)

    def pushed(self, outcome: o.AppendOutcome, seconds: float, tenant: str, _live: str = "") -> None:
        """Count one item that was pushed for a tenant, and the seconds that it took."""
        kind = type(outcome)
        self._outcomes[kind] += 1
        if kind is o.Appended:
            self.usage.items[tenant] += 1
            totals = self._items.totals
            if tenant in totals:
                totals[tenant] += 1
            else:
                self._items.add(tenant, 1)
        # As Durations.add does it, without the cost of a call.
        self._seconds.counts[bisect_left(SECONDS_BUCKETS, seconds)] += 1
        self._seconds.sum_s += seconds

    def collect(self) -> Iterator[Metric]:
        pushes = CounterMetricFamily("dhsched_pushes_total", "Items pushed, by outcome.", labels=["outcome"])
        for kind, count in self._outcomes.items():
            pushes.add_metric([kind.__name__], count)
        yield pushes
        yield from self._items.collect()
        yield histogram("dhsched_push_seconds", "Items, from decoded to stored.", self._seconds)

    def watch(self, pulls: Pulls, emits: Emits, logs: Logs, homes: Homes, quotas: Quotas, cell: str) -> None:
        """Register the metrics of the pulls, of the store's homes and of tenants in this cell, which are read at each
        scrape."""
        figures: tuple[Figure, ...] = (
            ("dhsched_pulls_granted", "Pulls that this controller serves.", lambda: len(pulls)),
            ("dhsched_items_released_total", "Items passed on to Workers.", lambda: pulls.released),
            ("dhsched_stale_releases_total", "Releases that the fence refused.", lambda: pulls.stale_releases),
            ("dhsched_stale_acks_total", "Acks that the fence refused.", lambda: pulls.stale_acks),
            ("dhsched_stale_emits_total", "Generations whose message the fence refused.", lambda: emits.stale),
            ("dhsched_emits_total", "Messages of runtimes that were stored.", lambda: emits.stored),
            ("dhsched_log_lines_total", "Log lines of runtimes that were kept.", lambda: logs.kept),
            ("dhsched_log_lines_dropped_total", "Log lines that were not kept.", lambda: logs.dropped),
            ("dhsched_pulls_never_issued_total", "Pulls with a number never issued.", lambda: pulls.never_issued),
            (
                "dhsched_hellos_refused_total",
                "Hellos of another boot than the connection.",
                lambda: pulls.hellos_refused,
            ),
            ("dhsched_store_lost_calls_total", "Answered calls that are lost.", lambda: homes.lost_calls),
        )
        self._registry.register(Figures(figures))
        self._registry.register(
            TenantGauges(
                "dhsched_tenant_pending_bytes",
                "Pending input of tenants with such a limit, measured last.",
                lambda: quotas.pending_in(cell),
            )
        )


AppendSoon = Callable[[Append, Appended], None]
Pushed = Callable[[o.AppendOutcome, float, str, str], None]


class Inputs(Protocol):
    """Where input goes: the only cell, or that of each live."""

    @property
    def settings(self) -> InferSettings: ...

    @property
    def service(self) -> Service: ...

    @property
    def connections(self) -> Connections: ...

    @property
    def memory_share(self) -> float:
        """Return the share of the store's memory past which a whole stream is refused."""

    @property
    def append_soon(self) -> AppendSoon:
        """Return the function that appends a row, and calls another one with the outcome."""

    @property
    def pushed(self) -> Pushed:
        """Return the function that counts an item: its outcome, its seconds, its tenant and its live."""

    def of(self, live: str) -> InferContext:
        """Return the context of this live's cell; raise StoreUnavailable if that is not served."""


class Connections:
    """The streams, watchers and Workers that are connected to one controller."""

    def __init__(self, settings: InferSettings, service: Service) -> None:
        self.settings = settings
        self.service = service
        self.streams = 0
        self.sockets: dict[web.WebSocketResponse, asyncio.Transport | None] = {}

    @contextmanager
    def open_stream(self, tenant: str) -> Iterator[None]:
        """Count one stream or watcher of a tenant while the block runs; raise BUSY or OverQuota past a limit."""
        if self.streams >= self.settings.streams_max:
            raise Problem("BUSY", f"{self.streams} streams and watchers are open; ask another controller")
        with self.service.quotas.occupy("streams", tenant):
            self.streams += 1
            try:
                yield
            finally:
                self.streams -= 1

    @contextmanager
    def open_socket(self, socket: web.WebSocketResponse, transport: asyncio.Transport | None) -> Iterator[None]:
        self.sockets[socket] = transport
        try:
            yield
        finally:
            del self.sockets[socket]

    async def close_sockets(self, _app: web.Application) -> None:
        """Close every open socket, when this controller stops."""
        await asyncio.gather(*(close_soon(socket, transport) for socket, transport in [*self.sockets.items()]))


@dataclass(slots=True, kw_only=True)
class InferContext:
    """The state of one controller in one cell. All but the store is a cache, so a controller may be killed at any
    instruction. A deployment of one cell has one; `ManyCells` (cells.py) stands for it where there are several."""

    store: RedisStore
    records: Records
    settings: InferSettings
    service: Service
    metrics: Metrics
    pulls: Pulls
    emits: Emits
    logs: Logs
    quota_reports: QuotaReports
    connections: Connections
    cell: str = ""
    """The name of the cell, where the deployment has several; else empty."""
    memory_share: float = 0.0

    def of(self, live: str) -> InferContext:
        """Return the context of this live's cell."""
        return self

    @property
    def append_soon(self) -> AppendSoon:
        return self.pulls.append_soon

    @property
    def pushed(self) -> Pushed:
        return self.metrics.pushed

"""A Worker's own listener: /metrics, /healthz and /readyz, served only where `metrics_port` is set."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dhsched.pauses import PAUSES
from dhsched.web.figures import Figure, Figures, PauseFigures
from dhsched.web.running import listening
from dhsched.web.server import Service, make_app
from dhsched.worker.devices import Devices
from dhsched.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from dhsched.worker.main import OneBoot

log = structlog.get_logger(__name__)

SILENT_MAX_S = 10.0  # A Worker that no Dispatch replica has answered for longer is not ready.
STATES = ("starting", "prepared", "running", "stopping")


@dataclass(slots=True)
class WorkerStatus:
    """The figures of a Worker: its devices, and its current boot once the setup is done."""

    devices: Devices
    boot: OneBoot | None = None

    async def missing(self) -> Sequence[str]:
        """Return the reasons why the Worker takes no lives; none if it takes lives."""
        if self.boot is None:
            return ["its setup is not done"]
        if not self.boot.worker_id:
            return ["Dispatch has not registered it"]
        if self.boot.silent_s > SILENT_MAX_S:
            return [f"no Dispatch replica has answered for {self.boot.silent_s:.0f} s"]
        return []


class WorkerFigures(Collector):
    """The metrics with labels, to be registered."""

    def __init__(self, status: WorkerStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        states = GaugeMetricFamily("dhsched_worker_runtimes", "Runtimes, by state.", labels=["state"])
        now = self._status.boot.states if self._status.boot else Counter[str]()
        for state in STATES:
            states.add_metric([state], now[state])
        yield states
        devices = self._status.devices
        runtimes = GaugeMetricFamily("dhsched_worker_device_runtimes", "Runtimes, by device.", labels=["device"])
        ended = "Runtimes that ended with an error, by device."
        crashes = CounterMetricFamily("dhsched_worker_crashes_total", ended, labels=["device"])
        missed = "Output that runtimes report as left out or late, by device."
        late = CounterMetricFamily("dhsched_worker_late_seconds_total", missed, labels=["device"])
        for device, running in devices.runtimes.items():
            runtimes.add_metric([device], running)
            crashes.add_metric([device], devices.crashes[device])
            late.add_metric([device], devices.late_s[device])
        yield runtimes
        yield crashes
        yield late


@asynccontextmanager
async def serving_metrics(settings: WorkerSettings, status: WorkerStatus) -> AsyncIterator[None]:
    """Serve during the block."""
    service = Service(role="worker", instance=settings.name, ready=status.missing)
    figures: list[Figure] = [
        ("dhsched_worker_capacity", "Largest number of lives at once.", lambda: settings.capacity),
        (
            "dhsched_worker_silent_seconds",
            "Time since a Dispatch replica answered a report.",
            lambda: status.boot.silent_s if status.boot else 0,
        ),
        (
            "dhsched_worker_controllers",
            "Infer-Controllers that this Worker is connected to.",
            lambda: status.boot.controllers if status.boot else 0,
        ),
    ]
    for each in (Figures(figures), WorkerFigures(status), PauseFigures(PAUSES)):
        service.registry.register(each)
    PAUSES.begin(asyncio.get_running_loop())
    try:
        host, port = settings.metrics_host, settings.metrics_port
        async with listening(make_app(service, ()), host=host, port=port, stop_s=0) as url:
            log.info("metrics are served", url=f"{url}/metrics")
            yield
    finally:
        PAUSES.end()

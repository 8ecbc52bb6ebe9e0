"""Spans, sent to an OpenTelemetry collector by OTLP over HTTP, in a thread of their own. Needs the extra `otel`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

import dhsched
from dhsched.errors import BadSetting
from dhsched.web.traceparent import Parent

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = structlog.get_logger(__name__)

FLUSH_S = 2.0  # A replica that stops waits this long for the collector.


class Phase(NamedTuple):
    """One span: its name, its times in ms, and the place of the span that it is part of."""

    name: str
    began_ms: int
    ended_ms: int
    within: int = 0


class Send(Protocol):
    """A function that sends the spans of one operation."""

    def __call__(
        self,
        phases: Sequence[Phase],
        trace_id: int,
        parent: Parent | None,
        attributes: dict[str, str | int],
        *,
        span_id: int = 0,
    ) -> None:
        """Send `phases` as spans of the trace `trace_id`, the first one below the caller's span `parent`, if any. The
        first span has the id `span_id`, or a random one."""


@asynccontextmanager
async def open_sender(url: str, service: str, instance: str) -> AsyncIterator[Send]:
    """Yield a function that sends traces to the collector at `url`, by HTTP and in a thread of its own. While the
    collector is away, traces are lost and nothing else."""
    provider = _provider(url, service, instance)
    try:
        yield _sender(provider)
    finally:
        try:
            async with asyncio.timeout(FLUSH_S + 1):
                await asyncio.to_thread(provider.force_flush, int(FLUSH_S * 1000))
                await asyncio.to_thread(provider.shutdown)
        except TimeoutError:
            log.warning("the collector does not take the last traces", otlp=url)


def _provider(url: str, service: str, instance: str) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    except ImportError as error:
        raise BadSetting(f"setting otlp needs the extra: pip install 'dhsched[otel]' ({error})") from None
    named = {
        "service.name": service,
        "service.instance.id": instance,
        "service.version": dhsched.__version__,
    }
    provider = TracerProvider(sampler=ALWAYS_ON, resource=Resource.create(named), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces", timeout=FLUSH_S)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1_000))
    return provider


def _sender(provider: TracerProvider) -> Send:
    from opentelemetry import trace
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    tracer = provider.get_tracer("dhsched")
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)

    class OneTrace(RandomIdGenerator):
        """Gives a span without a parent the id that its trace is to have, and the next span the id that was given."""

        trace_id = 0
        span_id = 0

        def generate_trace_id(self) -> int:
            return self.trace_id

        def generate_span_id(self) -> int:
            given, self.span_id = self.span_id, 0
            return given or super().generate_span_id()

    ids = tracer.id_generator = OneTrace()  # type: ignore[attr-defined]

    def send(
        phases: Sequence[Phase],
        trace_id: int,
        parent: Parent | None,
        attributes: dict[str, str | int],
        *,
        span_id: int = 0,
    ) -> None:
        ids.trace_id, ids.span_id = trace_id, span_id
        above = trace.INVALID_SPAN_CONTEXT
        if parent is not None:
            above = trace.SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=sampled)
        made: list[trace.SpanContext] = []
        for phase in phases:
            context = trace.set_span_in_context(trace.NonRecordingSpan(made[phase.within] if made else above))
            span = tracer.start_span(
                phase.name, context=context, start_time=phase.began_ms * 1_000_000, attributes=attributes
            )
            made.append(span.get_span_context())
            span.end(phase.ended_ms * 1_000_000)

    return send

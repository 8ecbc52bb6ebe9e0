"""Traces of a real deployment, as a collector gets them: a create of a caller's trace, and a recovery after kill -9."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from dhsched.dispatch.telemetry.traces import trace_id_of
from dhsched.store.server.embedded import Embedded
from tests.harness.fleet import until, until_so
from tests.harness.processes import Processes, until_consumed

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
WAIT_S = 60.0
LOOKS = os.environ.get("DHSCHED_LOOKS", "")  # A folder for pictures, for people.


class Collector:
    """What was sent by OTLP."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for resource in sent.resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.services.add(f"{named['service.name']} {named['service.instance.id']}")
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return web.Response(body=b"", content_type="application/x-protobuf")

    def tree(self, name: str) -> dict[str, Span]:
        """The spans of the first whole trace with a span of this name at its top, by their names."""
        top = next(span for span in self.spans if span.name == name)
        return {span.name: span for span in self.spans if span.trace_id == top.trace_id}

    def has(self, *names: str) -> bool:
        return {*names} <= {span.name for span in self.spans}


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield made
    finally:
        await runner.cleanup()


@pytest.mark.release
async def test_a_create_and_a_recovery_are_traced_to_the_first_ack(tmp_path: Path) -> None:
    async with (
        collector() as told,
        Embedded() as server,
        Processes(server.address.url(), folder=tmp_path) as deployment,
    ):
        where = {"DHSCHED_DISPATCH_OTLP": told.url, "DHSCHED_DISPATCH_WORKER_TTL_S": "1"}
        await deployment.dispatch("d1", environment=where)
        await deployment.infer("i1")
        await deployment.configure({"anna": ["gpu"]})
        workers = {name: await deployment.worker(name) for name in ("a", "b")}
        await deployment.until_workers(2)
        [dispatch] = await deployment.dispatch_urls()
        async with deployment.client() as client, aiohttp.ClientSession() as http:
            body = {"live_id": "demo", "digital_id": "anna"}
            caller = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
            async with http.post(f"{dispatch}/v1/lives", json=body, headers=caller) as response:
                assert response.status == 201, await response.text()
                owner = (await response.json())["worker"].partition("#")[0]
            await client.push("demo", "hello")
            await until(lambda: told.has("create", "first ack"), "the trace of the create", WAIT_S)
            created = told.tree("create")
            assert created["create"].trace_id.hex() == TRACE and created["create"].parent_span_id.hex() == SPAN
            for part in ("place", "claim", "first ack"):
                assert created[part].parent_span_id == created["create"].span_id, part
            assert told.services == {"dhsched-dispatch d1"}

            workers.pop(owner).kill()
            await client.push("demo", "again")
            [heir] = workers.values()
            await until_consumed(heir, "demo", "again")
            await until(lambda: told.has("recovery"), "the trace of the recovery", WAIT_S)
            parts = told.tree("recovery")
            assert [*parts] == ["recovery", "detect", "place", "claim", "first ack"]
            whole = parts["recovery"]
            known = {each.key: each.value.string_value or each.value.int_value for each in whole.attributes}
            assert known["dhsched.live"] == "default/demo" and known["dhsched.epoch"] == 2
            named = trace_id_of(str(known["dhsched.operation"])).to_bytes(16, "big")
            assert whole.trace_id == named and not whole.parent_span_id, (
                "nobody has asked for it: its operation names it"
            )
            assert known["dhsched.source"].startswith(owner) and known["dhsched.need"] == "lost"
            ends = [parts["detect"].start_time_unix_nano, whole.start_time_unix_nano]
            for part in ("detect", "place", "claim", "first ack"):
                assert parts[part].start_time_unix_nano == ends[-1], "each phase begins where the one before ends"
                assert parts[part].parent_span_id == whole.span_id
                ends.append(parts[part].end_time_unix_nano)
            assert ends == sorted(ends) and whole.end_time_unix_nano == ends[-1]
            if LOOKS:
                draw(parts, Path(LOOKS) / "trace-of-a-recovery.png")


def draw(parts: dict[str, Span], file: Path) -> None:
    """Draw a trace as a collector's page would, for docs/guides/traces.md."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.4), dpi=100, layout="constrained")
    axes = figure.subplots()
    zero = min(span.start_time_unix_nano for span in parts.values())
    for at, span in enumerate(parts.values()):
        began, lasted = span.start_time_unix_nano - zero, span.end_time_unix_nano - span.start_time_unix_nano
        colour = "#8a93a6" if at == 0 else "#3b5bdb"
        axes.barh(at, max(lasted / 1e6, 4), left=began / 1e6, color=colour)
        axes.text((began + lasted) / 1e6 + 8, at, f"{lasted / 1e6:.0f} ms", va="center")
    axes.set_yticks(range(len(parts)), [*parts])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("ms since the Worker was last heard of")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(file)


@pytest.mark.release
async def test_a_reassign_and_a_planned_move_are_traced_to_the_first_ack(tmp_path: Path) -> None:
    async with (
        collector() as told,
        Embedded() as server,
        Processes(server.address.url(), folder=tmp_path) as deployment,
    ):
        await deployment.dispatch("d1", environment={"DHSCHED_DISPATCH_OTLP": told.url})
        await deployment.infer("i1")
        await deployment.configure({"anna": ["gpu"]})
        for name in ("a", "b"):
            await deployment.worker(name)
        await deployment.until_workers(2)
        [dispatch] = await deployment.dispatch_urls()
        caller = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        async with deployment.client() as client, aiohttp.ClientSession() as http:
            await client.create("anna", live_id="demo")
            await client.push("demo", "one", boundary=True)
            url, body = f"{dispatch}/v1/lives/demo/reassign", {"expected_epoch": 1}
            async with http.post(url, json=body, headers=caller) as response:
                assert response.status == 200, await response.text()
                worker = (await response.json())["worker"]
            await client.push("demo", "two", boundary=True)
            await until(lambda: told.has("reassign"), "the trace of the reassign", WAIT_S)
            await client.drain(worker)

            async def moved() -> bool:
                return (await client.get("demo")).epoch == 3

            await until_so(moved, bool, "the move", WAIT_S)
            await client.push("demo", "three", boundary=True)
            await until(lambda: told.has("move"), "the trace of the move", WAIT_S)
    asked = told.tree("reassign")
    assert {*asked} == {"reassign", "place", "claim", "first ack"}
    assert asked["reassign"].trace_id.hex() == TRACE and asked["reassign"].parent_span_id.hex() == SPAN
    planned = told.tree("move")
    assert {*planned} == {"move", "prepare", "claim", "first ack"}
    for whole, parts in ((asked["reassign"], asked), (planned["move"], planned)):
        assert {span.parent_span_id for span in parts.values() if span is not whole} == {whole.span_id}
        assert whole.end_time_unix_nano == parts["first ack"].end_time_unix_nano


@pytest.mark.release
async def test_a_collector_that_is_away_costs_nothing_but_traces(tmp_path: Path) -> None:
    async with Embedded() as server, Processes(server.address.url(), folder=tmp_path) as deployment:
        nobody = {"DHSCHED_DISPATCH_OTLP": "http://127.0.0.1:9"}
        replica = await deployment.dispatch("d1", environment=nobody)
        await deployment.infer("i1")
        await deployment.configure({"anna": ["gpu"]})
        worker = await deployment.worker("a")
        await deployment.until_workers(1)
        async with deployment.client() as client:
            await client.create("anna", live_id="demo")
            await client.push("demo", "hello")
            await until_consumed(worker, "demo", "hello")
        await replica.stop()
        assert replica.returncode == 0


@pytest.mark.release
@pytest.mark.parametrize("through", ["infer", "dispatch"])
async def test_a_push_is_traced_to_the_runtime_its_ack_and_what_it_emits(tmp_path: Path, through: str) -> None:
    async with (
        collector() as told,
        Embedded() as server,
        Processes(server.address.url(), folder=tmp_path) as deployment,
    ):
        await deployment.dispatch("d1")
        await deployment.infer("i1", environment={"DHSCHED_INFER_OTLP": told.url})
        await deployment.configure({"anna": ["gpu"]})
        (tmp_path / "traced_runtime.py").write_text(RUNTIME)
        await deployment.worker("a", runtime="traced_runtime:avatar", environment={"PYTHONPATH": str(tmp_path)})
        await deployment.until_workers(1)
        [dispatch] = await deployment.dispatch_urls()
        [infer] = await deployment.infer_urls()
        url = dispatch if through == "dispatch" else infer
        async with deployment.client() as client, aiohttp.ClientSession() as http:
            await client.create("anna", live_id="demo")
            await client.push("demo", "not traced")
            caller = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
            async with http.post(f"{url}/v1/lives/demo/text", json={"text": "Grüße."}, headers=caller) as response:
                assert response.status in (200, 201, 202), await response.text()
                seq = (await response.json())["seq"]
            await until(lambda: told.has("append", "deliver", "ack", "emit"), "the spans of the item", WAIT_S)
            async for event in client.events("demo"):
                if event.name == "emitted" and event.data["data"]["text"] != "not traced":
                    break
    spans = {span.name: span for span in told.spans}
    assert len(spans) == len(told.spans) == 4, "the other item has none"
    assert {span.trace_id.hex() for span in told.spans} == {TRACE}
    above = spans["append"]
    assert above.parent_span_id.hex() == SPAN
    assert {spans[name].parent_span_id for name in ("deliver", "ack", "emit")} == {above.span_id}
    known = {each.key: each.value.string_value or each.value.int_value for each in spans["ack"].attributes}
    assert known["dhsched.live"] == "default/demo" and known["dhsched.seq"] == seq and known["dhsched.epoch"] == 1
    assert spans["ack"].start_time_unix_nano == spans["deliver"].end_time_unix_nano
    assert told.services == {"dhsched-infer i1"}
    heard = event.data["data"]
    assert heard == {"text": "Grüße.", "traceparent": f"00-{TRACE}-{above.span_id.hex()}-01"}


RUNTIME = """
async def avatar(session):
    async for item in session.inputs():
        session.emit("heard", {"text": item.text, "traceparent": item.traceparent})
"""

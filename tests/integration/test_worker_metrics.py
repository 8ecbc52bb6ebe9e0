"""A Worker's own listener: what it shows, and when it is ready; and that a runtime's log lines name the live."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dhsched import testing
from dhsched.errors import BadSetting
from dhsched.local.ports import free_port
from dhsched.web.logs import with_context
from dhsched.worker import Session, Worker
from dhsched.worker.options import settings_of
from tests.harness.fleet import Fleet, Record, fleet, until_so

Shown = dict[tuple[str, str], float]


async def shown(f: Fleet, port: int) -> Shown:
    async with f.http.get(f"http://127.0.0.1:{port}/metrics") as response:
        text = await response.text()
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def status(f: Fleet, port: int, path: str) -> tuple[int, str]:
    async with f.http.get(f"http://127.0.0.1:{port}/{path}") as response:
        return response.status, await response.text()


async def test_runtimes_crashes_and_readiness_are_shown(tmp_path: Path) -> None:
    port, loaded = free_port(), asyncio.Event()

    async def fails_at_bad(session: Session) -> None:
        async for item in session.inputs():
            session.late(0.25)
            if item.text == "bad":
                raise ValueError("bad")

    async with fleet(tmp_path, with_loops=True) as f:
        worker = Worker(
            fails_at_bad,
            setup=loaded.wait,
            pool="gpu",
            capacity=3,
            name="gpu-1",
            device="gpu0,gpu1",
            dispatch=f.dispatch,
            lock_folder=tmp_path / "locks",
            drain_s=0.0,
            metrics_port=port,
        )
        entering = asyncio.ensure_future(worker.__aenter__())
        while not entering.done():
            try:
                answer = await status(f, port, "readyz")
            except OSError:
                await asyncio.sleep(0.02)
                continue
            assert answer[0] == 503 and "its setup is not done" in answer[1]
            assert (await status(f, port, "healthz"))[0] == 200, "it is alive, although it is not ready"
            loaded.set()
            await entering
        try:
            await worker.registered()
            assert (await status(f, port, "readyz"))[0] == 200
            for live in ("a", "b"):
                await f.create(live)
            running = ("dhsched_worker_runtimes", "running")
            now = await until_so(lambda: shown(f, port), lambda now: now[running] == 2, "two runtimes")
            assert now["dhsched_worker_device_runtimes", "gpu0"] == now["dhsched_worker_device_runtimes", "gpu1"] == 1
            assert now["dhsched_worker_capacity", ""] == 3 and now["dhsched_worker_controllers", ""] == 1
            await f.push("a", "bad")
            crashes = [("dhsched_worker_crashes_total", device) for device in ("gpu0", "gpu1")]
            await until_so(lambda: shown(f, port), lambda now: sum(now[each] for each in crashes) >= 1, "a crash")
            late = [("dhsched_worker_late_seconds_total", device) for device in ("gpu0", "gpu1")]
            await until_so(lambda: shown(f, port), lambda now: sum(now[each] for each in late) >= 0.25, "late output")
            assert ("dhsched_loop_lag_seconds_count", "") in await shown(f, port)
        finally:
            await worker.__aexit__(None, None, None)


def test_metrics_stay_on_this_machine_unless_somebody_says_so() -> None:
    given = {"pool": "gpu", "capacity": 1, "metrics_port": 9, "metrics_host": "0.0.0.0"}
    with pytest.raises(BadSetting, match="anybody could read the metrics"):
        settings_of(given)
    assert settings_of({**given, "insecure": True}).metrics_host == "0.0.0.0"


async def test_a_line_that_a_runtime_logs_names_its_live() -> None:
    lines: list[str] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage() + str(getattr(record, "context", "")))

    logger, handler = logging.getLogger("my.runtime"), Keeps()
    handler.addFilter(with_context)
    logger.addHandler(handler)

    async def logs(session: Session) -> None:
        async for item in session.inputs():
            await asyncio.create_task(asyncio.to_thread(logger.warning, "said %s", item.text))

    async with testing.live(logs) as live:
        await live.push("hello")
        await live.acked()
    assert lines == ["said hello epoch=1 live=test/live"]


@pytest.mark.release
async def test_dispatch_tells_how_late_the_loop_of_a_worker_was(tmp_path: Path) -> None:
    async def block(*_: object) -> None:
        time.sleep(1.5)  # noqa: ASYNC251 - longer than a second, after which the lag is measured again

    async with fleet(tmp_path, with_loops=True) as f:
        await f.start_worker(Record(before_ack=block), "a")
        worker = (await f.create("demo"))["worker"]
        await f.push("demo", "block")

        async def lag_ms() -> Any:
            return (await f.get(f"/v1/workers/{quote(worker)}"))["loop_lag_ms"]

        await until_so(lag_ms, lambda found: found is not None and found >= 500, "the lag")

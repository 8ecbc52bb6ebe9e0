"""Every query that we give to others, against a real Prometheus that scrapes a real deployment: those of the dashboard,
of the alerts and of the autoscaler are valid, and find their metrics."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dhsched.local.ports import free_port
from dhsched.store.server.embedded import Embedded
from tests import dashboards
from tests.harness.avatar_extra import require_avatar
from tests.harness.fleet import until_so
from tests.harness.processes import Processes, until_consumed
from tests.harness.tree import ROOT

WAIT_S = 60.0
ELSEWHERE: dict[str, list[dict[str, str]]] = {
    "dhsched_store_settle_seconds": [],
    "dhsched_store_unsettled_calls_total": [],
    "dhsched_cell_ready": [],
}
"""Metrics of a store whose replicas confirm, and of several cells, which this deployment has not."""
CONFIG = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}
scrape_configs: [{{job_name: dhsched, static_configs: [{{targets: [{targets}]}}]}}]
"""


@asynccontextmanager
async def prometheus(folder: Path, targets: list[str]) -> AsyncIterator[str]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("NOT TESTED with Prometheus: it is not on PATH (apt-get install prometheus)")
    file, port = folder / "prometheus.yml", free_port()
    file.write_text(CONFIG.format(targets=", ".join(f"'{each}'" for each in targets)))
    options = (f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}")
    process = await asyncio.create_subprocess_exec(
        program,
        *options,
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


@pytest.mark.release
async def test_every_query_finds_its_metric(tmp_path: Path) -> None:
    require_avatar()
    async with (
        Embedded() as server,
        Processes(server.address.url(), folder=tmp_path) as deployment,
        aiohttp.ClientSession() as http,
    ):
        await deployment.dispatch("d1")
        await deployment.infer("i1")
        await deployment.configure({"anna": ["gpu"]})
        at_worker, at_room = free_port(), free_port()
        where = {"DHSCHED_WORKER_METRICS_PORT": str(at_worker)}
        worker = await deployment.worker("a", environment=where)
        room = await deployment.room("r1", metrics_port=at_room)
        await room.until_ready()
        await deployment.until_workers(1)
        async with deployment.client() as client:
            await client.create("anna", live_id="demo")
            await client.push("demo", "hello")
            await until_consumed(worker, "demo", "hello")
            urls = [*await deployment.dispatch_urls(), *await deployment.infer_urls()]
            targets = [
                *(url.removeprefix("http://") for url in urls),
                *(f"127.0.0.1:{p}" for p in (at_worker, at_room)),
            ]
            samples = await exposed(http, targets)
            async with prometheus(tmp_path, targets) as url:

                async def ask(query: str) -> Any:
                    try:
                        async with http.get(f"{url}/api/v1/query", params={"query": query}) as response:
                            return await response.json()
                    except (aiohttp.ClientError, OSError):
                        return {"status": "away", "data": {"result": []}}

                await until_so(
                    lambda: ask("count(count_over_time(up[1m]) > 3) == 4 and sum(up) == 4"),
                    lambda found: bool(found["data"]["result"]),
                    "Prometheus has scraped all four",
                    WAIT_S,
                )
                for metric in dashboards.metrics():
                    shown = samples[metric.name]
                    assert not shown or {*metric.labels} <= shown[0].keys(), f"{metric.name} has other labels"
                for query in queries():
                    answered = await ask(query)
                    assert answered["status"] == "success", (query, answered)
                    names = re.findall(r"(dhsched_[a-z_]+?)(?:_bucket|_sum|_count)?\b", query)
                    assert names and all(name in samples for name in names), query
                    happened = all(samples[name] for name in names) and "{" not in query
                    found = await ask(without_limits(query))
                    assert found["data"]["result"] or not happened, f"{query} finds nothing"


def queries() -> list[str]:
    """The queries of the dashboard, of the alerts, and of the autoscaler."""
    panels = [panel for _, some in dashboards.sections() for panel in some]
    shown = [query.replace(dashboards.RATE, "1m") for panel in panels for query, _ in panel.queries]
    groups = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"]
    alerts = [rule["expr"] for group in groups for rule in group["rules"]]
    scaled = yaml.safe_load((ROOT / "deploy/kubernetes/overlays/keda/scaled-object.yaml").read_text())
    scaling = [each["metadata"]["query"] for each in scaled["spec"]["triggers"]]
    assert len(shown) > 60 and len(alerts) > 10 and scaling
    return [*shown, *alerts, *scaling]


def without_limits(query: str) -> str:
    """The query of an alert without what its values are compared with: what it finds when all is well."""
    return re.sub(r"\s(?:>|==)\s[\d.]+", "", query)


async def exposed(http: aiohttp.ClientSession, targets: list[str]) -> dict[str, list[dict[str, str]]]:
    """The labels of each sample of each metric that the roles expose; what has not happened yet has no samples."""
    found: dict[str, list[dict[str, str]]] = {**ELSEWHERE}
    of_every_role = {each.name for each in dashboards.metrics() if each.role == "all"}
    assert of_every_role >= {"dhsched_loop_lag_seconds", "dhsched_gc_pause_seconds"}
    for target in targets:
        async with http.get(f"http://{target}/metrics") as response:
            text = await response.text()
        assert all(f"# TYPE {name} " in text for name in of_every_role), f"{target} lacks one of {of_every_role}"
        for family in text_string_to_metric_families(text):
            name = family.name + ("_total" if family.type == "counter" else "")
            found.setdefault(name, []).extend(sample.labels for sample in family.samples)
    return found

"""Every role that serves metrics measures its own pauses."""

from __future__ import annotations

import pytest

from dhsched.bench.harness import figure, metrics_page
from dhsched.local.deployment import Deployment
from dhsched.local.ports import free_port
from dhsched.local.waiting import until
from dhsched.store.server.embedded import Embedded


@pytest.mark.parametrize(
    "role", ["dispatch", *(pytest.param(role, marks=pytest.mark.release) for role in ("infer", "room"))]
)
async def test_a_role_measures_the_lag_of_its_loop_and_its_garbage_collections(role: str) -> None:
    async with Embedded() as server, Deployment(server.address.url()) as deployment:
        await deployment.dispatch("d1")
        await deployment.infer("c1")
        if role == "room":
            pytest.importorskip("aiortc")
            port = free_port()
            await (await deployment.room("r1", metrics_port=port)).until_ready()
            url = f"http://127.0.0.1:{port}"
        else:
            [url] = await (deployment.dispatch_urls() if role == "dispatch" else deployment.infer_urls())

        async def measured() -> bool:
            return await figure(url, "dhsched_loop_lag_seconds_count") > 1

        await until(measured, f"{role} to measure the lag of its loop", 60.0)
        # A role collects little when it starts; the rows are there before the first collection.
        page = await metrics_page(url)
        assert all(f'dhsched_gc_pause_seconds_count{{generation="{each}"}}' in page for each in range(3))

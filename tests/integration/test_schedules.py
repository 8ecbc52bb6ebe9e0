"""Random schedules of push, pull, ack, interrupt, move and kill: what the store did is what the model does (I0-I8).

A failure names its seed; `run_schedule(SEED, ...)` repeats its choices.
"""

from __future__ import annotations

import pytest

from tests.harness.schedule_runs import run_all
from tests.harness.servers import empty_server, redis_with_release

SCHEDULES = 120
SCHEDULES_RELEASE = 300
SCHEDULES_LONG = 10_000


@redis_with_release
async def test_schedules_keep_order_and_ledger(kind: str) -> None:
    async with empty_server(kind) as server:
        await run_all(server.address, SCHEDULES // 2)


@pytest.mark.release
async def test_more_schedules_keep_order_and_ledger(kind: str) -> None:
    async with empty_server(kind) as server:
        await run_all(server.address, SCHEDULES_RELEASE // 2)


@pytest.mark.long
async def test_ten_thousand_schedules(kind: str) -> None:
    async with empty_server(kind) as server:
        await run_all(server.address, SCHEDULES_LONG // 2)

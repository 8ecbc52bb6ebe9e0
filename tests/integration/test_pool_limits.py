"""Limits of a Pool: what is put reaches the Workers' records by their reports, and decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.harness.draining import drain, ids
from tests.harness.fleet import Fleet, Record, fleet, until_so


async def put(f: Fleet, **config: Any) -> Any:
    return await f.post(f"{f.dispatch[0]}/v1/pools/gpu", config, put=True)


async def limits(f: Fleet, worker: str) -> tuple[int, int, int]:
    found = await f.replicas[0].records.workers.get(worker)
    assert found is not None
    record = found[0]
    return record.starts_create_max, record.starts_recover_max, record.cutovers_max


async def test_a_pool_s_limits_reach_its_workers_and_go_again(tmp_path: Path) -> None:
    async with fleet(tmp_path, replica={"refresh_min_s": 0.05, "refresh_max_s": 0.1, "boundary_wait_s": 7}) as f:
        await f.start_worker(Record(), "a", capacity=4)
        a = (await ids(f, 1))["a"]

        async def until_limits(wanted: tuple[int, int, int]) -> None:
            await until_so(lambda: limits(f, a), lambda found: found == wanted, f"limits {wanted}")

        await until_limits((16, 8, 4))
        status, _ = await put(f, starts_create_max=3, cutovers_max=1, boundary_wait_s=2.5)
        assert status == 200
        await until_limits((3, 3, 1))
        assert (await drain(f, a))["boundary_wait_s"] == 2.5
        await put(f)
        await until_limits((16, 8, 4))
        status, problem = await put(f, starts_create_max=0)
        assert status == 400 and "starts_create_max" in problem["detail"]

"""The growth benchmark runs, prints the keys that are asked for, and leaves no process behind; its figures are for a
quiet machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dhsched.bench.growth import Size, bench_growth, short
from dhsched.local.pids import alive
from tests.harness.fleet import until
from tests.harness.processes import start


@pytest.mark.long
async def test_every_size_has_its_figures() -> None:
    size = Size(
        lives=(20, 40), workers=(2, 3), lives_per_worker=20, seconds=2.0, settle_s=0.0, rate=20, dispatch=1, infer=1
    )
    result = await bench_growth(size, lambda _line: None)
    expected = {f"{what}_us_{n}" for what in ("create", "push", "idle") for n in (20, 40)}
    expected |= {"report_us_2", "report_us_3", "idle_cores_40_dispatch", "memory_kb_40_store", "push_us_40_infer"}
    assert expected <= result.keys()
    assert result["create_us_40"] > 0 and result["idle_us_40"] > 0 and result["memory_kb_40_workers"] > 0


@pytest.mark.long
async def test_a_killed_benchmark_leaves_no_process_behind() -> None:
    bench = await start("bench", "growth", "--lives", "10", "--workers", "2", "--seconds", "60")
    try:
        await until(lambda: len(descendants(bench.pid)) >= 6, "the roles and a host", 60.0)
        await asyncio.sleep(1.0)
        started = descendants(bench.pid)
    finally:
        bench.kill()
        await bench.stop()
    await until(lambda: not any(map(alive, started)), "every process to end", 30.0)


def descendants(pid: int) -> list[int]:
    """The processes below a process, all generations."""
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
    ]
    return [*children, *(each for child in children for each in descendants(child))]


@pytest.mark.parametrize(("count", "name"), [(10, "10"), (255, "255"), (1_000, "1k"), (100_000, "100k")])
def test_a_size_as_it_is_written_in_keys(count: int, name: str) -> None:
    assert short(count) == name

"""Pauses of a process: the rule for its garbage collector, and how pauses are measured."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from dhsched import pauses
from dhsched.client.metrics import total
from dhsched.pauses import PROBE_S, PROBES_MISSED_MAX, Pauses
from dhsched.web.figures import PauseFigures

COLLECTOR = """
import asyncio, gc
from dhsched.web.running import run_loop
async def main():
    print(gc.get_freeze_count() > 10_000, *gc.get_threshold())
run_loop(main(), runs_code_of_others={})
"""


@pytest.fixture
def measured() -> Iterator[Pauses]:
    made = Pauses()
    yield made
    made.end()


@pytest.mark.parametrize(("runs_code_of_others", "thresholds"), [(False, "2000 10 50"), (True, "2000 10 10")])
def test_a_process_of_the_product_freezes_its_modules_and_collects_seldom(
    runs_code_of_others: bool, thresholds: str
) -> None:
    code = COLLECTOR.format(runs_code_of_others)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == f"True {thresholds}"


class Loop:
    """A loop whose timers fire by hand."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []
        self.cancelled = 0

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> Loop:
        self.timers.append((delay_s, call, arguments))
        return self

    def cancel(self) -> None:
        self.cancelled += 1


def test_the_probe_wakes_an_idle_loop_four_times_a_second(measured: Pauses) -> None:
    loop = Loop()
    measured.begin(cast(asyncio.AbstractEventLoop, loop))
    for _ in range(5):
        [(delay_s, call, arguments)] = loop.timers
        assert delay_s == PROBE_S >= 0.25
        loop.timers.clear()
        call(*arguments)
    assert sum(measured.lag.counts) == 5


def test_a_late_probe_is_counted_with_its_lag(measured: Pauses, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(pauses, "monotonic", lambda: now)
    loop = Loop()
    measured.begin(cast(asyncio.AbstractEventLoop, loop))
    for late_s in (0.0, 0.125, -0.0625):  # A timer may fire a little early.
        now += PROBE_S + late_s
        _, call, arguments = loop.timers.pop()
        call(*arguments)
    assert measured.lag.sum_s == 0.125 and sum(measured.lag.counts) == 3


@pytest.mark.parametrize(
    ("seconds", "waits"),
    [(0.2, [0.2]), (0.25, [0.25, 0.0]), (1.0, [1.0, 0.75, 0.5, 0.25, 0.0]), (0.6, [0.6, 0.35, 0.1])],
)
def test_probes_that_a_blocked_loop_missed_are_counted_too(
    measured: Pauses, seconds: float, waits: list[float]
) -> None:
    measured.loop_was_late(seconds)
    assert sum(measured.lag.counts) == len(waits) and measured.lag.sum_s == pytest.approx(sum(waits))


def test_a_loop_that_was_stopped_for_a_day_is_counted_in_bounded_time(measured: Pauses) -> None:
    measured.loop_was_late(86_400.0)
    assert sum(measured.lag.counts) == PROBES_MISSED_MAX + 1


def test_collections_are_counted_by_generation(measured: Pauses) -> None:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        measured.begin(cast(asyncio.AbstractEventLoop, Loop()))
        measured.begin(cast(asyncio.AbstractEventLoop, Loop()))  # Counts once all the same.
        gc.collect(0)
        gc.collect(0)
        gc.collect(1)
        assert [sum(each.counts) for each in measured.collections] == [2, 1, 0]
        assert measured.collections[0].sum_s > 0
        measured.end()
        gc.collect(0)
        assert [sum(each.counts) for each in measured.collections] == [2, 1, 0]
    finally:
        if was_enabled:
            gc.enable()


def test_a_collection_that_had_begun_before_is_not_counted(measured: Pauses) -> None:
    measured._collector_calls("stop", {"generation": 2})
    assert sum(measured.collections[2].counts) == 0


def test_the_metrics_show_both(measured: Pauses) -> None:
    registry = CollectorRegistry()
    registry.register(PauseFigures(measured))
    measured.loop_was_late(0.2)
    measured._collector_calls("start", {"generation": 2})
    measured._collector_calls("stop", {"generation": 2})
    page = generate_latest(registry).decode()
    assert total(page, "dhsched_loop_lag_seconds_count") == 1
    assert total(page, "dhsched_loop_lag_seconds_bucket", le="0.1") == 0
    assert total(page, "dhsched_gc_pause_seconds_count", generation="2") == 1
    assert total(page, "dhsched_gc_pause_seconds_count", generation="0") == 0

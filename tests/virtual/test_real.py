"""A virtual run on a real server takes the same steps with the same answers as on the keyspace in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.servers import server_binary
from tests.virtual.apart import run_apart
from tests.virtual.real import LEFT_OUT
from tests.virtual.schedule import Fault, draw_faults

FAULTS = [
    Fault(3.0, "kill-worker", 0, 0, 2.0),
    Fault(6.0, "store-forget", 0, 0, 2.0),
    Fault(9.0, "store-clock", 3, 0, 1.0),
    Fault(10.0, "store-full", 0, 0, 1.0),
    Fault(12.0, "store-promote", 1, 0, 1.0),
]


def assert_same(seed: int, hours: float, faults: list[Fault], folder: Path) -> None:
    """Run a seed on both back ends; compare every line of their traces, of which steps and answers are a part."""
    server_binary("valkey")
    lines = []
    for real in (False, True):
        trace = folder / f"trace-{real}"
        found = run_apart(seed, hours, faults, trace=str(trace), real=real)
        assert found.violations == ()
        lines.append(trace.read_bytes().split(b"\n"))
    memory, server = lines
    differ = [(n, *pair) for n, pair in enumerate(zip(memory, server, strict=False)) if pair[0] != pair[1]]
    assert differ[:1] == []
    assert len(memory) == len(server) > 100
    assert any(b" store append_input " in line for line in server)


@pytest.mark.release
@pytest.mark.timeout(300)  # Two processes of a few CPU seconds each.
def test_a_real_server_answers_every_step_as_the_keyspace_in_memory(tmp_path: Path) -> None:
    assert_same(2, 0.005, FAULTS, tmp_path)


@pytest.mark.release
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 3, 4, 7])
def test_a_real_server_answers_as_the_keyspace_in_memory_whatever_the_faults(seed: int, tmp_path: Path) -> None:
    faults = [fault for fault in draw_faults(seed, 0.03) if fault.kind not in LEFT_OUT]
    assert_same(seed, 0.03, faults, tmp_path)

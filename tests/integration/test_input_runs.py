"""The input path under faults, every part a process: seeded runs over one deployment after another.

A failure names its seed. `DHSCHED_SEED=<seed> DHSCHED_RUNS=1 pytest -m long tests/integration/test_input_runs.py`
makes the same choices again; the interleaving is the machine's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import pytest

from tests.harness.input_runs import FAULTS, Fault
from tests.harness.one_run import Run
from tests.harness.rig import Rig, rig
from tests.harness.servers import SERVERS

RUNS_LONG = 200
RUNS_PER_RIG = 25
CREDITS = (4, 8, 12)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: reads VmRSS from /proc")


@pytest.mark.release
async def test_every_fault_once(tmp_path: Path) -> None:
    async with rig(tmp_path, SERVERS[0], credit=8) as deployment:
        for seed, fault in enumerate(FAULTS):
            await one(deployment, fault, seed, short=True)


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
async def test_two_hundred_runs(tmp_path: Path) -> None:
    first, count = int(os.environ.get("DHSCHED_SEED", "0")), int(os.environ.get("DHSCHED_RUNS", RUNS_LONG))
    seeds = range(first, first + count)
    for block in sorted({seed // RUNS_PER_RIG for seed in seeds}):
        credit = Random(block).choice(CREDITS)
        async with rig(tmp_path / str(block), SERVERS[block % 2], credit) as deployment:
            for seed in (each for each in seeds if each // RUNS_PER_RIG == block):
                await one(deployment, FAULTS[seed % len(FAULTS)], seed)


async def one(deployment: Rig, fault: Fault, seed: int, *, short: bool = False) -> None:
    run = Run(deployment, seed, short=short)
    try:
        await fault(run)
    except (Exception, TimeoutError) as error:
        error.add_note(f"{fault.__name__}: repeat it with DHSCHED_SEED={seed} DHSCHED_RUNS=1, -m long")
        raise
    finally:
        await run.end()

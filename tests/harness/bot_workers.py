"""Workers whose runtime is a bot of pipecat_bot.py, as processes."""

from __future__ import annotations

from tests.harness.fleet import Fleet, until_so
from tests.harness.processes import FleetProcesses, Process

MODULE = "tests.harness.pipecat_bot"
WAIT_S = 240.0  # A busy machine needs half a minute to import Pipecat, and each process does so.


async def bot_worker(p: FleetProcesses, name: str, bot: str, **more: str) -> Process:
    """A script that calls `run_bot`, as its author starts it."""
    environment = {
        "DHSCHED_WORKER_POOL": "gpu", "DHSCHED_WORKER_CAPACITY": "2", "DHSCHED_WORKER_NAME": name,
        "DHSCHED_WORKER_LOCK_FOLDER": str(p.folder), "DHSCHED_URL": ",".join(await p.dispatch_urls()), "TEST_BOT": bot,
    }  # fmt: skip
    made = await p.start(name, module=MODULE, role="worker", pool="gpu", environment={**environment, **more})
    assert isinstance(made, Process)
    return made


async def until_ready(f: Fleet, count: int) -> None:
    """Wait until so many Workers are there."""
    found = "workers"
    await until_so(lambda: f.get("/v1/workers"), lambda said: len(said[found]) >= count, f"{count} Workers", WAIT_S)


async def until_said(f: Fleet, live: str, n: int) -> None:
    """Wait until the live's items up to n are acked."""
    what = f"{live} to ack {n}"
    await until_so(lambda: f.get(f"/v1/lives/{live}"), lambda said: said["acked"] >= n, what, WAIT_S)

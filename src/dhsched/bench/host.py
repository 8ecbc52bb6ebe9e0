"""A process with several Workers of the `null` runtime: one machine here stands for many.

    python -m dhsched.bench.host --name h0 --workers 3 --capacity 206 --dispatch URL,... --locks DIR

Several Pools or cells, separated by commas, are dealt to the Workers in turn.

Each of them registers, reports, holds its device and claims its lives by itself, as in a process of its own. SIGTERM
asks all of them to leave; killed, all of them are lost at once. It ends with its parent (local/child.py).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from dhsched.web.logs import configure_logging
from dhsched.web.running import run_loop
from dhsched.worker.main import Leaving, run_worker
from dhsched.worker.runtimes import null
from dhsched.worker.settings import WorkerSettings


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--capacity", type=int, required=True)
    parser.add_argument("--pool", default="gpu")
    parser.add_argument("--cells", default="")
    parser.add_argument("--dispatch", required=True)
    parser.add_argument("--locks", type=Path, required=True)
    parser.add_argument("--drain-s", type=float, default=0.0)
    given = parser.parse_args()
    configure_logging(level="error", json=False)
    run_loop(host(given), runs_code_of_others=True)


async def host(given: argparse.Namespace) -> None:
    leaving = Leaving()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, leaving.requested.set)
    pools, cells = given.pool.split(","), given.cells.split(",")
    settings = [
        WorkerSettings(
            pool=pools[number % len(pools)],
            cell=cells[number % len(cells)],
            capacity=given.capacity,
            name=f"{given.name}-{number}",
            device=f"{given.name}-{number}",
            dispatch=tuple(given.dispatch.split(",")),
            drain_s=given.drain_s,
            lock_folder=given.locks,
        )
        for number in range(given.workers)
    ]
    print("ready", flush=True)
    await asyncio.gather(*(run_worker(one, null, leaving) for one in settings))


if __name__ == "__main__":
    main()

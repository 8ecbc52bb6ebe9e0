"""Real dispatch processes for tests, started quickly: one process imports everything, then forks them.

    python -m tests.harness.replicas STORE_URL NAME[=FAILPOINT] ...

It prints `NAME PID URL` for each as it begins to listen, and stops them all when its standard input ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dhsched import failpoints
from dhsched.dispatch.app import run_dispatch
from dhsched.local.process import START_S, Process
from dhsched.settings import DispatchSettings, settings_from
from dhsched.store.link.address import Address
from dhsched.store.steps.redis import RedisStore
from dhsched.web import run_service
from dhsched.web.logs import configure_logging

SILENCE_IS_FINE = {"DHSCHED_DISPATCH_WORKER_TTL_S": "3600"}
"""Workers that `register` makes report once: nobody shall call them lost for it."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One process."""

    name: str
    pid: int
    url: str


@asynccontextmanager
async def replicas(address: Address, *names: str, **environment: str) -> AsyncIterator[list[Replica]]:
    """Run a replica for each name (`name=failpoint` arms it), in the order of the names."""
    process = await Process.spawn(
        *("replicas", sys.executable, "-m", "tests.harness.replicas", address.url(), *names),
        environment={**SILENCE_IS_FINE, **environment},
    )
    try:
        async with asyncio.timeout(START_S):
            while len(process.printed) < len(names):
                assert process.returncode is None, "the replicas ended before all of them listened"
                await asyncio.sleep(0.01)
        lines = [line.split() for line in process.printed]
        found = {name: Replica(name, int(pid), url) for name, pid, url in lines}
        yield [found[name.partition("=")[0]] for name in names]
    finally:
        await process.stop(START_S)


async def register(store: RedisStore, count: int, *, capacity: int, pool: str = "gpu", name: str = "w") -> list[str]:
    """Workers that have registered and reported: as far as placement can tell, real ones."""
    made = []
    for number in range(count):
        boot = f"boot-{pool}-{name}-{number}"
        outcome = await store.register_worker(name=f"{name}{number}", boot=boot, pool=pool, capacity=capacity)
        await store.report(worker=outcome.worker, boot=boot)
        made.append(outcome.worker)
    return made


def main(url: str, names: list[str]) -> None:
    children = [pid for name in names if (pid := _fork(url, *name.partition("=")[::2]))]
    sys.stdin.buffer.read()
    for pid in children:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
    for pid in children:
        os.waitpid(pid, 0)


def _fork(url: str, name: str, point: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        if point:
            os.environ[failpoints.VARIABLE] = f"{point}:kill"
            failpoints.arm()
        given = {"store": url, "port": 0, "name": name, "stop_s": 1, "log_level": "error", "access": "open"}
        settings = settings_from(DispatchSettings, given)
        configure_logging(level=settings.log_level)

        def say(url: str) -> None:
            os.write(1, f"{name} {os.getpid()} {url}\n".encode())

        run_service(lambda stop: run_dispatch(settings, stop, say))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""`make walks`: how many source files the four main paths pass through, and how often a path goes from file to file.

A reader who follows a path opens each of its files, and changes files at each entry. A profiler notes every call into
`src/dhsched` while a small deployment runs in this process (tests/harness/fleet.py); Lua is not seen. A call
counts for the task that caused it, and a reply that arrives for the task that runs next.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import NamedTuple
from unittest.mock import patch

import structlog

import dhsched
from tests.harness.fleet import Fleet, Record, WorkerTask, fleet, until

WALKS = {
    "create": "CreateLive: HTTP to 201 and the wake",
    "start": "wake to a claimed runtime",
    "push": "push to ack",
    "death": "death of a Worker to the next claim",
}
TAKES = 3  # Of each walk; the median is printed.
SOURCE = f"{dhsched.__path__[0]}/"
SETTLE_S = 1.2  # Before a walk: longer than a Worker's last report at the usual pace may be away.
AFTER_S = 0.25  # After a walk: for what its last call set off.

RARELY = dict.fromkeys(("refresh_min_s", "refresh_max_s", "worker_ttl_s", "reconcile_s", "rebalance_s", "drain_s"), 60)
"""A replica's polls that can be made rare. The Worker that is killed hangs up, so it is lost without `worker_ttl_s`."""
ALWAYS = {
    *(
        "drain",
        "drain, new",
        "drain, next",
        "rebalance",
        "cutovers",
        "handoffs",
        "reconciliation",
        "quotas",
    ),  # A replica's loops,
    *("metering", "fleet view", "worker links", "replica report", "changes"),  # and what it reads again and again.
    *("announce_until",),  # An Infer-Controller.
    *("key ring",),  # Both.
    *("_report_every_second",),  # A Worker.
}
"""Tasks that run all the time, by name, or by function where they have no name. They are left out of every walk."""
ACTS = {"liveness": "expire_worker", "liveness, told": "expire_worker", "recovery": "look"}
"""Loops that a walk goes through. A round counts if it calls this function; any other round found nothing to do."""

Owner = tuple[str, int]
OWNER: ContextVar[Owner | None] = ContextVar("OWNER", default=None)
"""The task that a call is made for, with the number of its round if it is a loop. What a task starts inherits it."""
DYING: ContextVar[bool] = ContextVar("DYING", default=False)
"""Whether this is the Worker that is killed. Its tasks are cancelled and tidy up; after kill -9 they could not."""


class Walk(NamedTuple):
    """The files of one walk, in the order in which it enters them; a file stands there once for each entry."""

    path: tuple[str, ...]

    @property
    def files(self) -> int:
        return len({*self.path})

    @property
    def entries(self) -> int:
        return len(self.path)


class Calls:
    """The calls into our source while the block runs."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, Owner | None]] = []
        self._rounds: dict[str, FrameType] = {}
        self._acted: set[Owner] = set()

    def __enter__(self) -> Calls:
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if event != "call" or not file.startswith(SOURCE) or DYING.get():
            return
        task = current_task()
        if function == "round" and self._rounds.get(task) is not frame:
            # A coroutine that goes on after an await is called again, in the same frame.
            self._rounds[task] = frame
            OWNER.set((task, len(self._calls)))
        elif task in ALWAYS or (task and OWNER.get() is None):
            OWNER.set((task, 0))
        owner = OWNER.get()
        if owner is not None and function == ACTS.get(owner[0]):
            self._acted.add(owner)
        self._calls.append((file, owner))

    def walk(self) -> Walk:
        """The walk without what runs all the time."""
        path: list[str] = []
        owner: Owner | None = None
        for file, noted in reversed(self._calls):
            owner = noted or owner
            name = owner[0] if owner else ""
            idle = name in ACTS and owner not in self._acted
            if name not in ALWAYS and not idle and path[-1:] != [file]:
                path.append(file)
        return Walk(tuple(file.removeprefix(SOURCE) for file in reversed(path)))


def current_task() -> str:
    """The name of the task that runs; empty outside of tasks."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return ""
    return name_of(task) if task is not None else ""


def name_of(task: asyncio.Task[object]) -> str:
    name = task.get_name()
    return getattr(task.get_coro(), "__name__", name) if name.startswith("Task-") else name


@asynccontextmanager
async def deployment(record: Record, *, with_loops: bool = False) -> AsyncIterator[tuple[Fleet, WorkerTask]]:
    """A deployment with one Worker, w1, and one live that has had input."""
    with tempfile.TemporaryDirectory() as folder:
        async with fleet(Path(folder), with_loops=with_loops, replica=RARELY) as made:
            dying = DYING.set(with_loops)
            worker = await made.start_worker(record, "w1", capacity=TAKES + 1)
            DYING.reset(dying)
            await see_workers(made, 1)
            await made.create("first")
            await made.push("first", "hello")
            await until(lambda: record.consumed, "the first item")
            yield made, worker


async def see_workers(made: Fleet, count: int) -> None:
    """The view is refreshed by hand: by itself it hardly ever is."""
    view = made.replicas[0].fleet
    for _ in range(100):
        await asyncio.sleep(0.05)
        await view.refresh(full=True)
        if len(view.view.workers) == count:
            return
    raise AssertionError(f"the view has {len(view.view.workers)} Workers, not {count}")


async def create_start_push(takes: int) -> dict[str, list[Walk]]:
    found: dict[str, list[Walk]] = {"create": [], "start": [], "push": []}
    record = Record()
    async with deployment(record) as (made, _):
        with rare_reports():
            for live in (f"live-{n}" for n in range(takes)):
                opened, consumed = len(record.opened), len(record.consumed)
                await asyncio.sleep(SETTLE_S)
                with Calls() as create:
                    await made.create(live)
                with Calls() as start:
                    await until(more_than(opened, record.opened), f"{live} to open")
                    await asyncio.sleep(AFTER_S)
                await asyncio.sleep(SETTLE_S)
                with Calls() as push:
                    await made.push(live, "hello", boundary=True)
                    await until(more_than(consumed, record.consumed), f"the input of {live}")
                    await asyncio.sleep(AFTER_S)
                for name, calls in (("create", create), ("start", start), ("push", push)):
                    found[name].append(calls.walk())
    return found


async def death() -> Walk:
    record = Record()
    async with deployment(record, with_loops=True) as (made, worker):
        await made.start_worker(record, "w2")
        await see_workers(made, 2)
        with rare_reports():
            await asyncio.sleep(SETTLE_S)
            with Calls() as calls:
                await worker.kill()
                await until(more_than(1, record.opened), "w2 to claim the live")
                await asyncio.sleep(AFTER_S)
    return calls.walk()


def more_than(count: int, of: Sequence[object]) -> Callable[[], bool]:
    return lambda: len(of) > count


def rare_reports() -> AbstractContextManager[object]:
    return patch("dhsched.worker.dispatch_link.REPORT_S", 60.0)


async def take_walks() -> dict[str, list[Walk]]:
    return {**await create_start_push(TAKES), "death": [await death() for _ in range(TAKES)]}


def middle(walks: Sequence[Walk]) -> Walk:
    """The walk with the median of entries."""
    return sorted(walks, key=lambda walk: walk.entries)[len(walks) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.walks", description=__doc__)
    parser.add_argument("--files", action="store_true", help="also the files of each walk, with the entries into each")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    given = parser.parse_args()
    # The deployment of this process has nothing to tell: it is killed on purpose.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable()
    walks = {name: middle(taken) for name, taken in asyncio.run(take_walks()).items()}
    print(f"{'walk':40} files  entries")
    for name, walk in walks.items():
        print(f"{WALKS[name]:40} {walk.files:5}  {walk.entries:7}")
        if given.files:
            print("".join(f"  {count:3}  {file}\n" for file, count in Counter(walk.path).items()))
    if given.json:
        print(json.dumps({name: {"files": walk.files, "entries": walk.entries} for name, walk in walks.items()}))


if __name__ == "__main__":
    main()

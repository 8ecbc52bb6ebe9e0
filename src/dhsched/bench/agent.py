"""CPU time of a Worker's agent per start, with few lives on the Worker and with many.

A start is what the Worker does between Dispatch's answer and its own next report: it reads the frame with the slot that
changed, takes it into its slot table, starts a runtime that claims at once, and writes the report. The agent and its
rules are the product's; no controller is connected, so claims go nowhere. Times are CPU time of this thread, sizes take
turns, and the result is the median of all starts of a size: it excludes other load and the garbage collector, which
both sizes pay alike per object.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from statistics import median
from time import thread_time_ns

from dhsched.errors import DhschedError
from dhsched.links.messages import Reported, encode, read_from_dispatch
from dhsched.types import SlotState
from dhsched.worker.agent import SessionAgent
from dhsched.worker.inbox import LiveInfo, SessionInbox
from dhsched.worker.pull_client import PullClient
from dhsched.worker.pull_dial import Socket
from dhsched.worker.runtimes import null

SIZES = (50, 4_000)
ROUNDS = 5
TICKS_MAX = 1_000  # Runtimes that have not started or ended after so many ticks end the benchmark with an error.
STARTS = 200  # Per size and round; each live ends before the next one starts, so that the number of lives stays.


async def bench_agent() -> dict[str, float]:
    """Return the microseconds of CPU time per start for each size, and the ratio of the largest to the smallest."""
    workers = {lives: BusyWorker(lives) for lives in SIZES}
    took: dict[int, list[int]] = {lives: [] for lives in SIZES}
    for worker in workers.values():
        await worker.fill()
    for _ in range(ROUNDS):
        for lives, worker in workers.items():
            took[lives] += [await worker.start_one() for _ in range(STARTS)]
    for worker in workers.values():
        worker.agent.stop_all()
        await worker.agent.stopped()
    us = {lives: median(some) / 1000 for lives, some in took.items()}
    figures = {f"agent_us_per_start_{lives}": round(each, 1) for lives, each in us.items()}
    return figures | {"agent_start_ratio": round(us[SIZES[-1]] / us[SIZES[0]], 2)}


class BusyWorker:
    """An agent with so many running lives, and the slot table that Dispatch would send it."""

    def __init__(self, lives: int) -> None:
        self.agent = SessionAgent(
            null, worker="bench#1", capacity=lives + 1, pulls=GrantedAtOnce(), say_depart=lambda *_: None
        )
        self._lives = lives
        self._rev = 0

    async def fill(self) -> None:
        self._take({f"default/l{n}@1": "running" for n in range(self._lives)}, base=0)
        await self._started(self._lives)

    async def start_one(self) -> int:
        """Start one more live and end it again; return the nanoseconds of CPU time that its start took."""
        tag = f"default/new@{self._rev}"
        frame = self._frame({tag: "starting"}, base=self._rev)
        began = thread_time_ns()
        self._read(frame)
        await self._started(self._lives + 1)
        encode([self.agent.report()])
        took = thread_time_ns() - began
        self._take({tag: "departing"}, base=self._rev)
        await self._started(self._lives)
        self._take({tag: None}, base=self._rev)
        await asyncio.sleep(0)
        return took

    async def _started(self, runtimes: int) -> None:
        for _ in range(TICKS_MAX):
            await asyncio.sleep(0)
            if self.agent.runtimes == runtimes and not self.agent.report().busy:
                return
        raise DhschedError(f"{self.agent.runtimes} runtimes, not {runtimes}; this is a bug of the benchmark, report it")

    def _take(self, table: dict[str, SlotState | None], *, base: int) -> None:
        self._read(self._frame(table, base=base))

    def _frame(self, table: dict[str, SlotState | None], *, base: int) -> bytes:
        self._rev += 1
        return encode([Reported(self._rev, 1, self._rev, "ready", table=table, base=base)])

    def _read(self, frame: bytes) -> None:
        for said in read_from_dispatch(frame):
            assert isinstance(said, Reported) and said.table is not None
            self.agent.take_table(home=said.home, term=said.term, rev=said.rev, table=said.table, base=said.base)


class GrantedAtOnce(PullClient):
    """Pulls without a controller: each pull is granted at once, with the details of its live."""

    def __init__(self) -> None:
        super().__init__(no_controller, on_over=lambda _session: None)

    def open(self, inbox: SessionInbox) -> asyncio.Future[LiveInfo]:
        opening = super().open(inbox)
        opening.set_result(LiveInfo())
        return opening


def no_controller(url: str) -> AbstractAsyncContextManager[Socket]:
    raise AssertionError(f"the benchmark of the agent has no controller, not {url}")

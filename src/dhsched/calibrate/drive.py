"""Drive a runtime with 1, 2, ... speaking lives on a private deployment, and find how many are not late.

A live that always has the next item waiting speaks without a pause, so the time from one ack to the next is the time
that the runtime needs for an item. A runtime that speaks in real time needs as long for it as the words take, however
many lives there are, until the device cannot keep up: then every item takes longer. This works for any runtime, because
every runtime acks. A runtime that leaves frames out instead acks in time; what it reports with `Session.late` is added
to the time of its item. A runtime that does not speak at a fixed pace has no such edge; for that one `item_s` says how
long an item may take.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from dhsched.calibrate.search import Ack, Search, Step, first_wait_s, pace_of, step_of
from dhsched.calibrate.timed_worker import MARK
from dhsched.client import Client
from dhsched.errors import DhschedError
from dhsched.local.deployment import Deployment
from dhsched.local.ports import free_port
from dhsched.store.server.embedded import Embedded
from dhsched.tasks import cancel, is_set_within

POOL = "calibrate"
SETTLED = 2  # A live is measured once it has acked this many items: the first also took the start of its runtime.
ITEMS_MIN = 4  # A step goes on until every live has acked this many items, and `seconds` have passed.
TRIES = 3  # A number of lives that is late so often is late.
PATIENCE = 3.0  # A step ends after this many times its expected length: lives without acks until then are late.
START_S = 600.0  # A setup, or the first item of a live, that takes longer ends the calibration with an error.
ROOM_SPARE = 100  # Places of the room beyond one per live, for lives that have ended a moment ago.
AHEAD = 2  # Items that each live has unacked: the item that is spoken, and the next.


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The options of a calibration. Without `item_s` the limit is the pace of one live alone and `tolerance` more."""

    runtime: str = ""
    command: str = ""
    setup: str = ""
    process_per_live: bool = False
    text: str
    config: dict[str, object] = field(default_factory=dict)
    seconds: float = 10.0
    most: int = 64
    tolerance: float = 0.1
    item_s: float = 0.0
    room: bool = True
    """Whether a room is started too, to which the lives publish."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The result: the capacity, and every step in the order of the lives."""

    capacity: int
    limit_s: float
    steps: tuple[Step, ...]
    bounded: bool
    """Whether more lives were late; if not, all up to `most` were in time."""


async def calibrate(
    given: Calibration, report: Callable[[Step], None], say: Callable[[str], None] = lambda _what: None
) -> Calibrated:
    """Return how many speaking lives one Worker can have. `say` is called with a sentence before each
    wait, `report` after each step."""
    steps: dict[int, Step] = {}
    say("starting a private deployment with one Worker")
    async with speaking_lives(given) as lives:
        say(f"measuring one live alone, twice for {given.seconds:g} s or more")
        # A pause of this machine only makes an item longer: of two measurements the shorter is nearer to the truth.
        twice = [await lives.step(1, given.seconds, limit_s=given.item_s or float("inf")) for _ in range(2)]
        alone = min(twice, key=lambda step: step.slowest_s)
        limit_s = given.item_s or alone.slowest_s * (1 + given.tolerance)
        search = Search(given.most)
        lives.alone_s = alone.slowest_s
        steps[1] = alone
        report(alone)
        search.tried(1, late=alone.late)
        while (number := search.next()) is not None:
            step = await lives.step(number, given.seconds, limit_s)
            for _ in range(TRIES - 1):
                # A pause of this machine is not the runtime's: only what is late each time is late.
                if step.late:
                    step = await lives.step(number, given.seconds, limit_s)
            steps[number] = step
            report(step)
            search.tried(number, late=step.late)
    ordered = tuple(steps[number] for number in sorted(steps))
    return Calibrated(search.good, limit_s, ordered, any(step.late for step in ordered))


@asynccontextmanager
async def speaking_lives(given: Calibration) -> AsyncIterator[SpeakingLives]:
    """Start a deployment with one Worker, which runs what is calibrated."""
    async with Embedded() as server, Deployment(server.address.url()) as made:
        lives = SpeakingLives(given)
        await made.dispatch("dispatch-1")
        # The Infer-Controller sends Workers the room's address and starts before the room: choose the port first.
        port = free_port() if given.room else 0
        await made.infer("infer-1", *(("--room", f"http://127.0.0.1:{port}") if port else ()))
        if port:
            many = str(given.most + ROOM_SPARE)
            limits = {"DHSCHED_ROOM_LIVES_MAX": many, "DHSCHED_ROOM_CONNECTIONS_PER_ADDRESS_MAX": many}
            await (await made.room("room-1", port=port, environment=limits)).until_ready()
        await made.configure({POOL: [POOL]})
        what = ("--exec", given.command) if given.command else ("--runtime", given.runtime)
        setup = ("--setup", given.setup) if given.setup else ()
        worker = await made.start(
            "worker-1",
            *what,
            *setup,
            module="dhsched.calibrate.timed_worker",
            role="worker",
            pool=POOL,
            environment={
                "DHSCHED_URL": ",".join(await made.dispatch_urls()),
                "DHSCHED_WORKER_POOL": POOL,
                "DHSCHED_WORKER_CAPACITY": str(given.most),
                "DHSCHED_WORKER_NAME": "worker-1",
                "DHSCHED_WORKER_LOCK_FOLDER": str(made.folder),
                "DHSCHED_WORKER_DRAIN_S": "0",
                "DHSCHED_LOG_LEVEL": "error",
                "DHSCHED_WORKER_PROCESS_PER_LIVE": str(given.process_per_live).lower(),
            },
            hear=lives.hear,
        )
        lives.worker_ended = asyncio.ensure_future(worker.ended(wait_s=float("inf")))
        async with made.client() as client:
            lives.client = client
            try:
                await lives.unless_failed(made.until_workers(1, START_S))
                yield lives
            finally:
                await lives.close()


class SpeakingLives:
    """Lives that speak without a pause, and when each acked an item."""

    def __init__(self, given: Calibration) -> None:
        self.client: Client | None = None
        self.worker_ended: asyncio.Future[int] | None = None
        self.alone_s = 0.0  # Pace of one live, once it is known.
        self._given = given
        self._acks: dict[str, list[Ack]] = {}
        self._wanted: dict[str, asyncio.Semaphore] = {}
        self._feeders: dict[str, asyncio.Task[None]] = {}
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()

    def hear(self, line: bytes) -> None:
        """Take one line that the Worker has printed."""
        if not (text := line.decode(errors="replace")).startswith(MARK):
            return
        said = json.loads(text.removeprefix(MARK))
        name = said["live"].rpartition("/")[2]
        if "crashed" in said:
            self._fail(f"the runtime crashed: {said['crashed']}")
        elif name in self._acks:
            acks = self._acks[name]
            for _ in range(said["item"] - (acks[-1].item if acks else 0)):
                self._wanted[name].release()
            acks.append(Ack(said["item"], said["at"], said["late_s"]))
            self._changed.set()

    async def step(self, number: int, seconds: float, limit_s: float) -> Step:
        """Have so many lives speak, and return their paces once every live has settled."""
        await self.unless_failed(self._have(number))
        settled = {name: max(len(acks) + 1, SETTLED) for name, acks in self._acks.items()}
        await self._until(lambda: all(len(self._acks[name]) >= settled[name] for name in settled), START_S)
        first = {name: len(acks) - 1 for name, acks in self._acks.items()}
        expected_s = max(seconds, ITEMS_MIN * limit_s if limit_s < float("inf") else START_S / PATIENCE)
        done_at = asyncio.get_running_loop().time() + seconds

        def done() -> bool:
            enough = all(len(self._acks[name]) - first[name] > ITEMS_MIN for name in first)
            return enough and asyncio.get_running_loop().time() >= done_at

        with suppress(TimeoutError):
            await self._until(done, expected_s * PATIENCE)
        return step_of([pace_of(self._acks[name][at:]) for name, at in first.items()], limit_s)

    async def close(self) -> None:
        await cancel(*self._feeders.values(), self.worker_ended)

    async def _have(self, number: int) -> None:
        assert self.client is not None
        while len(self._acks) > number:
            name = next(reversed(self._acks))
            self._feeders[name].cancel()
            await self.client.end(name)
            del self._acks[name], self._wanted[name], self._feeders[name]
        while len(self._acks) < number:
            live = await self.client.create(POOL, config=self._given.config, wait_s=30)
            wait_s = first_wait_s(len(self._acks), self.alone_s)
            self._acks[live.live_id] = []
            self._wanted[live.live_id] = asyncio.Semaphore(AHEAD)
            feeding = self._feeders[live.live_id] = asyncio.create_task(self._feed(live.live_id, wait_s))
            feeding.add_done_callback(self._feeder_ended)

    async def _feed(self, name: str, wait_s: float) -> None:
        assert self.client is not None
        await asyncio.sleep(wait_s)
        wanted = self._wanted[name]
        while True:
            await wanted.acquire()
            await self.client.push(name, self._given.text, boundary=True)

    def _feeder_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"no text could be pushed: {error}")

    def _fail(self, reason: str) -> None:
        if not self._failure.done():
            self._failure.set_exception(DhschedError(reason))

    async def _until(self, condition: Callable[[], bool], wait_s: float) -> None:
        async def wait() -> None:
            async with asyncio.timeout(wait_s):
                while not condition():
                    self._changed.clear()
                    await is_set_within(0.05, self._changed)

        await self.unless_failed(wait())

    async def unless_failed(self, work: Awaitable[None]) -> None:
        """Wait for `work`; raise DhschedError if the runtime crashes or the Worker ends meanwhile."""
        assert self.worker_ended is not None
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._failure, self.worker_ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel(task)
        if self._failure.done():
            self._failure.result()
        if self.worker_ended.done():
            raise DhschedError(f"the Worker ended with status {self.worker_ended.result()}; its output says why")
        task.result()

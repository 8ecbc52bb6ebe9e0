"""One virtual run: from a seed, hours and a schedule of faults to what was found."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, MutableSet, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohappyeyeballs
import structlog

from dhsched.client import Client
from dhsched.infer import emits, pull, pulls
from dhsched.store.records.events import decode as decode_events
from dhsched.tasks import cancel
from dhsched.web import running as web_running
from dhsched.web import server as web_server
from dhsched.web.endpoints import Operation
from dhsched.worker import pull_client
from tests.virtual import entropy
from tests.virtual.blocked import Watchdogs
from tests.virtual.cells import Judges
from tests.virtual.deployment import APPLICATIONS_HOST, CELL_HOSTS, STORE_HOST, Deployment, frames_of
from tests.virtual.faults import Faults
from tests.virtual.keyed import dated
from tests.virtual.load import Load
from tests.virtual.loop import Node, VirtualLoop
from tests.virtual.net import Net, Socket
from tests.virtual.passed import Passed
from tests.virtual.probes import Probes
from tests.virtual.real import RealStore, Server, running_each
from tests.virtual.runtime import Recorder
from tests.virtual.schedule import Fault
from tests.virtual.store import StoreServer
from tests.virtual.swarm import SWARMS, Swarm
from tests.virtual.trace import Trace

READY_MAX_S = 120.0  # A deployment without faults that does not take its first configuration in this time never will.
LOOK_S = 60.0  # Between two readings of the store's whole state, and two collections of garbage.
SETTLE_MARGIN_S = 600.0  # After the last fault, beside the product's limits, until every live has consumed everything.
BOUND_S = 10.0  # Between two looks at how long each live has stood still.
READ_S = 5.0  # A GET through one replica is given up after this long.
EQUAL_S = 60.0  # So long after the last fault the configuration and the keys are equal in all cells.
EQUAL_LOOKS = 60  # Within that time; after the last one a difference is a violation.


@dataclass(frozen=True, slots=True)
class Result:
    """What a run has found."""

    seed: int
    hours: float
    faults: int
    pushes: int
    violations: tuple[str, ...]
    trace_sha256: str
    steps: int
    consumed: int
    cpu_s: float
    answers: dict[str, int]
    latest: tuple[str, ...]
    """The end of the trace before the first violation."""
    passed: tuple[str, ...]
    """The limits that the run has passed (`passed.py`), of a small one."""

    def line(self) -> dict[str, Any]:
        """What a run prints last: the same seed prints the same line."""
        return {
            "seed": self.seed,
            "hours": self.hours,
            "faults": self.faults,
            "pushes": self.pushes,
            "violations": len(self.violations),
            "trace_sha256": self.trace_sha256,
        }


def run(
    seed: int,
    hours: float,
    faults: Sequence[Fault],
    *,
    swarm: str = "any",
    trace_file: Path | None = None,
    first: bool = False,
    real: bool = False,
) -> Result:
    """Run a seed with these faults; with `first` only until something is found, and with `real` on a real server.

    `entropy.install` must have been called before the product was imported.
    """
    began = time.process_time()
    loop, drawn = VirtualLoop(), SWARMS[swarm](seed)
    with (
        quiet(),
        on_net(),
        in_order(),
        dated(),
        described_once(),
        tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder,
        running_each(Path(folder), drawn.cells) if real else contextlib.nullcontext() as servers,
    ):
        entropy.begin(seed, loop.time)
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            asyncio.set_event_loop(loop)
            one = OneRun(loop, seed, hours, drawn, Path(folder), trace_file, servers)
            loop.set_exception_handler(one.unhandled)
            loop.run_until_complete(one.run(faults, first=first))
        finally:
            entropy.end()
            gc.enable()
            asyncio.set_event_loop(None)
    return one.result(len(faults), time.process_time() - began)


class OneRun:
    """The parts of one run."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int,
        hours: float,
        swarm: Swarm,
        folder: Path,
        trace_file: Path | None,
        servers: Sequence[Server] | None,
    ) -> None:
        self.loop, self.seed, self.hours, self.swarm = loop, seed, hours, swarm
        self.trace = Trace(loop, trace_file)
        self.net = loop.net = Net(loop, seed, swarm.delay_s)
        self.stores = make_stores(loop, self.net, swarm, seed, servers)
        self.judges = Judges(loop, swarm, self.stores, self.trace)
        self.recorder = Recorder(loop, seed, self.trace.note, self.judges.wrong)
        self.recorder.granted = self.judges.granted
        self.deployment = Deployment(
            loop, self.net, swarm, self.stores, self.recorder, folder, self.trace.note, self.judges.wrong
        )
        self.recorder.publishes = bool(swarm.rooms)
        if swarm.cells > 1:
            self.recorder.on_open = self.judges.opened
            self.deployment.on_registered = lambda worker, began: self.judges.beside.answered("registration", "", began)
        self.applications = Node(loop, "applications", APPLICATIONS_HOST)
        self.load: Load
        self.passed: Passed | None = None
        self._events_after = b"-"
        self.watchdogs = Watchdogs(loop, self.net, self.judges.is_lost, self.judges.wrong, self._mark)
        if swarm.small:
            self.passed = self.recorder.passed = Passed()
            self.judges.cells[0].tally.watch = self.passed.on_step
        if swarm.numbers_from:
            self.judges.begin_above(swarm.numbers_from)

    async def run(self, faults: Sequence[Fault], *, first: bool) -> None:
        cells = f" cells {self.swarm.cells} {self.swarm.one_address}" if self.swarm.cells > 1 else ""
        self.trace.note(f"run {self.seed} {self.swarm}{cells}")
        watching = self.judges.pictures.watching() if self.swarm.rooms else contextlib.nullcontext()
        with watching, self.watchdogs.in_place():
            await self._run(faults, first=first)

    async def _run(self, faults: Sequence[Fault], *, first: bool) -> None:
        self.deployment.start()
        driving = self.applications.spawn(self._drive(faults), "drive")
        if first:
            found = asyncio.create_task(self.judges.violations.any.wait())
            await asyncio.wait((driving, found), return_when=asyncio.FIRST_COMPLETED)
            await cancel(found)
            if not driving.done():
                await cancel(driving)
        if not driving.cancelled():
            await driving
        await self.deployment.stop()

    async def _drive(self, faults: Sequence[Fault]) -> None:
        dispatch, key = self.deployment.dispatch, self.deployment.keys.admin
        infer = None if self.swarm.one_address else self.deployment.infer
        async with contextlib.AsyncExitStack() as clients:
            client = await clients.enter_async_context(Client(dispatch, infer, key=key))
            readers = [Client(url, infer, key=key, deadline_s=READ_S) for url in dispatch]
            for each in readers:
                await clients.enter_async_context(each)
            self.load = Load(self.deployment, client, readers, self.judges, self.seed)
            await asyncio.wait_for(self.load.configure(), READY_MAX_S)
            looking = asyncio.create_task(self._look())
            bounding = asyncio.create_task(self._bound())
            loading = asyncio.create_task(self._apply())
            injected = Faults(self.deployment, self.judges, self.load, self.watchdogs)
            await injected.run(faults, until=self.loop.now + self.hours * 3600)
            self.load.close()
            await self._settle(loading)
            looking.cancel()
            bounding.cancel()
            self.judges.look_at_store()
            self.judges.at_end(self.load.told, self.recorder, self.hours, ends=self.deployment.ends)

    async def _apply(self) -> None:
        """Applications and operators; in a small run also those that get past limits."""
        doing = [self.load.run()]
        if self.passed is not None:
            asks = self.judges.cells[0].bounds.operator_asks
            doing.append(Probes(self.deployment, self.load, self.passed, self.seed, asks).run())
        await asyncio.gather(*doing)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.judges.look_at_store()
            self._read_events()
            gc.collect()

    async def _bound(self) -> None:
        while True:
            await asyncio.sleep(BOUND_S)
            self.load.look()
            for each in self.deployment.workers:
                each.look()
            self.judges.look()

    async def _settle(self, loading: asyncio.Task[None]) -> None:
        """Without faults every wait ends: of applications, and of lives with input."""
        if self.judges.several:
            await self._until_equal()
        limits = self.swarm.limits
        most_s = (
            2 * limits.ack_wait_ms + 2 * limits.claim_wait_ms + 3 * limits.backoff_max_ms
        ) / 1000 + SETTLE_MARGIN_S
        give_up = self.loop.now + most_s
        while (waits := self._waiting(loading)) and self.loop.now < give_up:
            await asyncio.sleep(5.0)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.load.tidy_up(), 30.0)
        for each in waits:
            self.judges.wrong(f"waits: {most_s:.0f} s after the last fault {each}")
        if not loading.done():
            loading.cancel()
        await asyncio.gather(loading, return_exceptions=not loading.done() or loading.cancelled())

    def _waiting(self, loading: asyncio.Task[None]) -> list[str]:
        found = (
            []
            if loading.done()
            else [f"an application waits for an answer; the last error was: {self.load.last_error}"]
        )
        for live, record in sorted(self.judges.lives.items()):
            if record.state != "ended" and record.acked < record.appended:
                at = f"{record.selected}@{record.epoch}, active {record.active}, tries {record.tries}"
                found.append(f"{live} has {record.appended - record.acked} items that nobody acked ({at})")
        return found

    async def _until_equal(self) -> None:
        for _ in range(EQUAL_LOOKS):
            if not (differs := self.judges.unequal()):
                break
            await asyncio.sleep(EQUAL_S / EQUAL_LOOKS)
        if differs:
            self.judges.wrong(f"cells: {EQUAL_S:.0f} s after the last fault {differs}")

    def _mark(self, name: str) -> None:
        if self.passed is not None:
            self.passed.mark(name)

    def _read_events(self) -> None:
        if self.passed is None:
            return
        store = self.stores[0]
        rows = store.keyspace.xrange(store.keys.of("events").encode(), self._events_after, b"+")
        for row in decode_events(rows):
            self.passed.on_event(row.event.kind, row.event.numbers)
        if rows:
            self._events_after = b"(" + rows[-1][0]

    def unhandled(self, loop: Any, context: dict[str, Any]) -> None:
        what = context.get("future") or context.get("task")
        node = getattr(what, "node", None)
        if node is not None and node.dead:
            return  # Of a process that was killed: nobody would have seen it.
        error = context.get("exception")
        at = frames_of(error) if error is not None else repr(what)
        self.judges.wrong(f"process: {context.get('message')}: {error!r} at {at}")

    def _answers(self) -> dict[str, int]:
        """What applications, operators and readers were answered; how many pictures were shown, and calls judged."""
        beside = {f"beside {kind}": count for kind, count in self.judges.beside.judged.items()}
        return {**self.load.answers, "pictures": self.judges.pictures.shown, **beside}

    def result(self, faults: int, cpu_s: float) -> Result:
        return Result(
            self.seed,
            self.hours,
            faults,
            self.load.pushes,
            tuple(self.judges.violations.lines),
            self.trace.close(),
            self.judges.steps,
            len(self.recorder.consumed),
            cpu_s,
            dict(sorted(self._answers().items())),
            tuple(line.decode(errors="replace").rstrip()[:300] for line in self.judges.violations.before_first),
            () if self.passed is None else tuple(self.passed.names(self.hours)),
        )


def make_stores(
    loop: VirtualLoop, net: Net, swarm: Swarm, seed: int, servers: Sequence[Server] | None
) -> list[StoreServer]:
    """Return the store of each cell, each on a host of its own; with `servers`, on these."""
    hosts = [f"{CELL_HOSTS}{n}" for n in range(1, swarm.cells + 1)] if swarm.cells > 1 else [STORE_HOST]
    rows = [(loop, net, host, seed, cell) for host, cell in zip(hosts, swarm.cell_names, strict=True)]
    if servers is None:
        return [StoreServer(*row) for row in rows]
    return [RealStore(server, *row) for server, row in zip(servers, rows, strict=True)]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The services log as usual, and nobody reads it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        structlog.reset_defaults()


class Ordered(MutableSet[Any]):
    """A set whose order is that in which its members came, which is the same in every process."""

    def __init__(self, members: Iterable[Any] = ()) -> None:
        self._members = dict.fromkeys(members)

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, value: Any) -> None:
        self._members[value] = None

    def discard(self, value: Any) -> None:
        self._members.pop(value, None)


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Modules that keep connections and pulls in sets go through them in an order: by address it would be chance."""
    modules: tuple[Any, ...] = (pull_client, emits, pull, pulls)
    for module in modules:
        module.set = Ordered
    try:
        yield
    finally:
        for module in modules:
            del module.set


@contextlib.contextmanager
def described_once() -> Iterator[None]:
    """The description of a role's API is made once: a boot of a process would take longer for it than for all else."""
    module: Any = web_server
    document = module.document
    made: dict[str, dict[str, Any]] = {}

    def described(title: str, version: str, endpoints: Sequence[Operation]) -> dict[str, Any]:
        if title not in made:
            made[title] = document(title, version, endpoints)
        return made[title]

    module.document = described
    try:
        yield
    finally:
        module.document = document


@contextlib.contextmanager
def on_net() -> Iterator[None]:
    """aiohttp's client connects sockets by itself, and our listeners share one: here both are of the net."""

    async def start_connection(addr_infos: Sequence[Any], **given: Any) -> Socket:
        return Socket(("", 0), addr_infos[0][4])

    started, accepts = aiohappyeyeballs.start_connection, web_running.ACCEPTS_MAX
    aiohappyeyeballs.start_connection = start_connection  # type: ignore[assignment]
    web_running.ACCEPTS_MAX = 1
    try:
        yield
    finally:
        aiohappyeyeballs.start_connection, web_running.ACCEPTS_MAX = started, accepts

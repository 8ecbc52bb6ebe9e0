"""Random schedules of the whole input path on a real store, each replayed through the model.

A schedule is a small cell of its own: two controllers, three Workers, two lives. The controllers, pull clients, agents
and sessions are the product's; the sockets between them are in memory, so that they can be cut at any moment and a
schedule takes milliseconds. The scripts run inside the hammer's frame, which numbers them: the recorded steps, sorted
by that number, are what the store did, and the model must have answered each of them the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, NamedTuple, cast

from dhsched.access.quota_reports import QuotaReports
from dhsched.access.ring import open_ring
from dhsched.errors import StoreUnavailable
from dhsched.infer.context import Connections, InferContext, Metrics
from dhsched.infer.emits import Emits
from dhsched.infer.logs import Logs
from dhsched.infer.pull import PullText
from dhsched.infer.pulls import Pulls
from dhsched.infer.push import append_again
from dhsched.infer.settings import InferSettings
from dhsched.ownership import items
from dhsched.ownership import outcomes as o
from dhsched.ownership.limits import Limits
from dhsched.ownership.steps import STEPS
from dhsched.ownership.steps.place import Create
from dhsched.store.link.link import Link
from dhsched.store.records import Records
from dhsched.store.steps.redis import Append, RedisStore
from dhsched.store.steps.scripts import Script
from dhsched.tokens import Boot, Tokens
from dhsched.types import Kind
from dhsched.web import Service
from dhsched.worker.agent import SessionAgent
from dhsched.worker.pull_client import PullClient
from dhsched.worker.session import Session
from tests.harness.fleet import Consumed
from tests.harness.rows import split_row
from tests.harness.sockets import Network

LIMITS = Limits(pending_max=50, boots_max=1_000, starts_create_max=1_000, starts_recover_max=1_000)
LIVES = ("t/a", "t/b")
CONTROLLERS = ("c1", "c2")
KINDS: tuple[Kind, ...] = ("text", "config", "interrupt")
CAPACITY = 3
SETTLE_S = 20.0


class Step(NamedTuple):
    """One step as the store ran it: `order` is its place in the order of all of them."""

    order: tuple[int, int]
    name: str
    arguments: Mapping[str, Any]
    outcome: Any


class RecordingStore(RedisStore):
    """Writes down every step with its place in the store's order."""

    def __init__(self, link: Link, *, cell: str, scripts: Mapping[str, Script]) -> None:
        super().__init__(link, cell=cell, limits=LIMITS, scripts=scripts)
        self.link = cast(Link, RecordingLink(link, self))
        self.steps: list[Step] = []
        self.under_way: set[asyncio.Future[Any]] = set()
        self._given: Mapping[str, Any] = {}

    async def settled(self) -> None:
        """Wait for what is still on its way: whoever asked may have been killed, the store answers all the same."""
        await asyncio.gather(*self.under_way)

    def step(self, step: str, /, **arguments: Any) -> asyncio.Future[Any]:
        self._given = arguments
        return super().step(step, **arguments)

    def recording(self, name: str, argv: Sequence[Any], read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What reads the reply to this call, and writes down the steps that it tells of."""
        script, given = self._scripts[name], self._given
        count, width = len(script.argv), len(script.each)
        fixed = dict(zip(script.argv, argv[:count], strict=True))
        rows = [argv[at : at + width] for at in range(count, len(argv), width or 1)]

        def recorded(reply: Any) -> Any:
            found = read(reply)
            if not script.each:
                self.steps.append(Step((self.now_ms, 0), name.removesuffix("_create"), given, found))
                return found
            outcomes = found if isinstance(found, list) else [found]
            for at, (row, outcome) in enumerate(zip(rows, outcomes, strict=True)):
                arguments = row_arguments(name, {**fixed, **dict(zip(script.each, row, strict=True))})
                self.steps.append(Step((reply[0], at), name, arguments, outcome))
            return found

        return recorded


class RecordingLink:
    """A link on which every call of a step is carried to its end, and written down."""

    def __init__(self, link: Link, store: RecordingStore) -> None:
        self._link = link
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def run(self, script: str, keys: Sequence[Any], args: Sequence[Any], **more: Any) -> asyncio.Future[Any]:
        more["read"] = self._store.recording(script, args, more["read"])
        answer = self._link.run(script, keys, args, **more)
        self._store.under_way.add(answer)
        answer.add_done_callback(self._store.under_way.discard)
        return asyncio.shield(answer)


def row_arguments(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """One row of a shared call as the model's step takes it."""
    row = split_row(name, row)
    if name == "append_input":
        read = items.read(row["item"])
        given: dict[str, Any] = {"kind": read.kind, "payload": read.payload, "boundary": read.boundary}
        given["mark"], given["credit"] = items.mark_of(row["item"]), row["credit"]
        return {**given, **{each: row[each] for each in ("live", "producer", "n", "request", "through") if each in row}}
    return {each: row[each] for each in inspect.signature(STEPS[name]).parameters if each in row}


# -- one Worker


@dataclass
class Trace:
    """What runtimes did, in the order in which they did it."""

    consumed: list[Consumed] = field(default_factory=list)
    states: list[tuple[str, int, Any]] = field(default_factory=list)
    not_written: set[tuple[str, int]] = field(default_factory=set)  # Items that a runtime without a journal had.
    runtimes_max: int = 0


class TestWorker:
    """A boot: an agent and a pull client. What Dispatch would do is done by the schedule."""

    __test__ = False

    def __init__(self, cell: Cell, worker: str, boot: str) -> None:
        self.cell = cell
        self.worker = worker
        self.boot = boot
        self.departs: list[tuple[str, int]] = []
        self.pulls = PullClient(cell.network.dial, lambda session: self.agent.over(session))
        self.pulls.token = cell.tokens.issue(Boot(worker, boot, worker.partition("#")[0], "p", CAPACITY))
        self.agent = SessionAgent(
            self._runtime,
            worker=worker,
            capacity=CAPACITY,
            pulls=self.pulls,
            say_depart=lambda live, number, _reason: self.departs.append((live, number)),
            teardown_s=0.05,
        )
        self.pulls.use(CONTROLLERS)

    async def report(self) -> None:
        """What the link does every second: the table in, departs out."""
        said = self.agent.report()
        outcome = await self.cell.store.report(
            worker=self.worker, boot=self.boot, home=said.home, term=said.term, rev=said.rev, busy=said.busy
        )
        if isinstance(outcome, o.Reported) and outcome.table is not None:
            self.agent.take_table(home=outcome.home, term=outcome.term, rev=outcome.rev, table=outcome.table)
        await asyncio.sleep(0)
        departs, self.departs = self.departs, []
        for live, number in departs:
            await self.cell.store.depart(worker=self.worker, live=live, number=number)

    async def kill(self) -> None:
        """Gone without a word."""
        tasks = [running.task for running in self.agent._running.values() if running.task is not None]
        self.agent._stopping_all = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self.pulls.close(), return_exceptions=True)

    async def _runtime(self, session: Session) -> None:
        r, trace = self.cell.r, self.cell.trace
        generation = session.generation
        trace.runtimes_max = max(trace.runtimes_max, self.agent.runtimes)
        trace.states.append((session.live, generation.epoch, session.state))
        if r.random() < 0.2:
            await asyncio.sleep(r.random() * 0.004)
        by_hand = r.random() < 0.3
        journal = await session.journal() if not by_hand and r.random() < 0.6 else None
        async for item in session.inputs(auto_ack=not by_hand):
            one = Consumed(session.live, generation.worker, generation.epoch, item.seq, item.kind, item.text)
            trace.consumed.append(one)
            session.state = str(item.seq).encode()
            if by_hand:
                trace.not_written.add((session.live, item.seq))
            else:
                journal = journal or await session.journal()
                journal.append([item.seq])
                if r.random() < 0.2:
                    journal.replace([written_in(journal.values())])
            if r.random() < 0.2:
                await asyncio.sleep(r.random() * 0.002)
            if r.random() < 0.05 and not self.cell.healing:
                raise RuntimeError("the runtime crashes")
            if by_hand:
                # Later, and in any order.
                asyncio.get_running_loop().call_later(r.random() * 0.003, session.ack, item)


def written_in(entries: Sequence[Sequence[int]]) -> list[int]:
    """The items that the entries of a journal are about: one each, or all of those before, in short."""
    return [seq for entry in entries for seq in entry]


# -- one cell


class Cell:
    """A schedule's world."""

    def __init__(self, r: Random, store: RecordingStore, tokens: Tokens) -> None:
        self.r = r
        self.store = store
        self.tokens = tokens
        self.network = Network()
        self.trace = Trace()
        self.workers: list[TestWorker] = []
        self.killed: list[TestWorker] = []
        self.healing = False
        self._boots = 0
        self._operations = 0
        self._pushed: list[tuple[str, Kind, str, bool]] = []
        self._minders: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for name in CONTROLLERS:
            await self.start_controller(name)
        for name in "AB":
            await self.boot(name)
        for live in LIVES:
            create = Create(digital_id="d", fingerprint="f", config=b"{}")
            await self.store.place(live=live, operation=self.operation(), cause="create", create=create, pools=["p"])

    async def start_controller(self, name: str) -> None:
        pulls = Pulls(self.store, credit=self.r.choice([1, 2, 8]), controller=name)

        async def ready() -> Sequence[str]:
            return ()

        service = Service(role="infer", instance=name, ready=ready)
        records = Records(self.store.link, self.store.keys.cell_name)
        settings = InferSettings(store="unused")
        context = InferContext(
            store=self.store,
            records=records,
            settings=settings,
            service=service,
            metrics=Metrics(service.registry),
            pulls=pulls,
            emits=Emits(self.store, pulls),
            logs=Logs(records.logs, settings, lambda: False),
            quota_reports=QuotaReports(name, service.quotas, reads=records, writes=records),
            connections=Connections(settings, service),
        )
        await self.store.link.subscribe(self.store.keys.of("infer", name), pulls.on_hint)
        self.network.controllers[name] = PullText(context, self.tokens)

    async def boot(self, name: str) -> None:
        self._boots += 1
        boot = f"boot-{self._boots}"
        registered = await self.store.register_worker(name=name, boot=boot, pool="p", capacity=CAPACITY)
        worker = TestWorker(self, registered.worker, boot)
        self.workers.append(worker)
        await worker.report()

    def operation(self) -> str:
        self._operations += 1
        return f"op-{self._operations}"

    async def close(self) -> None:
        for worker in [*self.workers, *self.killed]:
            await worker.kill()
        await self.network.close()
        for name in CONTROLLERS:
            await self.store.link.unsubscribe(self.store.keys.of("infer", name))

    # -- what may happen

    async def push(self) -> None:
        if not self._pushed or self.r.random() > 0.2:
            kind: Kind = self.r.choices(KINDS, [12, 1, 1])[0]
            request = f"r{len(self._pushed) + 1}"
            self._pushed.append((self.r.choice(LIVES), kind, request, self.r.random() < 0.3))
            live, kind, request, boundary = self._pushed[-1]
        else:
            # An application that did not hear the answer says it again: stored once, and published once.
            live, kind, request, boundary = self.r.choice(self._pushed)
        # Through one of the controllers, which may hold the live's pull or not.
        item = items.unmarked(kind, request[1:].encode(), boundary)
        context = self.r.choice([*self.network.controllers.values()]).context
        append = partial(context.pulls.append, Append(live, item, request=request))
        try:
            await append()
        except StoreUnavailable as error:
            await append_again(append, error, left_s=context.settings.deadline_s)

    async def push_many(self) -> None:
        for _ in range(self.r.randrange(2, 9)):
            await self.push()

    async def report(self) -> None:
        for worker in self.workers:
            await worker.report()

    async def move(self) -> None:
        live = self.r.choice(LIVES)
        await self.place(live, "reassign", self.r.choice(self.workers).worker)

    async def place(self, live: str, cause: Any, target: str) -> Any:
        record = await self.store.records.lives.get(live)
        assert record is not None
        return await self.store.place(
            live=live, operation=self.operation(), cause=cause, expected=record.epoch, candidates=[target], pools=["p"]
        )

    async def kill(self) -> None:
        if len(self.workers) > 1:
            worker = self.workers.pop(self.r.randrange(len(self.workers)))
            await worker.kill()
            self.killed.append(worker)
            await self.boot(worker.worker.partition("#")[0])

    async def expire(self) -> None:
        """What the liveness loop would do to Workers that were killed."""
        for worker in self.killed:
            beat = await self.store.link.call("HGET", self.store.keys.of("worker", worker.worker), "beat")
            await self.store.expire_worker(worker=worker.worker, beat=int(beat or 0))

    async def recover(self) -> None:
        for live in LIVES:
            await self.place(live, "recover", self.r.choice(self.workers).worker)

    async def cut(self) -> None:
        if self.network.sockets:
            self.r.choice(self.network.sockets).cut()

    async def pull_again(self) -> None:
        """As after a refused call: on the connection that it has, with items of the pull before still on their way."""
        streams = [stream for worker in self.workers for stream in worker.pulls._streams.values()]
        if streams:
            stream = self.r.choice(streams)
            next(w for w in self.workers if stream in w.pulls._streams.values()).pulls._ask(stream)

    async def lose_hints(self) -> None:
        """As after a reconnect to the store: whatever was published may be lost, and every pull is due."""
        for controller in self.network.controllers.values():
            controller.pulls.reconnected()

    async def flush_scripts(self) -> None:
        await self.store.link.call("SCRIPT", "FLUSH")

    async def pause(self) -> None:
        await asyncio.sleep(self.r.random() * 0.003)

    async def run(self, operations: int) -> None:
        may = [self.push, self.push_many, self.report, self.move, self.kill, self.expire, self.recover, self.cut]
        may += [self.flush_scripts, self.pause, self.lose_hints, self.pull_again]
        weights = [12, 6, 10, 3, 1, 1, 2, 2, 0.2, 8, 1, 6]
        for _ in range(operations):
            await self.r.choices(may, weights)[0]()
        if self.r.random() < 0.2:
            await self.store.end_live(live=self.r.choice(LIVES), after_pending=self.r.random() < 0.7)

    async def settle(self) -> None:
        """No more faults: everything accepted must be consumed and acked."""
        self.healing = True
        await self.expire()
        async with asyncio.timeout(SETTLE_S):
            while not await self._settled():
                await self.report()
                await self.recover()
                await asyncio.sleep(0.002)

    async def _settled(self) -> bool:
        for live in LIVES:
            record = await self.store.records.lives.get(live)
            if record and record.appended != record.acked:
                return False
        return True


async def run_schedule(seed: int, link: Link, scripts: Mapping[str, Script], *, operations: int = 30) -> Cell:
    """One schedule to its end; the caller checks what it left."""
    r = Random(seed)
    store = RecordingStore(link, cell=f"s{zlib.crc32(str(seed).encode()):x}-{seed}", scripts=scripts)
    cell = Cell(r, store, Tokens(await open_ring(link, store.keys)))
    try:
        await cell.start()
        await cell.run(operations)
        await cell.settle()
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await cell.close()
    await store.settled()
    return cell

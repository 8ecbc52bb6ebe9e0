"""Worker links: `/v1/workers/link`, a WebSocket on which a Worker registers, reports and hears its slot table.

A placement reaches its Worker in milliseconds: the step publishes the WorkerID to the replica that the Worker last
reported through, which says `wake`, and the Worker reports at once and is answered with its table. Reading the table
here and pushing it would save one hop, but it would take a second way to read a table with its term and revision in
one step. And only a report shows that the Worker is there: its beat stays the Worker's own. A hint that is lost costs
a second, until the next report.

Any replica serves any Worker, and nothing is remembered here: who a Worker is comes from its token.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from aiohttp import WSMsgType, web

from dhsched.access.callers import Caller
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.moves.drain import ask_for_drain
from dhsched.dispatch.recovery.blame import HOW_TO_UNDO, blame_of_name
from dhsched.dispatch.recovery.silences import Silences
from dhsched.dispatch.recovery.terms import Claim, Voice
from dhsched.errors import BadToken, BadValue, DhschedError, Forbidden, StoreError, StoreRefused, StoreUnavailable
from dhsched.links.messages import (
    FRAME_BYTES_MAX,
    HEARTBEAT_S,
    Depart,
    Departed,
    Drain,
    Exit,
    FromWorker,
    Gone,
    Goodbye,
    Message,
    Problem,
    Register,
    Registered,
    Report,
    Reported,
    Resume,
    Wake,
    in_turns,
    read_from_worker,
)
from dhsched.links.outbox import Outbox, abort_if_failed, hang_up
from dhsched.ownership import outcomes as o
from dhsched.store.records.workers import is_yes
from dhsched.tokens import Boot, Tokens
from dhsched.types import clean_reason
from dhsched.web import caller_of, upgrade
from dhsched.web.problems import problem_from

log = structlog.get_logger(__name__)

PATH = "/v1/workers/link"
LOOK_S = 0.1  # Between two looks whether this replica is stopping.
CONTROLLERS_S = 1.0  # Between two readings of where the controllers are.
HELLO_S = 5.0  # For a new link to say who it is; then it is closed.
GOODBYE_S = 1.0  # For the last message to a Worker.
SLOTS_SPARE = 64  # Slots that a report may name beside twice the Worker's capacity; one with more ends the link.
RENEW_S = 6 * 3600.0  # A link that lasts gets a new token this often: it must be able to resume elsewhere.


def gave_up(socket: web.WebSocketResponse, sending: asyncio.Task[None]) -> bool:
    """Whether it was us who closed it, because nothing came: a Worker that is frozen or cut off has all its time."""
    failed = sending.exception() if sending.done() and not sending.cancelled() else None
    return isinstance(socket.exception(), TimeoutError) or isinstance(failed, TimeoutError)


OnPrepared = Callable[[str, Sequence[str]], None]


class WorkerLinks:
    """The Workers that are linked to this replica. It starts with the first of them.

    `on_prepared` is given a Worker and the tags of the reserved slots that it has prepared, with each of its reports.
    """

    def __init__(self, context: DispatchContext, silences: Silences, on_prepared: OnPrepared) -> None:
        self.context = context
        self.silences = silences
        self.on_prepared = on_prepared
        self.tokens: Tokens | None = None
        self.controllers: list[str] = []
        self._links: dict[str, WorkerLink] = {}
        self._starting = asyncio.Lock()
        self._minder: asyncio.Task[None] | None = None

    def routes(self) -> list[web.RouteDef]:
        return [web.get(PATH, self.serve, name="worker_link")]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        socket = await upgrade(request, heartbeat_s=HEARTBEAT_S, frame_bytes_max=FRAME_BYTES_MAX)
        if socket is None:
            return web.Response()
        outbox = Outbox(socket.send_bytes)
        sending = asyncio.create_task(outbox.run())
        abort_if_failed(sending, request.transport)
        link = WorkerLink(self, outbox, caller_of(request), request.remote or "")
        try:
            if await self._started(outbox):
                await self._listen(socket, link)
            outbox.finish()
            with contextlib.suppress(TimeoutError, ConnectionError):
                await asyncio.wait_for(sending, GOODBYE_S)
        finally:
            closed_by_us = link.over or self.context.service.stopping or gave_up(socket, sending)
            if link.boot is not None and not closed_by_us:
                # The Worker's side did, without a word: liveness gives it less time to report elsewhere.
                self.silences.hung_up[link.boot.worker] = link.beat
            self.forget(link)
            await hang_up(socket, sending, request.transport)
        return socket

    async def _listen(self, socket: web.WebSocketResponse, link: WorkerLink) -> None:
        while not link.over:
            hearing = asyncio.ensure_future(socket.receive())
            wait_s = None if link.boot is not None else HELLO_S
            done, _ = await asyncio.wait((hearing, link.left), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)
                if not done:
                    link.outbox.put(said_of(BadToken(f"no register or resume within {HELLO_S:g} s")))
                return
            message = hearing.result()
            if message.type is not WSMsgType.BINARY:
                return
            await link.hear_frame(message.data)

    # -- for the links

    def remember(self, worker: str, link: WorkerLink) -> None:
        """A Worker has one link here, its latest."""
        before = self._links.get(worker)
        self._links[worker] = link
        if before is not None and before is not link:
            before.leave()

    def voices(self) -> list[Voice]:
        """Where the Workers speak from that are linked to this replica."""
        return [link.voice for link in self._links.values()]

    def forget(self, link: WorkerLink) -> None:
        if link.boot is not None and self._links.get(link.boot.worker) is link:
            del self._links[link.boot.worker]

    # -- what the store says

    async def _started(self, outbox: Outbox) -> bool:
        try:
            async with self._starting:
                if self.tokens is None:
                    store = self.context.store
                    await store.link.subscribe(store.keys.of("dispatch", self.context.replica), self._on_hint)
                    await self._read_controllers()
                    self._minder = asyncio.create_task(self._mind(), name="worker links")
                    self.tokens = Tokens(self.context.ring)
        except StoreError as error:
            outbox.put(said_of(error))
            return False
        return True

    def _on_hint(self, _channel: bytes, worker: bytes) -> None:
        link = self._links.get(worker.decode())
        if link is not None:
            link.wake()

    async def _mind(self) -> None:
        """Know where the controllers are; when this replica stops, send its Workers to another one."""
        loop = asyncio.get_running_loop()
        read_at = loop.time()
        while not self.context.service.stopping:
            await asyncio.sleep(LOOK_S)
            if loop.time() - read_at >= CONTROLLERS_S:
                read_at = loop.time()
                # Without an answer the Workers go on with what they were told.
                with contextlib.suppress(StoreError):
                    await self._read_controllers()
        for link in [*self._links.values()]:
            link.outbox.put(Goodbye())
            link.leave()

    async def _read_controllers(self) -> None:
        store = self.context.store
        self.controllers = [each.url for each in await store.records.controllers.all()]


class WorkerLink:
    """One connection. Before it has said who it is, by registering or by its token, it can do nothing."""

    def __init__(self, links: WorkerLinks, outbox: Outbox, caller: Caller, address: str) -> None:
        self._caller = caller
        self.voice = Voice(address, caller.key)
        self.outbox = outbox
        self.boot: Boot | None = None
        self.over = False
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._links = links
        self._context = links.context
        self.beat = 0  # As of the last report on this link.
        self._told: Sequence[str] | None = None  # The controllers that the Worker knows of.
        self._woken = False
        self._reported_at = float("-inf")
        self._renew_at = asyncio.get_running_loop().time() + RENEW_S

    def wake(self) -> None:
        """Once is enough until it has reported."""
        if not self._woken:
            self._woken = True
            self.outbox.put(Wake())

    def leave(self) -> None:
        self.over = True
        if not self.left.done():
            self.left.set_result(None)

    async def hear_frame(self, frame: bytes) -> None:
        """Everything in one frame. What cannot be read or is not allowed ends the link, with a problem."""
        try:
            for n, turn in enumerate(in_turns(read_from_worker(frame))):
                if n:
                    await asyncio.sleep(0)
                for said in turn:
                    await self._hear(said)
        except StoreError as error:
            if isinstance(error, StoreRefused) or (isinstance(error, StoreUnavailable) and not error.unknown):
                self._links.silences.refused_at = self._context.loop_time()
            self.outbox.put(said_of(error))
        except DhschedError as error:
            log.warning("ending a Worker's link", worker=self.boot.worker if self.boot else "", reason=str(error))
            self.outbox.put(said_of(error))
            self.leave()

    async def _hear(self, said: FromWorker) -> None:
        match said:
            case Register():
                await self._register(said)
            case Resume():
                tokens = self._links.tokens
                assert tokens is not None
                proven = await tokens.read(said.token)
                if self._caller.worker not in ("", proven.boot.worker):
                    raise BadToken("the link was opened with another boot's token")
                if proven.renew:
                    self._renew_at = 0
                self._is(proven.boot)
            case _ if self.boot is None:
                raise BadToken("a link begins with register or resume")
            case Report():
                await self._report(self.boot, said)
            case Depart():
                await self._depart(self.boot, said)
            case Drain(deadline_s):
                await ask_for_drain(self._context, self.boot.worker, deadline_s=deadline_s or None)
                self.wake()
            case Exit():
                outcome = await self._context.store.set_worker(worker=self.boot.worker, verb="exit")
                if isinstance(outcome, o.WorkerSet):
                    self._context.events.say("worker_gone", worker=self.boot.worker, reason="it said that it exits")
                self._end(Gone())

    async def _depart(self, boot: Boot, said: Depart) -> None:
        reason = clean_reason(said.reason)
        outcome = await self._context.store.depart(
            worker=boot.worker, live=said.live, number=said.number, reason=reason
        )
        if reason and isinstance(outcome, o.Departed) and outcome.was != "departing":
            self._context.events.say(
                "live_crashed", live=said.live, worker=boot.worker, epoch=said.number, was=outcome.was, reason=reason
            )
        self.outbox.put(Departed(said.live, said.number))

    async def _register(self, said: Register) -> None:
        self._check_bounds(said)
        replaced = await self._is_there(said.replaces)
        outcome = await self._context.store.register_worker(
            name=said.name,
            boot=said.boot,
            pool=said.pool,
            capacity=said.capacity,
            labels=said.labels,
            replaces=said.replaces,
        )
        if outcome.worker.rpartition("#")[0] != said.name:
            # The boot's secret belongs to a Worker of another name: whoever says it here is not that Worker.
            raise Forbidden(f"boot {said.boot} is not of a Worker named {said.name}; make up another one")
        boot = Boot(outcome.worker, said.boot, said.name, said.pool, said.capacity, self._caller.key)
        self._is(boot)
        self._told = controllers = self._links.controllers
        self.outbox.put(Registered(boot.worker, self._issue(boot), outcome.mode, [*controllers]))
        if outcome.again:
            return
        if replaced:
            self._context.events.say("worker_gone", worker=said.replaces, reason=f"{boot.worker} replaced it")
        self._context.events.say(
            "worker_registered",
            worker=boot.worker,
            name=said.name,
            pool=said.pool,
            capacity=said.capacity,
            replaces=said.replaces,
        )
        if outcome.mode == "cordoned":
            limits = self._context.store.limits
            self._context.events.say(
                "crash_loop",
                worker=boot.worker,
                name=said.name,
                boots_max=limits.boots_max,
                window_s=limits.boots_window_ms / 1000,
                undo=f"{HOW_TO_UNDO} {boot.worker}",
            )
        await blame_of_name(self._context, boot.worker)

    async def _is_there(self, worker: str) -> bool:
        if not worker:
            return False
        return await self._context.records.workers.exists(worker)

    def _check_bounds(self, said: Register) -> None:
        """Only what the key may register, where there are keys; a boot token registers nothing."""
        caller = self._caller
        if self.boot is not None and self.boot.boot != said.boot:
            raise Forbidden(f"this link is of boot {self.boot.worker}; another one registers on a link of its own")
        if caller.worker:
            raise Forbidden(f"this link was opened by boot {caller.worker}, which does not register others")
        refused = caller.bounds.refusal(name=said.name, pool=said.pool, capacity=said.capacity, replaces=said.replaces)
        if refused:
            raise Forbidden(f"{refused}; use another key, or another name, Pool or capacity")

    def _is(self, boot: Boot) -> None:
        self.boot = boot
        self._links.remember(boot.worker, self)

    def _issue(self, boot: Boot) -> str:
        tokens = self._links.tokens
        assert tokens is not None
        return tokens.issue(boot)

    async def _report(self, boot: Boot, said: Report) -> None:
        self._woken = False
        check_slots(boot, said)
        store = self._context.store
        was_lost = self._was_lost(boot)
        outcome = await store.report(
            worker=boot.worker,
            boot=boot.boot,
            term=said.term,
            rev=said.rev,
            link=self._context.replica,
            busy=said.busy,
        )
        match outcome:
            case o.Reported():
                self.beat = outcome.beat
                if was_lost is not None and is_yes(await was_lost):
                    self._context.events.say("worker_revived", worker=boot.worker, beat=outcome.beat)
                self.outbox.put(self._reported(boot, outcome), 64 * len(outcome.table or ()))
                if said.prepared:
                    self._links.on_prepared(boot.worker, said.prepared)
            case o.Gone():
                self._end(Gone())
            case o.RolledBack():
                await self._rolled_back(boot, said, outcome)

    def _was_lost(self, boot: Boot) -> asyncio.Future[Any] | None:
        """Whether this report revives the Worker: read on the same connection, right before it.

        Only where it can be: on a new link, or after a silence. A Worker that reports all the time is never lost.
        """
        now = asyncio.get_running_loop().time()
        silent_s, self._reported_at = now - self._reported_at, now
        if silent_s < self._context.settings.worker_ttl_s / 2:
            return None
        return self._context.store.records.workers.lost(boot.worker)

    async def _rolled_back(self, boot: Boot, said: Report, found: o.RolledBack) -> None:
        """The Worker holds a table that the store never wrote, or says so: what follows is for `Terms` to decide."""
        context = self._context
        claim = Claim(boot.worker, self.voice, said.term, said.rev, found.term, context.loop_time())
        await context.terms.claimed(claim, self._links.voices())
        self.outbox.put(Problem("ROLLED_BACK", "the store may have lost history; report again"))

    def _reported(self, boot: Boot, outcome: o.Reported) -> Reported:
        controllers = self._links.controllers
        changed, self._told = controllers != self._told, controllers
        now = asyncio.get_running_loop().time()
        renew = now >= self._renew_at
        if renew:
            self._renew_at = now + RENEW_S
        return Reported(
            beat=outcome.beat,
            term=outcome.term,
            rev=outcome.rev,
            mode=outcome.mode,
            table=None if outcome.table is None else dict(outcome.table),
            controllers=[*controllers] if changed else None,
            token=self._issue(boot) if renew else "",
        )

    def _end(self, last: Message) -> None:
        self.outbox.put(last)
        self.leave()


def check_slots(boot: Boot, said: Report) -> None:
    """A Worker names slots that it has: in its table, and those that a table before had and whose runtime stops."""
    slots_max = 2 * boot.capacity + SLOTS_SPARE
    for what, tags in (("busy", said.busy), ("prepared", said.prepared)):
        if len(tags) > slots_max:
            raise BadValue(
                f"a report of {boot.worker} names {len(tags)} {what} slots, at most {slots_max} are taken of a Worker "
                f"with capacity {boot.capacity}"
            )


def said_of(error: Exception) -> Problem:
    if isinstance(error, BadToken):
        return Problem("UNAUTHORIZED", str(error))
    problem = problem_from(error)
    return Problem(problem.code if problem else "INTERNAL", str(error))

"""Worker links: `/v1/workers/link`, a WebSocket on which a Worker registers, reports and receives its slot table.

A placement reaches its Worker in milliseconds: the step publishes the WorkerID (a hint) to the replica that the Worker
last reported through, the replica sends `wake`, the Worker reports at once, and the answer carries its table. Reading
the table here and pushing it would save one hop, but would need a second way to read a table with its term and revision
in one step. Besides, only a report shows that the Worker is alive, so only the Worker itself may move its beat. A lost
hint delays the placement by up to a second, until the next report.

Any replica serves any Worker, and no Worker's identity is stored here: each link gets it from the Worker's token. When
the key that a Worker registered with is revoked, or its name is banned, the replica that has its link makes the Worker
gone, and its lives are placed elsewhere. A Worker that has no link then cannot resume, and is lost by its silence.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, cast

import structlog
from aiohttp import WSMsgType, web

from dhsched.access.callers import Caller
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.departs import record_departs
from dhsched.dispatch.devices import note_devices
from dhsched.dispatch.moves.drain import ask_for_drain
from dhsched.dispatch.recovery.blame import HOW_TO_UNDO, blame_of_name
from dhsched.dispatch.recovery.silences import Silences
from dhsched.dispatch.worker_rules import bounded, force_out, slots_max, too_many_slots
from dhsched.errors import BadToken, DhschedError, Forbidden, StoreError, StoreRefused, StoreUnavailable
from dhsched.links.messages import (
    FRAME_BYTES_MAX,
    HEARTBEAT_S,
    Depart,
    DeviceList,
    Drain,
    Exit,
    FromWorker,
    Gone,
    Goodbye,
    GoTo,
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
from dhsched.tasks import is_set_within
from dhsched.tokens import Boot, Tokens, refuse_other_cell
from dhsched.types import name_of
from dhsched.web import caller_of, upgrade
from dhsched.web.problems import problem_from

log = structlog.get_logger(__name__)

PATH = "/v1/workers/link"
CONTROLLERS_S = 1.0  # Time between two readings of the controllers' addresses.
HELLO_S = 5.0  # A new link that does not register or resume within this time is closed.
GOODBYE_S = 1.0  # A link that does not take its last messages within this time is closed without them.
RENEW_S = 6 * 3600.0  # A link gets a new token this often, so that its Worker can always resume at another replica.


def gave_up(socket: web.WebSocketResponse, sending: asyncio.Task[None]) -> bool:
    """Return whether this replica closed the link after a timeout: a frozen or cut-off Worker keeps its full TTL."""
    failed = sending.exception() if sending.done() and not sending.cancelled() else None
    return isinstance(socket.exception(), TimeoutError) or isinstance(failed, TimeoutError)


OnPrepared = Callable[[str, Sequence[str]], None]


class WorkerLinks:
    """The Workers that are linked to this replica. The first link starts the subscription and the upkeep task.

    Each report of a Worker with prepared slots calls `on_prepared` with the Worker and the tags of these slots.
    """

    def __init__(self, context: DispatchContext, silences: Silences, on_prepared: OnPrepared) -> None:
        self.context = context
        self.silences = silences
        self.on_prepared = on_prepared
        self.tokens: Tokens | None = None
        self.controllers: list[str] = []
        self._links: dict[str, WorkerLink] = {}
        self._starting = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

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
                await link.listen_until_over(socket)
            outbox.finish()
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(GOODBYE_S):
                    await sending
        finally:
            closed_by_us = link.over or self.context.service.stopping or gave_up(socket, sending)
            if link.boot is not None and not closed_by_us:
                # The Worker closed the link without Exit: liveness gives it less time to report to another replica.
                self.silences.hang_up(link.boot.worker, link.beat)
            self.forget(link)
            await hang_up(socket, sending, request.transport)
        return socket

    def send_to(self, worker: str, cell: str) -> None:
        """Tell a drained Worker to register in this cell, if it is linked here."""
        if link := self._links.get(worker):
            link.outbox.put(GoTo(cell))

    # -- for the links

    def remember(self, worker: str, link: WorkerLink) -> None:
        """Make this link the Worker's only one at this replica: an earlier link is closed."""
        before = self._links.get(worker)
        self._links[worker] = link
        if before is not None and before is not link:
            before.leave()

    def forget(self, link: WorkerLink) -> None:
        if link.boot is not None and self._links.get(link.boot.worker) is link:
            del self._links[link.boot.worker]

    def lags(self) -> dict[str, int]:
        """Return how late the event loops of the linked Workers were within a minute, in ms."""
        return {worker: link.lag_ms for worker, link in self._links.items()}

    # -- from the key ring

    def _end_refused(self) -> None:
        """End the Workers whose key has been revoked or whose name is banned."""
        for link in [*self._links.values()]:
            if link.boot is not None and not link.over and (reason := self.refusal_of(link.boot)):
                task = asyncio.create_task(link.force_out(link.boot, reason))
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

    def refusal_of(self, boot: Boot) -> str:
        return self.context.ring.refusal_of(key=boot.key, name=boot.name)

    # -- from the store

    async def _started(self, outbox: Outbox) -> bool:
        try:
            async with self._starting:
                if self.tokens is None:
                    store = self.context.store
                    await store.link.subscribe(store.keys.of("dispatch", self.context.replica), self._on_hint)
                    await self._read_controllers()
                    self._following = asyncio.create_task(self._follow_controllers(), name="worker links")
                    self.tokens = Tokens(self.context.ring)
                    self.context.ring.changed.append(self._end_refused)
        except StoreError as error:
            outbox.put(said_of(error))
            return False
        return True

    def _on_hint(self, _channel: bytes, worker: bytes) -> None:
        link = self._links.get(worker.decode())
        if link is not None:
            link.wake()

    async def _follow_controllers(self) -> None:
        """Keep the list of controllers fresh; when this replica stops, send its Workers to another replica."""
        stop = self.context.service.stop
        while not await is_set_within(CONTROLLERS_S, stop):
            # Without an answer the Workers keep the list that they have.
            with contextlib.suppress(StoreError):
                await self._read_controllers()
        for link in [*self._links.values()]:
            link.outbox.put(Goodbye())
            link.leave()

    async def _read_controllers(self) -> None:
        store = self.context.store
        self.controllers = [each.url for each in await store.records.controllers.all()]


class WorkerLink:
    """One connection of a Worker. Until the Worker has registered or shown its token, other messages are refused."""

    def __init__(self, links: WorkerLinks, outbox: Outbox, caller: Caller, address: str) -> None:
        self._caller = caller
        self.outbox = outbox
        self.boot: Boot | None = None
        self.over = False
        self._listening: asyncio.Task[None] | None = None
        self._receiving = False  # Whether `_listening` waits for the next frame.
        self._slots_max = 0  # Of the boot.
        self._links = links
        self._context = links.context
        self.beat = self.lag_ms = 0  # As of the last report on this link.
        self._told: Sequence[str] | None = None  # The controllers that were last sent to the Worker.
        self._woken = False
        self._reported_at = float("-inf")
        self._renew_at = asyncio.get_running_loop().time() + RENEW_S

    def wake(self) -> None:
        """Send `wake`, at most once between two reports of the Worker."""
        if not self._woken:
            self._woken = True
            self.outbox.put(Wake())

    async def listen_until_over(self, socket: web.WebSocketResponse) -> None:
        """Handle the Worker's frames until the link is over."""
        listening = self._listening = asyncio.create_task(self._listen(socket))
        try:
            await asyncio.wait((listening,))
            if not listening.cancelled():
                listening.result()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, socket: web.WebSocketResponse) -> None:
        while not self.over:
            self._receiving = True
            try:
                message = await socket.receive(None if self.boot is not None else HELLO_S)
            except TimeoutError:
                self.outbox.put(said_of(BadToken(f"no register or resume within {HELLO_S:g} s")))
                return
            finally:
                self._receiving = False
            if message.type is not WSMsgType.BINARY:
                return
            await self.hear_frame(message.data)

    def leave(self) -> None:
        """End the link: at once if it waits for a frame, else after the frame that is being handled."""
        self.over = True
        if self._receiving and self._listening is not None:
            self._listening.cancel()

    async def force_out(self, boot: Boot, reason: str) -> None:
        """Close the link and make its Worker gone: its lives are placed elsewhere at once."""
        log.warning("ending a Worker", worker=boot.worker, reason=reason)
        self._end(Problem("UNAUTHORIZED", reason))
        try:
            await force_out(self._context, boot.worker, reason)
        except StoreError as error:
            # The Worker can report no more, so it is lost in a while, and its lives are placed elsewhere then.
            log.warning("a Worker cannot be made gone now", worker=boot.worker, reason=str(error))

    async def hear_frame(self, frame: bytes) -> None:
        """Handle all messages of one frame. An unreadable or forbidden message ends the link with a problem."""
        try:
            for n, turn in enumerate(in_turns(read_from_worker(frame))):
                if n:
                    await asyncio.sleep(0)
                for kind, some in groupby(turn, type):
                    if kind is Depart and self.boot is not None and not self.over:
                        departs = cast(list[Depart], [*some])
                        await record_departs(self._context, self.boot.worker, departs, self.outbox.put)
                        continue
                    for said in some:
                        if self.over:
                            return
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
                refuse_other_cell(proven.boot, self._context.cell)
                if self._caller.worker not in ("", proven.boot.worker):
                    raise BadToken("the link was opened with another boot's token")
                if self.boot is not None and self.boot.worker != proven.boot.worker:
                    raise BadToken(f"this link belongs to boot {self.boot.worker}; resume another boot on its own link")
                if proven.renew:
                    self._renew_at = 0
                self._is(proven.boot)
            case _ if self.boot is None:
                raise BadToken("a link begins with register or resume")
            case Report():
                await self._report(self.boot, said)
            case DeviceList():
                await note_devices(self._context, self.boot.worker, said)
            case Drain(deadline_s):
                await ask_for_drain(self._context, self.boot.worker, deadline_s=deadline_s or None)
                self.wake()
            case Exit():
                outcome = await self._context.store.set_worker(worker=self.boot.worker, verb="exit")
                if isinstance(outcome, o.WorkerSet):
                    self._context.events.say("worker_gone", worker=self.boot.worker, reason="the Worker exits")
                self._end(Gone())

    async def _register(self, said: Register) -> None:
        said = bounded(said, caller=self._caller, linked=self.boot, ring=self._context.ring)
        replaced = await self._is_there(said.replaces)
        outcome = await self._context.store.register_worker(
            name=said.name,
            boot=said.boot,
            pool=said.pool,
            capacity=said.capacity,
            labels=said.labels,
            replaces=said.replaces,
        )
        if name_of(outcome.worker) != said.name:
            # The boot id is a secret of a Worker with another name: the sender is not that Worker.
            raise Forbidden(f"boot {said.boot} is not of a Worker named {said.name}; register with a new boot id")
        given = (said.boot, said.name, said.pool, said.capacity, self._caller.key, self._context.cell)
        boot = Boot(outcome.worker, *given)
        self._is(boot)
        if reason := self._links.refusal_of(boot):  # The key was revoked, or the name banned, during the step.
            await self.force_out(boot, reason)
            return
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
        return bool(worker) and await self._context.records.workers.exists(worker)

    def _is(self, boot: Boot) -> None:
        self.boot, self._slots_max = boot, slots_max(boot)
        self._links.remember(boot.worker, self)

    def _issue(self, boot: Boot) -> str:
        tokens = self._links.tokens
        assert tokens is not None
        return tokens.issue(boot)

    async def _report(self, boot: Boot, said: Report) -> None:
        self._woken, self.lag_ms = False, said.lag_ms
        if max(len(said.busy), len(said.prepared)) > self._slots_max:
            raise too_many_slots(boot, said)
        store = self._context.store
        was_lost = self._was_lost(boot)
        outcome = await store.report(
            worker=boot.worker,
            boot=boot.boot,
            home=said.home,
            term=said.term,
            rev=said.rev,
            link=self._context.replica,
            busy=said.busy,
            partly=said.partly,
            **self._context.fleet.pool_limits.get(boot.pool, {}),
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

    def _was_lost(self, boot: Boot) -> asyncio.Future[Any] | None:
        """Read whether the Worker is lost, on the same connection and right before its report, which revives it.

        Return None where no read is needed: a Worker that has reported within half its TTL on this link is not lost.
        """
        now = asyncio.get_running_loop().time()
        silent_s, self._reported_at = now - self._reported_at, now
        if silent_s < self._context.settings.worker_ttl_s / 2:
            return None
        reading = self._context.store.records.workers.lost(boot.worker)
        reading.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # If the report fails, it is unread.
        return reading

    def _reported(self, boot: Boot, outcome: o.Reported) -> Reported:
        controllers = self._links.controllers
        changed, self._told = controllers != self._told, controllers
        now = asyncio.get_running_loop().time()
        renew = now >= self._renew_at
        if renew:
            self._renew_at = now + RENEW_S
        return Reported(
            beat=outcome.beat,
            home=outcome.home,
            term=outcome.term,
            rev=outcome.rev,
            mode=outcome.mode,
            table=None if outcome.table is None else dict(outcome.table),
            base=outcome.base,
            controllers=[*controllers] if changed else None,
            token=self._issue(boot) if renew else "",
        )

    def _end(self, last: Message) -> None:
        self.outbox.put(last)
        self.leave()


def said_of(error: Exception) -> Problem:
    if isinstance(error, BadToken):
        return Problem("UNAUTHORIZED", str(error))
    problem = problem_from(error)
    return Problem(problem.code if problem else "INTERNAL", str(error))

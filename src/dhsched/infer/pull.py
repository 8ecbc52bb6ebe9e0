"""PullText: `/v1/pull`, one WebSocket per Worker and controller, with many lives on it (paper, 4.3 and 7.4).

The token names the Worker; `hello` must be of the same boot as the token in the request's header. `open` returns what a
runtime is built from, for a slot that the Worker holds, and claims nothing; `pull` claims the generation or resumes it.
From then on items are sent as they are released (pulls.py). When the key that a Worker registered with is revoked, or
its name is banned, its pulls and its connection end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

import structlog
from aiohttp import WSMessage, WSMsgType, web

from dhsched.access.callers import OPEN, Caller
from dhsched.errors import BadToken, DhschedError, StoreError
from dhsched.infer.context import InferContext
from dhsched.infer.granted_pull import GrantedPull
from dhsched.infer.logs import worker_bucket
from dhsched.infer.pulls import ServedPull
from dhsched.links.messages import (
    FRAME_BYTES_MAX,
    HEARTBEAT_S,
    Ack,
    Emit,
    Ended,
    Goodbye,
    Hello,
    JournalChange,
    Leave,
    Log,
    Open,
    Opened,
    Problem,
    Pull,
    Pulling,
    PullSays,
    Stale,
    Welcome,
    in_turns,
    read_pull_says,
)
from dhsched.links.outbox import Outbox, abort_if_failed, hang_up
from dhsched.ownership import outcomes as o
from dhsched.ownership.journal import Change, check_change
from dhsched.store.steps import redis as rows
from dhsched.tokens import Boot, Publishing, Tokens, refuse_other_cell
from dhsched.types import WITH_RUNTIME, Generation, check_ack, check_emit, check_id, check_live, slot_tag
from dhsched.web import caller_of, upgrade
from dhsched.web.problems import problem_of

log = structlog.get_logger(__name__)

PATH = "/v1/pull"
ASKED_MAX = 16  # Opens and pulls of one Worker under way; past this its connection is not read.
EMITS_MAX = 1_024  # Messages of one Worker on their way to the store; past this its connection is not read.
HELLO_S = 5.0  # A connection without `hello` within this time is closed.
GOODBYE_S = 1.0  # A connection that does not take its last messages within this time is closed without them.
OPENABLE = frozenset({"reserved", *WITH_RUNTIME})


class Socket(Protocol):
    """The part of a WebSocket that is used here."""

    async def send_bytes(self, data: bytes, /) -> None: ...

    def __aiter__(self) -> AsyncIterator[WSMessage]: ...

    async def close(self) -> object: ...


class PullText:
    """The Workers that are connected to this controller."""

    def __init__(self, context: InferContext, tokens: Tokens) -> None:
        self.context = context
        self.store = context.store
        self.tokens = tokens
        self.pulls = context.pulls
        self.controller = context.service.instance
        self.peers: set[PullPeer] = set()

    def routes(self) -> list[web.RouteDef]:
        return [web.get(PATH, self.serve, name="pull_link")]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        socket = await upgrade(request, heartbeat_s=HEARTBEAT_S, frame_bytes_max=FRAME_BYTES_MAX)
        if socket is None:
            return web.Response()
        with self.context.connections.open_socket(socket, request.transport):
            await self.serve_socket(socket, request.transport, caller_of(request))
        return socket

    async def serve_socket(
        self, socket: Socket, transport: asyncio.BaseTransport | None = None, caller: Caller = OPEN
    ) -> None:
        """Serve one Worker's connection until it ends, then drop its pulls."""
        peer = PullPeer(self, socket, caller)
        sending = asyncio.create_task(peer.outbox.run())
        abort_if_failed(sending, transport)
        self.peers.add(peer)
        try:
            await peer.listen_until_ended()
            peer.outbox.finish()
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(GOODBYE_S):
                    await sending
        finally:
            self.peers.discard(peer)
            self.pulls.drop_all(peer)
            peer.cancel()
            await hang_up(socket, sending, transport)

    def end_refused(self) -> None:
        """Drop the pulls and end the connections of Workers whose key has been revoked or whose name is banned."""
        for peer in [*self.peers]:
            if peer.boot is not None and (reason := self.tokens.refusal_of(peer.boot)):
                log.warning("ending a Worker's pulls", worker=peer.worker, reason=reason)
                peer.outbox.put(Problem("UNAUTHORIZED", reason))
                self.pulls.drop_all(peer)
                peer.end()

    def unavailable(self, error: DhschedError) -> None:
        """Send all Workers the problem that this controller cannot reach the store, so that they may leave it."""
        for peer in self.peers:
            peer.outbox.put(as_message(error))

    def goodbye(self) -> None:
        """Send all Workers to another controller, because this one is stopping."""
        for peer in self.peers:
            peer.outbox.put(Goodbye())


class PullPeer:
    """One Worker's connection."""

    def __init__(self, pull_text: PullText, socket: Socket, caller: Caller = OPEN) -> None:
        self.worker = ""
        self.boot: Boot | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._caller = caller
        self.waiting: set[ServedPull] = set()
        self.takes_traces = False
        self.outbox = Outbox(socket.send_bytes, lambda: pull_text.pulls.drained(self))
        self._pull_text = pull_text
        self._socket = socket
        self._asked: set[asyncio.Task[None]] = set()
        self._may_ask = asyncio.Semaphore(ASKED_MAX)
        self._may_emit = asyncio.Semaphore(EMITS_MAX)
        self.emit_answered = self._may_emit.release
        self._log_bucket = worker_bucket()

    def end(self) -> None:
        """End the connection, whatever the Worker sends."""
        if not self.ended.done():
            self.ended.set_result(None)

    async def listen_until_ended(self) -> None:
        listening = asyncio.create_task(self.listen())
        try:
            await asyncio.wait((listening, self.ended), return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def listen(self) -> None:
        """Handle the Worker's messages until it leaves, or until a message is refused, which ends the connection."""
        try:
            async with asyncio.timeout(HELLO_S) as until_hello:
                async for message in self._socket:
                    if message.type is not WSMsgType.BINARY:
                        return
                    for n, turn in enumerate(in_turns(read_pull_says(message.data))):
                        if n:
                            await asyncio.sleep(0)
                        for said in turn:
                            await self._hear(said)
                        if self.worker and until_hello.when() is not None:
                            until_hello.reschedule(None)
        except TimeoutError:
            self.outbox.put(Problem("UNAUTHORIZED", f"no hello within {HELLO_S:g} s"))
        except BadToken as error:
            self.outbox.put(Problem("UNAUTHORIZED", str(error)))
        except StoreError as error:
            self.outbox.put(as_message(error))
        except DhschedError as error:
            log.warning("ending a Worker's pulls", worker=self.worker, reason=str(error))
            self.outbox.put(Problem("BAD_REQUEST", str(error)))

    def cancel(self) -> None:
        for task in self._asked:
            task.cancel()

    async def _hear(self, said: PullSays) -> None:
        pulls = self._pull_text.pulls
        match said:
            case Ack():
                check_ack(said.mark, said.saved, self._pull_text.store.limits.state_bytes_max)
                journal = None if said.journal is None else self._change(said.journal)
                if (pull := pulls.find(self, said.live, said.epoch)) is not None:
                    pulls.ack_soon(pull, said.n, said.mark, said.saved, journal)
                # Else the ack is of a superseded pull: the Worker repeats it on its present pull.
            case Hello():
                boot = (await self._pull_text.tokens.read(said.token)).boot
                refuse_other_cell(boot, self._pull_text.context.cell)
                self._is(boot)
                self.takes_traces = said.takes_traces
                self.outbox.put(Welcome(self._pull_text.controller))
            case _ if not self.worker:
                raise BadToken("a connection begins with hello")
            case Pull() | Open():
                # Wait here, and so read no further messages, while ASKED_MAX requests of the Worker are under way.
                await self._may_ask.acquire()
                task = asyncio.create_task(self._answer(said))
                self._asked.add(task)
                task.add_done_callback(self._asked.discard)
            case Emit():
                check_emit(said.name, said.data)
                if pulls.find(self, said.live, said.epoch) is not None:
                    await self._may_emit.acquire()
                    given = (said.n, said.name, said.data, said.told)
                    row = rows.Emit(said.live, self.worker, said.epoch, *given)
                    if said.item and pulls.traces is not None:
                        pulls.traces.emitting(row, said.item)
                    self._pull_text.context.emits.emit_soon(self, row)
                # Else the message is of a superseded pull: the Worker sends it again on its present pull.
            case Log():
                self._pull_text.context.logs.take(self._log_bucket, self.worker, said)
            case Leave() if (pull := pulls.find(self, said.live, said.epoch)) is not None:
                pulls.drop(pull)

    def _change(self, said: JournalChange) -> Change:
        change = Change(said.drop, said.first, tuple(said.entries))
        check_change(change, self._pull_text.store.limits)
        return change

    def _is(self, boot: Boot) -> None:
        """Take the boot of a `hello`; raise BadToken if the connection is of another boot."""
        caller = self._caller
        of_another = caller.worker and (caller.worker, caller.boot) != (boot.worker, boot.boot)
        if of_another or (self.boot is not None and self.boot.worker != boot.worker):
            self._pull_text.pulls.hellos_refused += 1
            raise BadToken("the hello is of another boot than the connection; connect with the boot's own token")
        self.boot, self.worker = boot, boot.worker

    async def _answer(self, said: Pull | Open) -> None:
        try:
            await (self._pull(said) if isinstance(said, Pull) else self._open(said))
        except DhschedError as error:
            self.outbox.put(as_message(error, said.live, said.epoch))
        finally:
            self._may_ask.release()

    async def _pull(self, said: Pull) -> None:
        if said.device:
            check_id(said.device, "device")
        outcome = await self._pull_text.store.pull(
            live=said.live,
            worker=self.worker,
            epoch=said.epoch,
            after=said.after,
            mark=said.mark,
            controller=self._pull_text.controller,
            journal=said.with_journal,
        )
        match outcome:
            case o.Pulling():
                # Sent before any item is released, on the same connection, so that it arrives first.
                message = Pulling(said.live, said.epoch, outcome.pull_no, outcome.after, outcome.config, outcome.saved)
                assert self.boot is not None
                if room := self._pull_text.context.settings.room:
                    publishing = Publishing(said.live, Generation(self.worker, said.epoch), self.boot.key)
                    message.room_url, message.publish_token = room, self._pull_text.tokens.issue_publish(publishing)
                message.journal_last = outcome.journal_last
                message.journal = None if outcome.journal is None else [*outcome.journal]
                sent = (outcome.config, outcome.saved, *(outcome.journal or ()))
                self.outbox.put(message, sum(map(len, sent)))
                if self in self._pull_text.peers and not self.ended.done():
                    # Release after the runtime's own cursor, not the answer's: the store may yet lose those acks.
                    pull: ServedPull = GrantedPull(
                        self,
                        said.live,
                        self.worker,
                        said.epoch,
                        outcome.pull_no,
                        said.after,
                        said.mark,
                        self._pull_text.store.homes.home,
                    )
                    self._pull_text.pulls.take(pull)
                if said.device:
                    with contextlib.suppress(StoreError):  # Only people read it.
                        await self._pull_text.store.records.lives.note_device(said.live, said.epoch, said.device)
            case o.Ended():
                self.outbox.put(Ended(said.live, said.epoch))
            case o.Stale():
                if outcome.current is not None and said.epoch > outcome.current.epoch:
                    # The store has forgotten this number, or the Worker made it up: nothing follows from it.
                    self._pull_text.pulls.never_issued += 1
                    log.warning("a pull with a number above the current one", live=said.live, worker=self.worker)
                self.outbox.put(Stale(said.live, said.epoch))

    async def _open(self, said: Open) -> None:
        """Send what a runtime of the live is built from. Once the slot exists, no older generation can change it."""
        slot = slot_tag(check_live(said.live), said.epoch)
        found = await self._pull_text.store.records.lives.details(said.live, self.worker, slot)
        if found is None or found.slot not in OPENABLE:
            self.outbox.put(Stale(said.live, said.epoch))
            return
        self.outbox.put(
            Opened(said.live, said.epoch, *found[1:]), len(found.metadata) + len(found.config) + len(found.saved)
        )


def as_message(error: DhschedError, live: str = "", epoch: int = 0) -> Problem:
    return Problem(problem_of(error).code, str(error), live, epoch)

"""The link to the store: one connection that mends itself, shared by everything in this process.

Theory of operation. `call` and `run` pack a command and append it to `_unsent`; the first one in an event-loop tick
schedules `_flush`, which writes all of them at once. The connection (`wire.py`) matches replies in order. So a call
costs one future and no task, no timer and no system call of its own.

- **Deadlines.** One timer per link, armed for the nearest deadline. When it fires it walks what is in flight. A call
  past its deadline fails; if it was sent, its place in the queue stays until its reply has come.
- **Unknown, never failed.** A call that was sent and not answered may have run: `unknown=True`. A call that was never
  sent has not: it waits for the next connection until its own deadline, then `unknown=False`.
- **Sent again** is only what the server says it did not run: NOSCRIPT (it forgot our scripts), MOVED (another node
  owns our slot), HOME (a script found that the data has another home than this connection greeted: it is left, and the
  next one greets anew), and refusals because our slot is being moved (`refused.py`). After NOSCRIPT, calls that nobody
  awaits in between may change their order; after the others they keep it, and go before everything unsent.
- **Settled.** With `replicas=N` in the store's URL, replies are passed on once N replicas have what they tell of, and
  one batch of calls is in flight at a time (`settling.py`).
- **A silent server** is left when the oldest call is overdue by `dead_after_s`: the reply may be lost in a half-open
  connection, and all later ones with it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha1
from typing import Any, Literal, Self

from dhsched.errors import StoreRefused, StoreUnavailable
from dhsched.store.link.address import Address
from dhsched.store.link.cluster import is_moving, moved_to
from dhsched.store.link.connect import Connector, LinkSettings
from dhsched.store.link.failures import no_answer, not_sent, overloaded
from dhsched.store.link.greeting import Entry, Greeting, Server
from dhsched.store.link.hosts import Occurrences
from dhsched.store.link.refused import Refused
from dhsched.store.link.settling import Settle, Settling
from dhsched.store.link.wire import NO_TAIL, Arg, AtOnce, Call, OnMessage, Subscribing, Wire, pack
from dhsched.tasks import cancel

__all__ = ["Arg", "Link", "LinkSettings", "OnMessage"]

log = logging.getLogger(__name__)

BATCH_CALLS = 1024  # A write has at most this many calls; between two writes the link checks whether the wire is full.
TRIES_MAX = 3  # A call that was sent again this often after NOSCRIPT, MOVED or HOME fails.
SWEEP_GAP_S = 0.005  # Between two sweeps, plus the next line: bounds their share of the CPU to a few per cent.
SWEEP_GAP_PER_CALL_S = 1e-6
STALL_S = 0.1  # A timer that is later than this means that this process stood still, not the store.

# A server that answers with one of these is not our primary any more: reconnecting finds its successor.
LEAVE_AFTER = frozenset({"READONLY", "LOADING", "MASTERDOWN", "HOME"})


class Link:
    """The link to one store; see the module. Made by `Link.open`, and not shared between event loops."""

    def __init__(
        self,
        address: Address,
        scripts: Mapping[str, bytes],
        settings: LinkSettings,
        slot_key: str | None,
        entry: Entry | None = None,
        settle: Settle | None = None,
    ) -> None:
        self.address = address
        self.settings = settings
        self.server = Server(name="none", version="0")
        self.calls = 0
        self.bytes_out = 0
        self.reconnects = 0
        self.on_reconnect: list[Callable[[], object]] = []
        """Functions that are called after each reconnect: messages of channels may have been lost before it."""
        self.read_counted: Callable[[Any], Any] = lambda reply: reply[:-1]
        """Reads the reply of a script that ends with a count: the owner of the link may keep the count."""
        self._shas = {name: sha1(source).hexdigest().encode() for name, source in scripts.items()}
        self._greeting = Greeting(
            client_name=settings.client_name, scripts=scripts, shas=self._shas, slot_key=slot_key, entry=entry
        )
        self._tailed = entry is not None
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._send: Callable[[list[Call]], int]  # The wire's, or through `settling`; set with each wire.
        self._sent: deque[Call] = deque()  # The wire's own queue, or an empty one while there is no wire.
        self._unsent: deque[Call] = deque()
        self._unsent_bytes = 0  # Bytes of the unsent and the refused calls.
        self._refused = Refused(self._may_try, self._send_alone, self._go_on)
        self.settling: Settling | None = None
        """Settles replies before they are passed on; None where the URL asks for no replicas."""
        if settle is not None and (address.replicas or address.fsync):
            self.settling = Settling(address, settings, settle.packed(self._shas, slot_key), self._after_refusal)
        self._flush_due = False
        self._scripts_on_their_way = False
        self._channels: dict[bytes, OnMessage] = {}
        self._late_replies = 0
        self._sweep_at = float("inf")
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._connector = Connector(address, settings, self._greeting, self._channels)
        self._closed = False
        self._keeper: asyncio.Task[None] | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        address: Address,
        scripts: Mapping[str, bytes],
        settings: LinkSettings | None = None,
        *,
        slot_key: str | None = None,
        entry: Entry | None = None,
        settle: Settle | None = None,
    ) -> Self:
        """Connect, or raise within `connect_s` the one StoreError that says why not.

        `scripts` are loaded on every connection before anything else is sent, and then `entry` enters. In a cluster,
        `slot_key` (any key of the cell) decides which node is used. `settle` names the scripts that settle replies.
        """
        link = cls(address, scripts, settings or LinkSettings(), slot_key, entry, settle)
        link._adopt(*await link._connector.first())
        link._keeper = asyncio.create_task(link._keep_connected(), name=f"link {address.redacted()}")
        return link

    async def close(self) -> None:
        """Fail the calls in flight and disconnect. Replies are not waited for: await the calls first."""
        if self._closed:
            return
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        unsent, self._unsent = self._unsent, deque()
        for call in [*self._refused.take_all(), *unsent]:
            call.fail(self._not_sent(call))
        await cancel(self._keeper)
        await self._connector.close()
        if self._wire is not None:
            self._wire.drop("we closed it")
            await self._wire.lost
        if self.settling is not None:
            self.settling.lost("we closed it")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def state(self) -> Literal["connected", "reconnecting", "closed"]:
        if self._closed:
            return "closed"
        return "reconnecting" if self._wire is None or self._wire.gone else "connected"

    @property
    def in_flight(self) -> int:
        answered = 0 if self.settling is None else len(self.settling.answered)
        return len(self._sent) + len(self._unsent) + len(self._refused.calls) + answered

    @property
    def two_primaries(self) -> Occurrences:
        """Return how often two hosts of the URL were found to be primaries; services ask it for each occurrence."""
        return self._connector.two_primaries

    @property
    def late_replies(self) -> int:
        """Return how many replies came after their call's deadline, or after its caller had gone."""
        return self._late_replies + (self._wire.late_replies if self._wire is not None else 0)

    # -- calls --------------------------------------------------------------------------------------------------

    def call(self, *args: Arg, deadline_s: float | None = None) -> asyncio.Future[Any]:
        """Send one command; the future gets its reply, or a StoreError. Errors nested in an array stay values."""
        return self._issue(pack(args), args[0], deadline_s, False)

    def run(
        self,
        script: str,
        keys: Sequence[Arg],
        args: Sequence[Arg] = (),
        *,
        deadline_s: float | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> asyncio.Future[Any]:
        """Run one of the link's scripts by name. The future gets `read(reply)`, or the reply without `read`."""
        if self._tailed:
            packed = pack((b"EVALSHA", self._shas[script], len(keys), *keys, *args, b""))[:NO_TAIL]
        else:
            packed = pack((b"EVALSHA", self._shas[script], len(keys), *keys, *args))
        return self._issue(packed, script, deadline_s, True, read)

    async def subscribe(self, channel: bytes | str, on_message: OnMessage) -> None:
        """Call `on_message(channel, message)` for each message of a sharded channel, across reconnects.

        A channel has one callback: the latest. In a cluster the channel must carry the hash tag of `slot_key`. Messages
        that are published while the link is not connected are lost, as always with pub/sub.
        """
        name = channel.encode() if isinstance(channel, str) else channel
        self._channels[name] = on_message
        try:
            await self._confirm("SSUBSCRIBE", name)
        except BaseException:
            self._channels.pop(name, None)
            raise

    async def unsubscribe(self, channel: bytes | str) -> None:
        name = channel.encode() if isinstance(channel, str) else channel
        self._channels.pop(name, None)
        # A cluster node sends `sunsubscribe` by itself when a slot leaves it. With ours in flight as well, the two
        # could not be told apart and every later reply would go to the wrong call. There the callback just goes.
        if not self.server.cluster:
            await self._confirm("SUNSUBSCRIBE", name)

    def _confirm(self, kind: str, channel: bytes) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._enqueue(Subscribing(future, kind, channel, self._loop.time() + self.settings.deadline_s))
        return future

    def _issue(
        self,
        packed: bytes,
        name: Arg,
        deadline_s: float | None,
        script: bool,
        read: Callable[[Any], Any] | None = None,
    ) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        deadline = self._loop.time() + (self.settings.deadline_s if deadline_s is None else deadline_s)
        self._enqueue(Call(future, packed, name, deadline, script, read))
        return future

    def _enqueue(self, call: Call) -> None:
        settings = self.settings
        size_bytes = self._unsent_bytes + len(call.packed)
        if self.in_flight >= settings.in_flight_max or size_bytes > settings.unsent_max_bytes:
            shown, unsent_bytes = self.address.redacted(), self._unsent_bytes
            call.fail(overloaded(call, shown, settings, in_flight=self.in_flight, unsent_bytes=unsent_bytes))
            return
        if self._closed:
            call.fail(self._not_sent(call))
            return
        self.calls += 1
        self._unsent_bytes = size_bytes
        self._unsent.append(call)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)
        if call.deadline < self._sweep_at:
            self._sweep_no_later_than(call.deadline)

    def _flush(self) -> None:
        self._flush_due = False
        unsent, wire, settling = self._unsent, self._wire, self.settling
        # Without a wire, with one that is full, while our slot is being moved or a batch is not settled, nothing is
        # sent; the end of each of these states flushes again.
        moving = self._refused.pause_s > 0
        while unsent and not moving and wire is not None and not (wire.gone or wire.paused or wire.leaving):
            if settling is not None and settling.waits:
                break
            batch: list[Call] = []
            left_bytes = before = self.settings.write_buffer_bytes
            # Beyond this size the wire may be full, and a call that is not sent can still be given up.
            while unsent and len(batch) < BATCH_CALLS and left_bytes > 0:
                batch.append(unsent.popleft())
                left_bytes -= len(batch[-1].packed)
            self._unsent_bytes -= before - left_bytes
            self.bytes_out += self._send(batch)

    def leave(self, reason: str) -> None:
        """Leave the connection once everything sent is answered, and make another one, which greets anew."""
        if self._wire is not None:
            self._wire.leave(reason)

    # -- deadlines ----------------------------------------------------------------------------------------------

    def _sweep_no_later_than(self, when: float) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._sweep_at = when
        self._sweep_timer = self._loop.call_at(when, self._sweep)

    def _sweep(self, patient: bool = True) -> None:
        """Fail overdue calls and arm the timer for the next deadline; with nothing in flight there is no timer."""
        now = self._loop.time()
        if patient and now - self._sweep_at > STALL_S:
            # This process stood still. The replies may be in the socket's buffer already: read them first.
            self._sweep_timer = self._loop.call_later(SWEEP_GAP_S, self._sweep, False)
            return
        self._sweep_at = float("inf")
        self._sweep_timer = None
        nearest = min(self._sweep_sent(now), self._sweep_unsent(now))
        if self.settling is not None:
            nearest = min(nearest, self.settling.sweep(now))
        if nearest < float("inf"):
            gap_s = SWEEP_GAP_S + SWEEP_GAP_PER_CALL_S * self.in_flight
            self._sweep_no_later_than(max(nearest, now + gap_s))

    def _sweep_sent(self, now: float) -> float:
        if not self._sent:
            return float("inf")
        nearest = dead_at = self._sent[0].deadline + self.settings.dead_after_s
        for call in self._sent:
            if call.future.done():
                continue
            if call.deadline <= now:
                call.fail(no_answer(call, self.address.redacted(), in_flight=len(self._sent)))
            elif call.deadline < nearest:
                nearest = call.deadline
        if dead_at <= now and self._wire is not None:
            self._wire.drop(f"no answer for {self.settings.dead_after_s:g} s past a deadline")
        return nearest

    def _sweep_unsent(self, now: float) -> float:
        self._refused.calls, nearest_refused = self._still_wanted(self._refused.calls, now)
        self._unsent, nearest = self._still_wanted(self._unsent, now)
        return min(nearest, nearest_refused)

    def _still_wanted(self, calls: deque[Call], now: float) -> tuple[deque[Call], float]:
        nearest = float("inf")
        kept: deque[Call] = deque()
        for call in calls:
            if call.deadline <= now:
                call.fail(self._not_sent(call))
            # A caller that has an error already, or has gone, must not have its call sent later.
            if call.future.done():
                self._unsent_bytes -= len(call.packed)
            else:
                kept.append(call)
                nearest = min(nearest, call.deadline)
        return kept, nearest

    # -- connecting ---------------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        """Reconnect whenever the connection is lost, as long as the link is open."""
        while True:
            assert self._wire is not None
            self._connector.trouble = await asyncio.shield(self._wire.lost)
            log.warning("lost the connection to store %s: %s", self._wire.store, self._connector.trouble)
            self._late_replies += self._wire.late_replies
            if self.settling is not None:
                self.settling.lost(self._connector.trouble)
            self._wire, self._sent = None, deque()
            self._adopt(*await self._connector.again())
            self.reconnects += 1
            for callback in self.on_reconnect:
                self._loop.call_soon(callback)
            log.info("reconnected to store %s, now %s", self.address.redacted(), self.server)

    def _adopt(self, wire: Wire, server: Server) -> None:
        wire.on_refusal = self._on_refusal
        wire.on_unsubscribed = self._on_unsubscribed
        wire.on_writable = self._flush
        self._send = wire.send if self.settling is None else self.settling.adopt(wire)
        self._wire, self._sent, self.server = wire, wire.sent, server
        self._scripts_on_their_way = False
        self._sweep_unsent(self._loop.time())
        self._go_on()

    # -- refusals of the server ---------------------------------------------------------------------------------

    def _on_refusal(self, call: Call, refusal: StoreRefused) -> None:
        assert self._wire is not None
        again = call.tries < TRIES_MAX and not call.future.done()
        if call.future.done():
            self._wire.late_replies += 1
        elif refusal.code == "NOSCRIPT" and call.script and again:
            self._load_scripts()
            self._send_again(call)
            return
        elif is_moving(refusal.reply):
            self._keep(call, refusal)
            self._refused.pause()
        elif refusal.code in ("MOVED", "HOME") and again:
            call.tries += 1
            self._keep(call, refusal)
        elif refusal.code == "HOME":
            call.refusal = refusal.reply
            call.fail(self._not_sent(call))
        else:
            call.fail(refusal)
        self._after_refusal(refusal)

    def _after_refusal(self, refusal: StoreRefused) -> None:
        """Do for the connection what a refusal calls for, whatever becomes of the call."""
        assert self._wire is not None
        if refusal.code == "NOSCRIPT":
            self._load_scripts()
        elif refusal.code == "MOVED":
            self._connector.go_to = moved_to(refusal.reply)
            self._wire.leave(refusal.reply)
        elif refusal.code in LEAVE_AFTER:
            self._wire.leave(refusal.reply)

    def _on_unsubscribed(self) -> None:
        assert self._wire is not None
        self._wire.leave("our slot left this node")

    def _send_again(self, call: Call) -> None:
        call.tries += 1
        self.calls -= 1
        self._enqueue(call)

    # -- calls that did not run (refused.py)

    def _keep(self, call: Call, refusal: StoreRefused) -> None:
        self._unsent_bytes += len(call.packed)
        self._refused.keep(call, refusal.reply)
        if call.deadline < self._sweep_at:
            self._sweep_no_later_than(call.deadline)

    def _may_try(self) -> bool:
        """Return whether a kept call may be sent now: not while answers are due, as some may refuse earlier calls."""
        self._sweep_unsent(self._loop.time())
        wire = self._wire
        return wire is not None and not (wire.sent or wire.gone or wire.paused or wire.leaving)

    def _send_alone(self, call: Call) -> None:
        self._unsent_bytes -= len(call.packed)
        self.bytes_out += self._send([call])

    def _go_on(self) -> None:
        self._unsent.extendleft(reversed(self._refused.take_all()))
        self._flush()

    def _load_scripts(self) -> None:
        if self._scripts_on_their_way:
            return
        self._scripts_on_their_way = True
        deadline = self._loop.time() + self.settings.deadline_s
        for source in self._greeting.scripts.values():
            call = AtOnce(self._loop.create_future(), pack(("SCRIPT", "LOAD", source)), "SCRIPT", deadline, False)
            call.future.add_done_callback(self._on_loaded)
            self._enqueue(call)

    def _on_loaded(self, loaded: asyncio.Future[Any]) -> None:
        self._scripts_on_their_way = False
        if not loaded.cancelled() and loaded.exception() is not None:
            log.warning("could not load a script again: %s", loaded.exception())

    # -- errors (failures.py)

    def _not_sent(self, call: Call) -> StoreUnavailable:
        if self._closed:
            return not_sent(call, self.address.redacted(), "we closed the link")
        why = self._connector.trouble
        if self.settling is not None and self.settling.waits:
            why = self.settling.trouble or "an earlier batch of calls is not settled yet"
        return not_sent(call, self.address.redacted(), why, refusal=call.refusal)

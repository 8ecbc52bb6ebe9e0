"""One generation of one live, as its runtime sees it.

    async def avatar(session: Session) -> None:
        async for item in session.inputs():
            ...

`inputs()` claims the generation and yields its input in order; asking for the next item acks the one before. When the
live has moved on or ended, `inputs()` ends: what the runtime does after the loop is its teardown. A busy runtime that
must know earlier checks the events `stopping` and `interrupted`, which are set out of band.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec
import structlog

from dhsched.errors import BadValue, TooManyEmits
from dhsched.links.messages import Source
from dhsched.ownership.journal import Change
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.types import EMIT_BYTES_MAX, Generation, Kind, check_emit
from dhsched.web.logs import not_kept
from dhsched.web.traceparent import GIVEN
from dhsched.worker.journal import Journal
from dhsched.worker.values import object_of, raw_state, state_of

_log = structlog.get_logger("runtime")

STATE_BYTES_MAX = DEFAULT_LIMITS.state_bytes_max  # A larger state is refused with BadValue.
EMITS_MAX = 64  # Messages that are not stored yet; one more is refused with TooManyEmits.
SPOKEN_S = 0.25  # `spoken` emits no more often than this, except after an interrupt.
EXTEND_MAX_S = 600.0  # A longer `extend` is cut to this; work that takes longer calls `extend` again.
LATE_MAX_S = 60.0  # A longer `late` counts as this.
LATE_EVERY_S = 0.1  # What `late` was called with is passed on no more often than this, and with each ack.


class Item(msgspec.Struct, frozen=True, gc=False):
    """One input item. `config` is set if the item carries a configuration; `traceparent` if its push had such a header
    and items are traced: send it with requests that the runtime makes for the item."""

    seq: int
    kind: Kind
    payload: bytes
    boundary: bool
    raw_config: bytes | None = None
    mark: bytes = b""  # Identifies the append. Acks and pulls name it, so that the store can tell histories apart.
    traceparent: str = ""

    @property
    def config(self) -> dict[str, Any] | None:
        return None if self.raw_config is None else object_of(self.raw_config)

    @property
    def text(self) -> str:
        return self.payload.decode(errors="replace")


class Emission(NamedTuple):
    """One message to the application, as it is sent; `n` counts those of one generation from 1. `item` is the number of
    the traced item that it is about, or 0."""

    n: int
    name: str
    data: bytes
    item: int = 0


class Port(Protocol):
    """The calls that a session makes to its Infer-Controller connection."""

    def claim(self, session: Session) -> None:
        """Ask for the live's input."""

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None:
        """Send that the items up to `n` are consumed, the state to save (None if it did not change), and what is new in
        the journal. An `n` of 0 acks nothing: only the journal is stored."""

    def emit(self, session: Session, emission: Emission) -> None:
        """Send a message to the application."""

    def log(self, session: Session, source: Source, text: str | bytes) -> None:
        """Send a log line of the runtime."""


@dataclass(frozen=True, slots=True)
class Publish:
    """The URL where this generation publishes its media, and the token that permits publishing."""

    url: str
    token: str = field(repr=False)


class Session:
    """One generation of one live, for its runtime. The agent creates a session and drives it through inbox.py.

    `config` is the current configuration, `state` what an earlier generation saved. Setting `state`, to a JSON value or
    to bytes, saves it with the next ack: at most STATE_BYTES_MAX bytes, all of them with each ack. What grows with the
    conversation belongs in the journal (`journal`), of which each ack brings only what is new.
    `on_interrupt`, if set, is called as soon as an interrupt arrives. `publish` is set once the generation is claimed
    (`claimed`), and stays None where no room is configured: a generation that is only prepared has nothing to publish.
    `shared` is what the process's `setup` returned, `device` the Worker's device that this session is for.
    """

    __slots__ = (
        "_accepted",
        "_accepted_item",
        "_acked",
        "_begun",
        "_busy_until",
        "_claimed",
        "_claimed_event",
        "_done",
        "_emits",
        "_emits_stored",
        "_emitted",
        "_handed",
        "_handed_mark",
        "_interrupt",
        "_interrupted",
        "_journal",
        "_journal_here",
        "_late_passed_at",
        "_late_passed_s",
        "_late_s",
        "_may_claim",
        "_on_extend",
        "_on_late",
        "_on_prepared",
        "_port",
        "_queue",
        "_spoken_at",
        "_state",
        "_state_changed",
        "_stopping",
        "_tell_device",
        "_traced",
        "_waiter",
        "_wants_journal",
        "config",
        "device",
        "digital_id",
        "generation",
        "live",
        "metadata",
        "on_interrupt",
        "publish",
        "room",
        "shared",
    )

    def __init__(
        self,
        live: str,
        generation: Generation,
        port: Port,
        *,
        may_claim: bool = False,
        on_prepared: Callable[[], None] | None = None,
        on_extend: Callable[[], None] | None = None,
        on_late: Callable[[float], None] | None = None,
    ) -> None:
        self.live = live
        self.generation = generation
        self.digital_id = ""
        self.room = ""
        self.metadata: dict[str, Any] = {}
        self.config: dict[str, Any] = {}
        self.on_interrupt: Callable[[], None] | None = None
        self.publish: Publish | None = None
        self.device = ""
        self._tell_device = False
        self.shared: Any = None
        self._port = port
        self._state = b""
        self._state_changed = False
        self._queue: deque[Item] | None = None  # Created with the first item: most lives are silent most of the time.
        self._waiter: asyncio.Future[None] | None = None
        self._accepted = 0  # Input goes on after this item.
        self._accepted_item = (0, b"")  # The last item that arrived, with its mark.
        self._handed = 0  # The last item that the runtime was given, and its mark.
        self._handed_mark = b""
        self._traced = False  # The last item that the runtime was given has a trace.
        self._acked = 0
        self._interrupt = 0  # The last interrupt that arrived, or was announced.
        self._done: dict[int, bytes] | None = None  # Items above the ack cursor that were acked out of order.
        self._emitted = 0  # The last message, and those that are not stored yet; created with the first.
        self._emits: deque[Emission] | None = None
        self._emits_stored: asyncio.Event | None = None
        self._spoken_at = float("-inf")
        self._claimed = False
        self._begun = False  # The claim was granted.
        self._may_claim = may_claim  # False while the generation is only prepared:
        self._on_prepared = on_prepared  # then asking for input calls this instead.
        self._on_extend = on_extend
        self._busy_until = 0.0
        self._on_late = on_late
        self._late_s = self._late_passed_s = 0.0  # Late output of this generation, and what of it was passed on.
        self._late_passed_at = float("-inf")
        self._claimed_event: asyncio.Event | None = None
        self._interrupted: asyncio.Event | None = None
        self._stopping: asyncio.Event | None = None
        self._journal: Journal | None = None
        self._journal_here: asyncio.Event | None = None
        self._wants_journal = False  # The next pull asks for the journal.

    # -- for the runtime

    async def inputs(self, *, auto_ack: bool = True) -> AsyncIterator[Item]:
        """Yield the live's input in order, until the live moves on or ends.

        With `auto_ack=False`, asking for the next item acks nothing: call `ack`.
        """
        self._claim()
        loop = asyncio.get_running_loop()
        while True:
            if auto_ack and self._handed > self._acked:
                self.ack()
            while not self._queue and (self._stopping is None or not self._stopping.is_set()):
                self._waiter = loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            if self._closed or not self._queue:
                return
            yield self._hand_out(self._queue.popleft())

    async def journal(self) -> Journal:
        """Return the live's journal (journal.py), read from the store once. This claims the generation, as `inputs`
        does; once the runtime is to stop, the journal is empty, and what is written to it is lost."""
        if self._journal is None and not self._closed:
            self._wants_journal = True
            self._journal_here = self._journal_here or asyncio.Event()
            if self._claimed and self._may_claim:
                self._port.claim(self)
            self._claim()
            await self._journal_here.wait()
        if self._journal is None:
            self._journal = Journal()
        return self._journal

    def ack(self, item: Item | None = None) -> None:
        """Ack `item` as consumed, or without `item` everything handed out so far. Acks may come in any order: the
        cursor advances when the gap is closed. Raise BadValue if `item` was never handed out."""
        acked, mark = self._acked, b""
        if item is None:
            acked, mark = self._handed, self._handed_mark
        elif item.seq > self._handed:
            last = f"the last one was {self._handed}"
            raise BadValue(f"item {item.seq} of {self.live} was never handed out; {last}")
        elif acked < item.seq <= self._handed:
            done = self._done = self._done or {}
            done[item.seq] = item.mark
            while acked + 1 in done:
                acked += 1
                mark = done.pop(acked)
        if acked <= self._acked:
            return
        self._acked = acked
        if self._done:
            self._done = {seq: each for seq, each in self._done.items() if seq > acked}
        if self._late_s > self._late_passed_s:
            self._pass_on_late()
        saved = self._state if self._state_changed else None
        self._state_changed = False
        journal = None if self._journal is None else self._journal.acked()
        self._port.ack(self, acked, mark, saved, journal)

    def save_journal(self) -> None:
        """Store what is new in the journal now, without an ack: for what did not come as input, such as a microphone.
        Call this between items. What is written in the middle of an item belongs with its ack, because a generation
        that repeats the item would have it twice."""
        change = None if self._journal is None else self._journal.acked()
        if change is not None:
            self._port.ack(self, 0, b"", None, change)

    @property
    def state(self) -> Any:
        """Return a new copy of the saved state. Changes inside the copy are saved only by setting `state` again."""
        return state_of(self._state)

    @state.setter
    def state(self, value: Any) -> None:
        try:
            state = raw_state(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadValue(f"the state of {self.live} must be bytes or a JSON value ({error})") from None
        if len(state) > STATE_BYTES_MAX:
            raise BadValue(
                f"the state of {self.live} has {len(state)} bytes, at most {STATE_BYTES_MAX} are saved with an ack; "
                "write what grows to session.journal(), and keep what is larger elsewhere"
            )
        self._state_changed = self._state_changed or state != self._state
        self._state = state

    @property
    def interrupted(self) -> asyncio.Event:
        """Return the event that is set when an interrupt arrives, and cleared when `inputs` yields the interrupt."""
        self._interrupted = self._interrupted or asyncio.Event()
        return self._interrupted

    @property
    def claimed(self) -> asyncio.Event:
        """Return the event that is set once the generation is claimed. `inputs` requests the claim."""
        if self._claimed_event is None:
            self._claimed_event = asyncio.Event()
            if self._begun:
                self._claimed_event.set()
        return self._claimed_event

    @property
    def stopping(self) -> asyncio.Event:
        """Return the event that is set when the runtime must stop. After `teardown_s` the runtime is cancelled."""
        self._stopping = self._stopping or asyncio.Event()
        return self._stopping

    def emit(self, name: str, data: dict[str, Any] | None = None, *, item: Item | None = None) -> None:
        """Send a message to the live's application, which reads it from the live's events. In traces it belongs to
        `item`, or else to the last item that was handed out.

        Messages are stored in order, each once, and only while this generation is the current one. They wait here until
        they are stored: raise TooManyEmits if EMITS_MAX wait, BadValue if `data` is larger than EMIT_BYTES_MAX as JSON.
        """
        try:
            raw = msgspec.json.encode({} if data is None else data)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadValue(f"message {name} of {self.live} must be a JSON object ({error})") from None
        if len(raw) > EMIT_BYTES_MAX:
            raise BadValue(
                f"message {name} of {self.live} has {len(raw)} bytes, at most {EMIT_BYTES_MAX} are sent at once; send "
                "where the rest is"
            )
        check_emit(name, raw)
        waiting = self._emits = deque() if self._emits is None else self._emits
        if len(waiting) >= EMITS_MAX:
            raise TooManyEmits(
                f"{len(waiting)} messages of {self.live} wait to be stored; wait for emits_stored(), or emit less"
            )
        self._emitted += 1
        traced = self._traced if item is None else item.traceparent
        about = 0 if not traced else self._handed if item is None else item.seq
        emission = Emission(self._emitted, name, raw, about)
        waiting.append(emission)
        if self._emits_stored is not None:
            self._emits_stored.clear()
        self._port.emit(self, emission)

    def spoken(self, item: Item | None, chars: int = 0) -> None:
        """Emit `spoken`: of `item`, the first `chars` characters have been heard. Call it at the end of each word.

        Most calls emit nothing, because one message every SPOKEN_S is enough. Call it once more as soon as an interrupt
        arrives (`on_interrupt`), with what was heard of the last item until then, all of it or a part, or with None if
        there is none: this message names the interrupt, and an application cuts its history there. While too many
        messages wait, nothing is emitted.
        """
        data = {"seq": item.seq if item is not None else 0, "chars": chars}
        now = asyncio.get_running_loop().time()
        if self.interrupted.is_set():
            data["interrupt"] = self._interrupt
        elif now < self._spoken_at + SPOKEN_S:
            return
        self._spoken_at = now
        with contextlib.suppress(TooManyEmits):
            self.emit("spoken", data, item=item)

    async def emits_stored(self) -> None:
        """Wait until every message that was emitted is stored, or is lost because this generation is over."""
        self._emits_stored = self._emits_stored or asyncio.Event()
        if self._emits:
            await self._emits_stored.wait()

    def log(self, text: str) -> None:
        """Write a text to the Worker's log, and to the live's own log, which `dhsched live logs` shows."""
        self._port.log(self, "info", text)
        with not_kept():
            _log.info(text)

    def extend(self, seconds: float) -> None:
        """Announce that the current item takes up to `seconds` (at most EXTEND_MAX_S): until then it is no stall."""
        now = asyncio.get_running_loop().time()
        self._busy_until = max(self._busy_until, now + min(seconds, EXTEND_MAX_S))
        if self._on_extend is not None:
            self._on_extend()

    def late(self, seconds: float) -> None:
        """Report that `seconds` of output (at most LATE_MAX_S) were left out, or came too late to be seen or heard in
        time. The Worker counts them in its metrics, and `dhsched calibrate` adds them to the time of the current item.
        A call is cheap, as often as once per frame: nothing is sent. Numbers that are not above 0 count as 0."""
        if not seconds > 0:
            return
        self._late_s += min(seconds, LATE_MAX_S)
        if asyncio.get_running_loop().time() >= self._late_passed_at + LATE_EVERY_S:
            self._pass_on_late()

    # -- what `inputs`, `ack` and `late` do

    def _pass_on_late(self) -> None:
        self._late_passed_at = asyncio.get_running_loop().time()
        seconds, self._late_passed_s = self._late_s - self._late_passed_s, self._late_s
        if self._on_late is not None:
            self._on_late(seconds)

    def _claim(self) -> None:
        if self._claimed:
            return
        self._claimed = True
        if self._may_claim:
            self._port.claim(self)
        elif self._on_prepared is not None:
            self._on_prepared()

    def _hand_out(self, item: Item) -> Item:
        self._handed, self._handed_mark = item.seq, item.mark
        if item.raw_config is not None:
            self.config = object_of(item.raw_config)
        if item.traceparent or self._traced:
            # `inputs` runs in the runtime's task: its log lines have the id of this trace from here on.
            GIVEN.set(item.traceparent)
            self._traced = bool(item.traceparent)
        if item.kind == "interrupt":
            # The store has already dropped every item before the interrupt.
            self._acked = max(self._acked, item.seq - 1)
            self.interrupted.clear()
        return item

    @property
    def _closed(self) -> bool:
        return self._stopping is not None and self._stopping.is_set()

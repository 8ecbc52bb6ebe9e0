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
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from dhsched.errors import BadValue
from dhsched.types import Generation, Kind

STATE_BYTES_MAX = 4_096  # A larger state is refused with BadValue.
EXTEND_MAX_S = 600.0  # A longer `extend` is cut to this; work that takes longer calls `extend` again.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
MARK = b"\0"
JSON, BYTES = MARK + b"j", MARK + b"b"
"""Marks of a stored state. Bytes are stored as they are, JSON after JSON; bytes that begin with MARK, after BYTES."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """One input item. `config` is set if the item carries a configuration."""

    seq: int
    kind: Kind
    payload: bytes
    boundary: bool
    raw_config: bytes | None = None
    mark: bytes = b""  # Identifies the append. Acks and pulls name it, so that the store can tell histories apart.

    @property
    def config(self) -> dict[str, Any] | None:
        return None if self.raw_config is None else object_of(self.raw_config)

    @property
    def text(self) -> str:
        return self.payload.decode(errors="replace")


class Port(Protocol):
    """The calls that a session makes to its Infer-Controller connection."""

    def claim(self, session: Session) -> None: ...

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Publish:
    """The URL where this generation publishes its media, and the token that permits publishing."""

    url: str
    token: str = field(repr=False)


class Session:
    """One generation of one live, for its runtime. The agent creates a session and drives it through inbox.py.

    `config` is the current configuration, `state` what an earlier generation saved. Setting `state`, to a JSON value or
    to bytes, saves it with the next ack: at most STATE_BYTES_MAX bytes, small and often rather than whole and late.
    `on_interrupt`, if set, is called as soon as an interrupt arrives. `publish` is set once the generation is claimed
    (`claimed`), and stays None where no room is configured: a generation that is only prepared has nothing to publish.
    """

    __slots__ = (
        "_accepted",
        "_acked",
        "_begun",
        "_busy_until",
        "_claimed",
        "_claimed_event",
        "_done",
        "_handed",
        "_handed_mark",
        "_interrupted",
        "_may_claim",
        "_on_extend",
        "_on_prepared",
        "_port",
        "_queue",
        "_state",
        "_state_changed",
        "_stopping",
        "_waiter",
        "accepted",
        "config",
        "digital_id",
        "generation",
        "live",
        "metadata",
        "on_interrupt",
        "publish",
        "room",
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
    ) -> None:
        self.live = live
        self.generation = generation
        self.digital_id = ""
        self.room = ""
        self.metadata: dict[str, Any] = {}
        self.config: dict[str, Any] = {}
        self.on_interrupt: Callable[[], None] | None = None
        self.publish: Publish | None = None
        self._port = port
        self._state = b""
        self._state_changed = False
        self._queue: deque[Item] | None = None  # Created with the first item: most lives are silent most of the time.
        self._waiter: asyncio.Future[None] | None = None
        self._accepted = 0  # Input goes on after this item.
        self.accepted = (0, b"")  # The last item that arrived, with its mark; 0 and none before the first.
        self._handed = 0  # The last item that the runtime was given, and its mark.
        self._handed_mark = b""
        self._acked = 0
        self._done: dict[int, bytes] | None = None  # Items above the ack cursor that were acked out of order.
        self._claimed = False
        self._begun = False  # The claim was granted.
        self._may_claim = may_claim  # False while the generation is only prepared:
        self._on_prepared = on_prepared  # then asking for input calls this instead.
        self._on_extend = on_extend
        self._busy_until = 0.0
        self._claimed_event: asyncio.Event | None = None
        self._interrupted: asyncio.Event | None = None
        self._stopping: asyncio.Event | None = None

    # -- for the runtime

    async def inputs(self, *, auto_ack: bool = True) -> AsyncIterator[Item]:
        """Yield the live's input in order, until the live moves on or ends.

        With `auto_ack=False`, asking for the next item acks nothing: call `ack`.
        """
        self._claim()
        while True:
            if auto_ack:
                self.ack()
            item = await self._next()
            if item is None:
                return
            yield item

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
        saved = self._state if self._state_changed else None
        self._state_changed = False
        self._port.ack(self, acked, mark, saved)

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
                "keep what is larger elsewhere and save where it is"
            )
        self._state_changed = self._state_changed or state != self._state
        self._state = state

    @property
    def interrupted(self) -> asyncio.Event:
        """Return the event that is set when an interrupt arrives, and cleared when `inputs` yields the interrupt."""
        if self._interrupted is None:
            self._interrupted = asyncio.Event()
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
        if self._stopping is None:
            self._stopping = asyncio.Event()
        return self._stopping

    def extend(self, seconds: float) -> None:
        """Announce that the current item takes up to `seconds` (at most EXTEND_MAX_S): until then it is no stall."""
        now = asyncio.get_running_loop().time()
        self._busy_until = max(self._busy_until, now + min(seconds, EXTEND_MAX_S))
        if self._on_extend is not None:
            self._on_extend()

    # -- what `inputs` does

    def _claim(self) -> None:
        if self._claimed:
            return
        self._claimed = True
        if self._may_claim:
            self._port.claim(self)
        elif self._on_prepared is not None:
            self._on_prepared()

    async def _next(self) -> Item | None:
        while not self._closed:
            if self._queue:
                return self._hand_out(self._queue.popleft())
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return None

    def _hand_out(self, item: Item) -> Item:
        self._handed, self._handed_mark = item.seq, item.mark
        if item.raw_config is not None:
            self.config = object_of(item.raw_config)
        if item.kind == "interrupt":
            # The store has already dropped every item before the interrupt.
            self._acked = max(self._acked, item.seq - 1)
            self.interrupted.clear()
        return item

    @property
    def _closed(self) -> bool:
        return self._stopping is not None and self._stopping.is_set()


# -- values as the store holds them: configuration and metadata are JSON objects, a state is any JSON value or bytes


def object_of(raw: bytes) -> dict[str, Any]:
    """Decode a configuration or metadata; return an empty dict if `raw` is empty or is not a JSON object."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}
    except UNREADABLE:
        return {}


def state_of(raw: bytes) -> Any:
    """Decode a stored state; return an empty dict if nothing was saved."""
    if raw.startswith(JSON):
        try:
            return msgspec.json.decode(raw[len(JSON) :])
        except UNREADABLE:
            return raw
    if raw.startswith(BYTES):
        return raw[len(BYTES) :]
    return raw or {}


def raw_state(state: Any) -> bytes:
    """Encode a state for the store. Raise TypeError or ValueError for a value that JSON cannot express."""
    if isinstance(state, bytes):
        return BYTES + state if state.startswith(MARK) or not state else state
    return JSON + msgspec.json.encode(state)

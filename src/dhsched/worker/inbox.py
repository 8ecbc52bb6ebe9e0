"""The agent's and the connection's side of a session, which a runtime does not see.

Only `SessionInbox` and `Session` itself touch the session's underscored attributes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from dhsched.links.messages import Source
from dhsched.ownership.journal import Change
from dhsched.web.logs import KEEP
from dhsched.worker.journal import Journal
from dhsched.worker.session import Emission, Item, Port, Session
from dhsched.worker.values import object_of


@dataclass(frozen=True, slots=True)
class LiveInfo:
    """A live's DigitalID, room, metadata, configuration and saved state, as the store holds them."""

    digital_id: str = ""
    room: str = ""
    metadata: bytes = b""
    config: bytes = b""
    saved: bytes = b""


@dataclass(frozen=True, slots=True)
class WatchedPort:
    """A session's port that calls `on_ack` too; every other call goes to the port as it is."""

    port: Port
    on_ack: Callable[[int], None]

    def ack(self, session: Session, n: int, mark: bytes, saved: bytes | None, journal: Change | None) -> None:
        self.on_ack(n)
        self.port.ack(session, n, mark, saved, journal)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)


@dataclass(frozen=True, slots=True, eq=False)
class SessionInbox:
    """The calls on one session by the agent that runs it and by the connection that brings its input."""

    session: Session

    # -- for the agent

    def made_of(self, made: LiveInfo) -> None:
        """Fill in the live's details, before the runtime begins."""
        session = self.session
        session.digital_id, session.room, session.metadata = made.digital_id, made.room, object_of(made.metadata)
        session.config, session._state = object_of(made.config), made.saved

    def allow_claim(self) -> None:
        """Let a prepared generation claim, now that it is committed."""
        self.session._may_claim = True
        if self.session._claimed:
            self.session._port.claim(self.session)

    @property
    def prepared(self) -> bool:
        """Return whether the runtime asks for input while its generation is not committed yet."""
        return self.session._claimed and not self.session._may_claim and not self.session._closed

    @property
    def begun(self) -> bool:
        """Return whether the claim was granted."""
        return self.session._begun

    def busy(self, now: float) -> bool:
        """Return whether the runtime is still starting or asked for time (`extend`); reports carry the answer."""
        return not self.session._claimed or now < self.session._busy_until

    @property
    def busy_until(self) -> float:
        """Return until when the runtime has asked for time, on the loop's clock."""
        return self.session._busy_until

    @property
    def acked(self) -> int:
        """Return the item up to which everything is acked, or where the input began."""
        return self.session._acked

    def given_state(self, saved: bytes) -> None:
        """Fill in the state that an earlier generation saved."""
        self.session._state = saved

    def given_device(self, device: str, *, tell: bool) -> None:
        """Fill in the session's device. With `tell` its claim names the device, for people."""
        self.session.device, self.session._tell_device = device, tell

    @property
    def told_device(self) -> str:
        """Return the device that a claim names."""
        return self.session.device if self.session._tell_device else ""

    def close(self) -> None:
        """End `inputs`, so that the runtime stops. Items that it was handed stay unacked unless it acks them."""
        self.session.stopping.set()
        if self.session._journal_here is not None:
            self.session._journal_here.set()
        self._wake()

    def keep_line(self, source: Source, text: str | bytes) -> None:
        """Add a text to the live's log."""
        self.session._port.log(self.session, source, text)

    def keep_logs(self) -> None:
        """Add what the current task, and the tasks and threads that it starts, log from now on to the live's log."""
        loop = asyncio.get_running_loop()

        def keep(level: str, text: str) -> None:
            source = cast(Source, level) if level in get_args(Source) else "info"
            if running_loop() is loop:
                self.keep_line(source, text)
            else:
                with contextlib.suppress(RuntimeError):  # The loop is closed: the Worker has ended.
                    loop.call_soon_threadsafe(self.keep_line, source, text)

        KEEP.set(keep)

    def watch_acks(self, on_ack: Callable[[int], None]) -> None:
        """Have `on_ack` called with the number of every ack, before the ack is sent."""
        self.session._port = cast(Port, WatchedPort(self.session._port, on_ack))

    def watch_late(self, on_late: Callable[[float], None]) -> None:
        """Have `on_late` called with the seconds of output that the runtime reports as late (`Session.late`), beside
        what is called already: before the ack of the item that they belong to, and at most every LATE_EVERY_S else."""
        before = self.session._on_late

        def call_both(seconds: float) -> None:
            if before is not None:
                before(seconds)
            on_late(seconds)

        self.session._on_late = call_both

    @property
    def late_s(self) -> float:
        """Return how many seconds of output the runtime has reported as late."""
        return self.session._late_s

    # -- for the connection

    @property
    def accepted(self) -> tuple[int, bytes]:
        """Return the last item that arrived, with its mark; 0 and none before the first."""
        return self.session._accepted_item

    def begins_after(self, after: int, config: bytes, saved: bytes) -> None:
        """Begin input after item `after`: a pull was granted, and no item has arrived yet.

        `config` and `saved` replace those that the runtime was prepared with; a state that it has set itself stays.
        """
        session = self.session
        session._accepted = session._handed = session._acked = after
        session.config = object_of(config)
        if not session._state_changed:
            session._state = saved
        session._begun = True
        if session._claimed_event is not None:
            session._claimed_event.set()

    @property
    def wants_journal(self) -> bool:
        """Return whether the next pull must ask for the journal."""
        return self.session._wants_journal

    def journal_read(self, last: int, entries: Sequence[bytes]) -> None:
        """Hand the journal to the runtime, which waits for it; a runtime that has it writes to its own."""
        session = self.session
        if session._journal is None:
            session._journal, session._wants_journal = Journal(last, entries), False
        if session._journal_here is not None:
            session._journal_here.set()

    def journal_since(self, stored: int) -> Change | None:
        """Return what acks have brought to the journal, and the store may not have, whose last entry is `stored`."""
        return None if self.session._journal is None else self.session._journal.acked_since(stored)

    def stored(self, n: int) -> None:
        """Forget the runtime's messages up to n, which are stored."""
        session = self.session
        while session._emits and session._emits[0].n <= n:
            session._emits.popleft()
        if not session._emits and session._emits_stored is not None:
            session._emits_stored.set()

    @property
    def unstored(self) -> tuple[Emission, ...]:
        """The runtime's messages that are not known to be stored, in order."""
        return tuple(self.session._emits or ())

    def accept(self, item: Item) -> bool:
        """Queue the next item, or an interrupt. Return False for any other item: the connection must pull again."""
        if item.kind == "interrupt" and item.seq > self.session._accepted:
            return self._interrupt(item)
        if item.seq != self.session._accepted + 1:
            return False
        self._put(item)
        return True

    def interrupt_early(self, seq: int) -> None:
        """Drop every queued item and notify the runtime: interrupt `seq` comes, and will be accepted in its turn."""
        if self.session._queue:
            self.session._queue.clear()
        self._notify_of_interrupt(seq)

    def _interrupt(self, item: Item) -> bool:
        """Drop every queued item before the interrupt, then queue the interrupt."""
        session = self.session
        if session._queue:
            session._queue.clear()
        self._put(item)
        self._notify_of_interrupt(item.seq)
        return True

    def _notify_of_interrupt(self, seq: int) -> None:
        self.session._interrupt = seq
        self.session.interrupted.set()
        if self.session.on_interrupt is not None:
            self.session.on_interrupt()

    def _put(self, item: Item) -> None:
        session = self.session
        session._accepted = item.seq
        session._accepted_item = (item.seq, item.mark)
        if session._queue is None:
            session._queue = deque()
        session._queue.append(item)
        self._wake()

    def _wake(self) -> None:
        if (waiter := self.session._waiter) is not None and not waiter.done():
            waiter.set_result(None)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

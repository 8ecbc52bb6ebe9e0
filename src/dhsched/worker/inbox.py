"""What the agent and the connection do to a session: the half of it that a runtime does not see.

A `SessionInbox` and its `Session` are one thing with two sides. Beside them nobody touches what has an underscore.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dhsched.worker.session import Item, Session, object_of


@dataclass(frozen=True, slots=True)
class LiveInfo:
    """What a live is made of."""

    digital_id: str = ""
    room: str = ""
    metadata: bytes = b""
    config: bytes = b""
    saved: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class SessionInbox:
    """One session, for the agent that runs it and the connection that brings its input."""

    session: Session

    # -- for the agent

    def made_of(self, made: LiveInfo) -> None:
        """What the live is made of, before the runtime begins."""
        session = self.session
        session.digital_id, session.room, session.metadata = made.digital_id, made.room, object_of(made.metadata)
        session.config, session._state = object_of(made.config), made.saved

    def allow_claim(self) -> None:
        """The generation is committed: one that was only prepared may go on."""
        self.session._may_claim = True
        if self.session._claimed:
            self.session._port.claim(self.session)

    @property
    def prepared(self) -> bool:
        """The runtime is built and asks for input, and its generation is not committed yet."""
        return self.session._claimed and not self.session._may_claim and not self.session._closed

    def busy(self, now: float) -> bool:
        """Still starting, or asked for time: the agent says so with its reports."""
        return not self.session._claimed or now < self.session._busy_until

    def close(self) -> None:
        """The runtime must go: `inputs` ends. What it was handed stays unacked unless it says otherwise."""
        self.session.stopping.set()
        self._wake()

    # -- for the connection

    def begins_after(self, after: int, config: bytes, saved: bytes) -> None:
        """A pull was granted, and no item has arrived yet: input begins after `after`.

        What was saved since the runtime was prepared is newer than what it was prepared with.
        """
        session = self.session
        session._accepted = session._handed = session._acked = after
        session.config = object_of(config)
        if not session._state_changed:
            session._state = saved
        session._begun = True
        if session._claimed_event is not None:
            session._claimed_event.set()

    def accept(self, item: Item) -> bool:
        """Take the next item, or an interrupt. False: it is neither, and the connection has to pull again."""
        if item.kind == "interrupt" and item.seq > self.session._accepted:
            return self._interrupt(item)
        if item.seq != self.session._accepted + 1:
            return False
        self._put(item)
        return True

    def _interrupt(self, item: Item) -> bool:
        """Everything before it is dropped, whether the runtime has seen it or not."""
        session = self.session
        if session._queue:
            session._queue.clear()
        self._put(item)
        session.interrupted.set()
        if session.on_interrupt is not None:
            session.on_interrupt()
        return True

    def _put(self, item: Item) -> None:
        session = self.session
        session._accepted = item.seq
        session.accepted = (item.seq, item.mark)
        if session._queue is None:
            session._queue = deque()
        session._queue.append(item)
        self._wake()

    def _wake(self) -> None:
        waiter = self.session._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

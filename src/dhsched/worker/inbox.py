"""The agent's and the connection's side of a session, which a runtime does not see.

Only `SessionInbox` and `Session` itself touch the session's underscored attributes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dhsched.worker.session import Item, Session, object_of


@dataclass(frozen=True, slots=True)
class LiveInfo:
    """A live's DigitalID, room, metadata, configuration and saved state, as the store holds them."""

    digital_id: str = ""
    room: str = ""
    metadata: bytes = b""
    config: bytes = b""
    saved: bytes = b""


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

    def busy(self, now: float) -> bool:
        """Return whether the runtime is still starting or asked for time (`extend`); reports carry the answer."""
        return not self.session._claimed or now < self.session._busy_until

    def close(self) -> None:
        """End `inputs`, so that the runtime stops. Items that it was handed stay unacked unless it acks them."""
        self.session.stopping.set()
        self._wake()

    # -- for the connection

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

    def accept(self, item: Item) -> bool:
        """Queue the next item, or an interrupt. Return False for any other item: the connection must pull again."""
        if item.kind == "interrupt" and item.seq > self.session._accepted:
            return self._interrupt(item)
        if item.seq != self.session._accepted + 1:
            return False
        self._put(item)
        return True

    def _interrupt(self, item: Item) -> bool:
        """Drop every queued item before the interrupt, then queue the interrupt."""
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

"""Calls that the store did not run because another node owns the cell's slot, or is about to.

Theory of operation. While a cluster moves a slot to another node key by key, the old node refuses every call that needs
a key that it does not hold, and every script of ours (`cluster.is_moving`). Such calls are kept here in their order,
and the link sends nothing new. After a pause one of them is sent alone: a refusal starts the next pause, which is twice
as long, and any other answer ends the wait. So a move costs the store one refused call per pause.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from dhsched.errors import StoreUnavailable
from dhsched.store.link.wire import Call

PAUSE_FIRST_S = 0.01  # Pause before a call is tried again; doubled with each refusal, up to:
PAUSE_MAX_S = 0.2


class Refused:
    """The kept calls; see the module. `may_try` returns whether a call can be sent alone; `go_on` ends the wait."""

    def __init__(self, may_try: Callable[[], bool], send: Callable[[Call], None], go_on: Callable[[], None]) -> None:
        self.calls: deque[Call] = deque()
        self._may_try = may_try
        self._send = send
        self._go_on = go_on
        self.pause_s = 0.0  # Pause before the next try; 0 unless a refusal says that the slot is being moved.
        self._timer: asyncio.TimerHandle | None = None
        self._tried: Call | None = None

    def keep(self, call: Call, reply: str) -> None:
        """Put the call behind the earlier refused ones; the call that was tried alone goes first again."""
        call.refusal = reply
        if call is self._tried:
            self.calls.appendleft(call)
        else:
            self.calls.append(call)

    def pause(self) -> None:
        """Schedule the next try, unless one is scheduled already."""
        if self._timer is None:
            self.pause_s = min(PAUSE_MAX_S, 2 * self.pause_s or PAUSE_FIRST_S)
            self._timer = asyncio.get_running_loop().call_later(self.pause_s, self._try)

    def take_all(self) -> deque[Call]:
        """End the wait, and return the calls in their order."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.pause_s, self._tried = None, 0.0, None
        calls, self.calls = self.calls, deque()
        return calls

    def _try(self) -> None:
        self._timer = None
        if not self._may_try():
            self.pause()
        elif not self.calls:
            self._go_on()
        else:
            if (call := self.calls.popleft()) is not self._tried:
                self._tried = call
                call.future.add_done_callback(self._answered)
            self._send(call)

    def _answered(self, done: asyncio.Future[Any]) -> None:
        """End the wait if the call that was tried alone has an answer; pause again if it has none or was cancelled."""
        if self._tried is None or self._tried.future is not done:
            return
        if done.cancelled() or isinstance(done.exception(), StoreUnavailable):
            self.pause()
        else:
            self._go_on()

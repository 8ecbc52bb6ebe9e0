"""Messages of runtimes, on their way to the store; and the watchers that wait for them.

A Worker keeps each message until it is told that the store has it, and sends those that it keeps again on a new pull.
All messages of one tick go to the store in one call (`Gather`). The store takes the messages of a generation in their
order: if it answers GAP, an earlier call has failed or runs later, and the Worker sends everything after the last
message that is stored once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from dhsched.infer.pulls import Gather, Peer, Pulls
from dhsched.links import messages
from dhsched.ownership import outcomes as o
from dhsched.store.steps.redis import Emit, RedisStore

Row = tuple[Peer, Emit]


class Emits:
    """The messages that this controller passes to the store for its Workers."""

    def __init__(self, store: RedisStore, pulls: Pulls) -> None:
        self.stored = 0
        self.stale = 0
        self._pulls = pulls
        self._watched: dict[str, set[asyncio.Event]] = {}
        self._flush_due = False
        self._gather = Gather[Row, Emit](
            "emit",
            flush_soon=self._flush_soon,
            request=lambda row: row[1],
            call=store.emit_soon,
            answered=self._answered,
            retry=self._retry,
            size_of=lambda row: len(row[1].data),
        )

    def emit_soon(self, peer: Peer, row: Emit) -> None:
        """Send a checked message in this tick's call. `peer` is notified when the message is stored."""
        self._gather.add((peer, row))
        self._flush_soon()

    @contextmanager
    def watch(self, live: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever a message of the live was stored through this controller."""
        stored = asyncio.Event()
        watching = self._watched.setdefault(live, set())
        watching.add(stored)
        try:
            yield stored
        finally:
            watching.discard(stored)
            if not watching and self._watched.get(live) is watching:
                del self._watched[live]

    def _answered(self, rows: list[Row], _: list[Emit], outcomes: Iterable[o.EmitOutcome]) -> None:
        """Send one message to each generation: the number up to which its messages are stored, or that it is over."""
        last: dict[tuple[Peer, str, int], o.EmitOutcome] = {}
        for (peer, row), outcome in zip(rows, outcomes, strict=True):
            peer.emit_answered()
            if isinstance(outcome, o.Emitted) and outcome.n == row.n:
                self.stored += 1
                if self._pulls.traces is not None:
                    self._pulls.traces.emitted(row)
                for stored in self._watched.get(row.live, ()):
                    stored.set()
            last[peer, row.live, row.epoch] = outcome
        for (peer, live, epoch), outcome in last.items():
            match outcome:
                case o.Emitted():
                    peer.outbox.put(messages.Emitted(live, epoch, outcome.n))
                case o.Gap():
                    peer.outbox.put(messages.Emitted(live, epoch, outcome.last, again=True))
                case o.Stale():
                    self.stale += 1
                    self._over(peer, messages.Stale(live, epoch))
                case o.Ended():
                    self._over(peer, messages.Ended(live, epoch))

    def _over(self, peer: Peer, message: messages.Stale | messages.Ended) -> None:
        peer.outbox.put(message)
        if (pull := self._pulls.find(peer, message.live, message.epoch)) is not None:
            self._pulls.drop(pull)

    def _retry(self, row: Row, _: Emit) -> None:
        """Send a message again after a call that failed. If its pull is gone, its Worker sends it again elsewhere."""
        peer, emit = row
        if self._pulls.find(peer, emit.live, emit.epoch) is None:
            peer.emit_answered()
        else:
            self.emit_soon(peer, emit)

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        self._gather.flush()

"""The pulls that this controller holds, and the three calls that serve all lives: append, release and ack.

Theory of operation. A pull is served when there may be something for it: after it was granted, after a hint that its
live got input, after an ack that opened its window. Whatever is due in one tick of the loop goes to the store in one
call of its kind. At most `CALLS_MAX` releases and acks are under way, so under load calls grow instead of queueing;
what was pushed is never kept back here, for its deadline runs. No task, no timer and no call belongs to one live.

Nothing is decided here. The store releases, under its fence; what comes back is passed on. A call whose outcome is
unknown is repeated with the same cursor, and the store answers with the same range, so nothing is skipped or doubled.
Hints come over the connection that the calls go over: when it was lost, hints may have been, and every pull is due.

An item that is pushed through the controller that holds its live's pull needs no hint, and the store sends none: the
release goes right behind the append, over the same connection, so it finds the item. Should the release have run first
all the same (the link sends a step again when the server has forgotten its script), the append's reply shows it: it
says which number the item got. And an append whose reply does not come may still run, so there is one more release
behind that one. (One that was left behind on a lost connection may run even later; then whoever repeats it wakes the
pull, and the agenda does if nobody does.)

A call that the store refused half-way, because one live's keys are damaged, is sent again row by row: what is wrong
with one live is no reason to refuse another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, Protocol

import structlog

from dhsched.errors import StoreError, StoreOverloaded, StoreRefused
from dhsched.outbox import Outbox
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import mark_of
from dhsched.store.redis import Ack, Append, RedisStore, Release
from dhsched.types import Generation
from dhsched.wire import Ended, Items, Problem, Stale

log = structlog.get_logger(__name__)

ROWS_MAX = 128  # In one call.
APPENDS_MAX = 20_000  # Items on their way to the store; more are refused as too much at once.
APPEND_BYTES_FULL = 256 * 1024  # Of items in one call; then the next one begins.
CALLS_MAX = 2  # Of releases and of acks, under way.
RETRY_S = 0.1  # After a call that failed.
LOOK_S = 0.05  # Between two looks whether the link to the store was lost.

Appended = Callable[[o.AppendOutcome | StoreError], None]
"""What is called with an append's outcome, or with why there is none."""
ToAppend = tuple[Append, Appended]


class Peer(Protocol):
    """The connection that a pull came over."""

    worker: str
    outbox: Outbox
    waiting: set[Held]


class Held:
    """One granted pull: the latest of its live that this controller knows of."""

    __slots__ = (
        *("ack_due", "ack_mark", "ack_n", "ack_saved", "acked", "after", "again", "epoch", "expects"),
        *("first", "live", "mark", "more", "peer", "pull_no", "release_due", "release_sent"),
    )

    def __init__(self, peer: Peer, live: str, epoch: int, pull_no: int, after: int, mark: bytes) -> None:
        self.peer = peer
        self.live = live
        self.epoch = epoch
        self.pull_no = pull_no
        self.after = after  # The last item that was passed on,
        self.mark = mark  # and its mark.
        self.acked = 0  # At least this much is acked. Too low is safe: it costs a release that finds nothing.
        self.more = False  # The last release stopped at the window, not at the end of the queue.
        self.first = True
        self.release_due = False  # Queued, or under way.
        self.release_sent = False  # Under way.
        self.again = False  # Due once more when the one under way is back.
        self.expects = 0  # An item that was stored through this controller and should have been released by now.
        self.ack_due = False
        self.ack_n = 0
        self.ack_mark = b""
        self.ack_saved: bytes | None = None


class Holder:
    """All pulls of this controller."""

    def __init__(self, store: RedisStore, credit: int, controller: str) -> None:
        self.stale_releases = 0
        self.stale_acks = 0
        self.never_issued = 0  # Pulls with a number that the store never gave out.
        self.released = 0
        self._store = store
        self._credit = credit
        self._controller = controller
        self._held: dict[str, Held] = {}
        self._appends: list[ToAppend] = []
        self._appending = 0
        self._releases: list[Held] = []
        self._acks: list[Held] = []
        self._releasing = 0
        self._acking = 0
        self._flush_due = False
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._held)

    # -- pulls

    def take(self, held: Held) -> None:
        """A pull was granted. Of two for one live the later one counts; the store has refused the other already."""
        before = self._held.get(held.live)
        if before is not None and (before.epoch, before.pull_no) > (held.epoch, held.pull_no):
            return
        self._held[held.live] = held
        if before is not None and before.epoch < held.epoch:
            before.peer.outbox.put(Stale(before.live, before.epoch))
        self.release_soon(held)

    def find(self, peer: Peer, live: str, epoch: int) -> Held | None:
        held = self._held.get(live)
        return held if held is not None and held.peer is peer and held.epoch == epoch else None

    def drop(self, held: Held) -> None:
        if self._held.get(held.live) is held:
            del self._held[held.live]
        held.peer.waiting.discard(held)

    def drop_all(self, peer: Peer) -> None:
        """The connection is gone, and its pulls with it."""
        for held in [each for each in self._held.values() if each.peer is peer]:
            self.drop(held)

    def on_hint(self, _channel: bytes, live: bytes) -> None:
        """Something was appended, or a hold was lifted, or the live ended."""
        held = self._held.get(live.decode())
        if held is not None:
            self.release_soon(held)

    # -- what is due

    def append_soon(self, row: Append, done: Appended) -> None:
        """Store an item that has been checked, in this tick's call; its live's pull, if it is here, follows."""
        if self._appending >= APPENDS_MAX:
            why = f"{self._appending} items are on their way to the store, as many as this controller lets wait"
            done(StoreOverloaded(f"{why}; slow down, or find out why the store is slow"))
            return
        self._appending += 1
        self._appends.append((row, done))
        self._flush_soon()

    def release_soon(self, held: Held) -> None:
        if held.release_due:
            # One that is only queued will be sent after whatever made it due.
            held.again = held.again or held.release_sent
        elif held.peer.outbox.full:
            # A slow reader holds back only itself: its pulls wait until its connection has drained.
            held.peer.waiting.add(held)
        else:
            held.release_due = True
            self._releases.append(held)
            self._flush_soon()

    def drained(self, peer: Peer) -> None:
        """The connection took what was waiting: its pulls may go on."""
        if peer.waiting and not peer.outbox.full:
            waiting, peer.waiting = peer.waiting, set()
            for held in waiting:
                self.release_soon(held)

    def ack_soon(self, held: Held, n: int, mark: bytes, saved: bytes | None) -> None:
        """Only the latest ack of a live is kept: it includes those before it."""
        if n > held.after:
            self._ahead(held, n, held.after)
            return
        if n >= held.ack_n:
            held.ack_n, held.ack_mark = n, mark
        if saved is not None:
            held.ack_saved = saved
        if not held.ack_due:
            held.ack_due = True
            self._acks.append(held)
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        while self._acks and self._acking < CALLS_MAX:
            rows, self._acks = self._acks[:ROWS_MAX], self._acks[ROWS_MAX:]
            self._ack(rows)
        if self._appends:
            self._flush_appends()
        while self._releases and self._releasing < CALLS_MAX:
            rows, self._releases = self._releases[:ROWS_MAX], self._releases[ROWS_MAX:]
            self._release(rows)

    def _flush_appends(self) -> None:
        here, elsewhere = [], []
        for each in self._appends:
            held = self._held.get(each[0].live)
            if held is None:
                elsewhere.append(each)
            else:
                here.append(each)
                self.release_soon(held)
        self._appends = []
        for controller, due in ((self._controller, here), ("", elsewhere)):
            for rows in calls_of(due):
                self._append(rows, controller)

    def _read(self, answer: asyncio.Future[Any]) -> list[Any] | StoreError:
        """A call's outcomes, or why there are none."""
        try:
            return self._store.outcomes_of(answer.result())
        except StoreError as error:
            return error

    # -- append

    def _append(self, rows: list[ToAppend], controller: str) -> None:
        answer = self._store.append_soon([row for row, _ in rows], controller)
        answer.add_done_callback(lambda done: self._appends_answered(rows, controller, done))

    def _appends_answered(self, rows: list[ToAppend], controller: str, answer: asyncio.Future[Any]) -> None:
        outcomes = self._read(answer)
        if half_way(outcomes) and len(rows) > 1:
            for each in rows:
                self._append([each], controller)
            return
        self._appending -= len(rows)
        every: Iterable[o.AppendOutcome | StoreError]
        every = repeat(outcomes, len(rows)) if isinstance(outcomes, StoreError) else outcomes
        for (row, done), outcome in zip(rows, every, strict=True):
            # Whoever holds the live by now: its pull may have been granted since.
            held = self._held.get(row.live)
            if held is not None:
                self._appended(held, outcome)
            try:
                done(outcome)
            except Exception:
                log.exception("nobody heard what became of an item", live=row.live)

    def _appended(self, held: Held, outcome: o.AppendOutcome | StoreError) -> None:
        if isinstance(outcome, o.Appended):
            held.expects = max(held.expects, outcome.seq)
            if not held.release_due:
                self._check(held)
        elif isinstance(outcome, StoreError):
            self.release_soon(held)

    def _check(self, held: Held) -> None:
        """Once per push at most: what a hold keeps back must not be asked for again and again."""
        expected, held.expects = held.expects, 0
        if expected > held.after:
            self.release_soon(held)

    # -- release

    def _release(self, rows: list[Held]) -> None:
        asked = [Release(h.live, h.peer.worker, h.epoch, h.pull_no, h.after, h.mark) for h in rows]
        for held in rows:
            held.release_sent = True
        self._releasing += 1
        answer = self._store.release_soon(asked, self._credit)
        answer.add_done_callback(lambda done: self._releases_answered(rows, done))

    def _releases_answered(self, rows: list[Held], answer: asyncio.Future[Any]) -> None:
        self._releasing -= 1
        outcomes = self._read(answer)
        if half_way(outcomes) and len(rows) > 1:
            for held in rows:
                self._release([held])
            return
        if isinstance(outcomes, StoreError):
            log.warning("cannot release", lives=len(rows), why=str(outcomes))
            self._loop.call_later(RETRY_S, self._release_again, rows)
            self._flush_soon()
            return
        for held, outcome in zip(rows, outcomes, strict=True):
            held.release_due = held.release_sent = False
            again, held.again = held.again, False
            self._released(held, outcome)
            if self._held.get(held.live) is not held:
                continue
            if again:
                self.release_soon(held)
            elif held.expects:
                self._check(held)
        self._flush_soon()

    def _release_again(self, rows: list[Held]) -> None:
        for held in rows:
            held.release_due = held.release_sent = held.again = False
            if self._held.get(held.live) is held:
                self.release_soon(held)

    def _released(self, held: Held, outcome: o.ReleaseOutcome) -> None:
        match outcome:
            case o.Items(first, items):
                count = len(items)
                held.after, held.mark = first + count - 1, mark_of(items[-1])
                # A first item alone may be one that the last generation died of: then the window was 1.
                held.more = held.after - held.acked >= self._credit or (held.first and count == 1)
                held.first = False
                self.released += count
                message = Items(held.live, held.epoch, held.pull_no, first, list(items))
                held.peer.outbox.put(message, sum(map(len, items)))
            case o.Nothing():
                # Nothing new, or a window that is full: as long as something is unacked, it may be the window.
                held.more = held.after > held.acked
            case o.Ended():
                self._over(held, ended=True)
            case o.Stale(current):
                self.stale_releases += 1
                # The same generation with another pull: its Worker has gone to another socket, which serves it now.
                superseded = current == Generation(held.peer.worker, held.epoch)
                self.drop(held) if superseded else self._over(held, ended=False)

    def _over(self, held: Held, *, ended: bool) -> None:
        said = Ended if ended else Stale
        held.peer.outbox.put(said(held.live, held.epoch))
        self.drop(held)

    # -- ack

    def _ack(self, rows: list[Held]) -> None:
        asked = []
        for held in rows:
            asked.append(Ack(held.live, held.peer.worker, held.epoch, held.ack_n, held.ack_saved, held.ack_mark))
            # What was sent is forgotten: one that the store refuses must not stand for those that come later.
            held.ack_due, held.ack_n, held.ack_saved = False, 0, None
        self._send_acks(rows, asked)

    def _send_acks(self, rows: list[Held], asked: list[Ack]) -> None:
        self._acking += 1
        answer = self._store.ack_soon(asked)
        answer.add_done_callback(lambda done: self._acks_answered(rows, asked, done))

    def _acks_answered(self, rows: list[Held], asked: list[Ack], answer: asyncio.Future[Any]) -> None:
        self._acking -= 1
        outcomes = self._read(answer)
        if half_way(outcomes) and len(rows) > 1:
            for held, ack in zip(rows, asked, strict=True):
                self._send_acks([held], [ack])
            return
        if isinstance(outcomes, StoreError):
            log.warning("cannot ack", lives=len(rows), why=str(outcomes))
            self._loop.call_later(RETRY_S, self._ack_again, rows, asked)
            self._flush_soon()
            return
        for held, ack, outcome in zip(rows, asked, outcomes, strict=True):
            self._acked(held, ack.n, outcome)
        self._flush_soon()

    def _ack_again(self, rows: list[Held], asked: list[Ack]) -> None:
        for held, ack in zip(rows, asked, strict=True):
            if held.ack_saved is None:
                held.ack_saved = ack.saved
            self.ack_soon(held, ack.n, ack.mark, None)

    def _acked(self, held: Held, n: int, outcome: o.AckOutcome) -> None:
        match outcome:
            case o.Acked(acked, ended):
                held.acked = max(held.acked, acked)
                if ended:
                    self._over(held, ended=True)
                elif held.more:
                    self.release_soon(held)
            case o.Ahead(released):
                self._ahead(held, n, released)
            case o.Ended():
                self._over(held, ended=True)
            case o.Stale():
                self.stale_acks += 1
                self._over(held, ended=False)

    def _ahead(self, held: Held, n: int, released: int) -> None:
        """An ack of what was never handed out is answered, and has no effect."""
        detail = (
            f"{held.live} acked {n}, but only items up to {released} are released to generation {held.epoch} "
            f"({held.peer.worker}); pull again"
        )
        held.peer.outbox.put(Problem("AHEAD", detail, held.live, held.epoch))

    # -- hints that were lost

    async def mind_link(self) -> None:
        """After each reconnect to the store every pull is due: what was published meanwhile was lost."""
        link = self._store.link
        reconnects = link.reconnects
        while True:
            await asyncio.sleep(LOOK_S)
            if link.reconnects != reconnects:
                reconnects = link.reconnects
                for held in self._held.values():
                    self.release_soon(held)


def half_way(outcomes: list[Any] | StoreError) -> bool:
    """Whether a call ended at one of its rows: a full store, for one, refuses before the first."""
    return isinstance(outcomes, StoreRefused) and outcomes.code in ("ERR", "WRONGTYPE")


def calls_of(due: list[ToAppend]) -> Iterator[list[ToAppend]]:
    """What is to be appended, in its order, by calls that are not too large."""
    rows: list[ToAppend] = []
    size_bytes = 0
    for each in due:
        rows.append(each)
        size_bytes += len(each[0].item)
        if len(rows) == ROWS_MAX or size_bytes >= APPEND_BYTES_FULL:
            yield rows
            rows, size_bytes = [], 0
    if rows:
        yield rows

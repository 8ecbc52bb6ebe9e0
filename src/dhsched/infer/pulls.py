"""The pulls that this controller serves: a GrantedPull decides what is due for one pull, `Pulls` does it for all.

Theory of operation. A pull is served when there may be items for it: after it was granted, after a hint that its live
got input, after an ack that opened its window. All rows that are due in one tick of the loop go to the store in one
call of their kind (`Gather`): no task, no timer and no call belongs to one live. Releases and acks wait while two calls
of their kind are under way; pushed items never wait here, because their deadlines run.

This file does not decide which Worker may have an item. The store releases, under its fence, and its answer is passed
on. A call whose outcome is unknown is repeated with the same cursor, and the store answers with the same range, so
nothing is skipped or doubled. Hints arrive on the same connection as the answers: when the connection was lost, hints
may be lost too, so every pull is due.

An item that is pushed through the controller that serves its live's pull needs no hint, and the store sends none. If
the pull waits for its next item and no other append is under way, the append's call releases the item too
(GrantedPull.through). If not, the release follows the append on the same connection, so it finds the item. The release
may still run first (the link sends a step again when the server has forgotten its script); then the append's reply,
which has the item's number, shows that one more release is due. An append without a reply may still run, so one more
release follows it as well.
(An append that was left on a lost connection may run even later; then its repetition wakes the pull, or, without one,
the agenda does.)
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Any, Generic, Protocol, TypeVar

import structlog

from dhsched.errors import DhschedError, StoreError, StoreOverloaded, StoreRefused
from dhsched.infer.granted_pull import ACK, DROP, NO_STEP, NOTHING, RELEASE_STEP, GrantedPull, Step
from dhsched.infer.item_traces import ItemTraces
from dhsched.links import messages
from dhsched.links.outbox import Outbox
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import without_trace
from dhsched.ownership.journal import Change
from dhsched.store.steps.redis import Ack, Append, RedisStore, Release

log = structlog.get_logger(__name__)

APPENDS_MAX = 20_000  # Items on their way to the store; more are refused as too much at once.
ROWS_MAX = 128  # Rows in one call; the next row begins another call.
BYTES_FULL = 256 * 1024  # A call whose rows have this many bytes gets no more rows.
CALLS_MAX = 2  # Calls of one Gather under way; rows wait for one of them to come back.
RETRY_S = 0.1  # Between a call that failed and the retry of its rows.

Appended = Callable[[o.AppendOutcome | DhschedError], None]
"""A function that is called with an append's outcome, or with the error if there is none."""
ToAppend = tuple[Append, Appended, int, "ServedPull | None"]
"""An append, the function to call with its outcome, its size in bytes, and the pull that it goes through to, if any."""
ROW, SIZE = itemgetter(0), itemgetter(2)
ACK_SIZE = attrgetter("ack_bytes")
Row = TypeVar("Row")
Request = TypeVar("Request")


class Peer(Protocol):
    """The connection of a pull's Worker. `waiting` has its pulls that are BLOCKED. A Worker that does not take traces
    gets items without them."""

    outbox: Outbox
    waiting: set[ServedPull]
    takes_traces: bool

    def emit_answered(self) -> None:
        """Note that one message of a runtime is on its way to the store no more."""


ServedPull = GrantedPull[Peer]


class Pulls:
    """All pulls of this controller, by live, and the calls that serve them."""

    def __init__(self, store: RedisStore, credit: int, controller: str) -> None:
        self.stale_releases = 0
        self.stale_acks = 0
        self.never_issued = 0  # Pulls with a number that the store never gave out.
        self.hellos_refused = 0  # Connections that were opened with one boot's token and said hello with another's.
        self.released = 0
        self.traces: ItemTraces | None = None  # Where items are traced.
        self._store = store
        self._granted: dict[str, ServedPull] = {}
        self._pushed: list[ToAppend] = []  # In this tick.
        self._appending = 0  # Pushed, and not yet answered.
        self._flush_due = False
        self._loop = asyncio.get_running_loop()
        self._acks = Gather[ServedPull, Ack](
            "ack",
            flush_soon=self._flush_soon,
            request=GrantedPull.ack_sent,
            call=store.ack_soon,
            answered=self._acks_answered,
            retry=lambda pull, ack: self._act(pull, pull.ack_failed(ack)),
            size_of=ACK_SIZE,
        )
        # Whoever appends says so, where the pull is its own: then the store sends no hint.
        self._appends_here, self._appends_elsewhere = (
            Gather[ToAppend, Append](
                "append",
                flush_soon=self._flush_soon,
                request=ROW,
                call=partial(store.append_soon, controller=name, credit=credit),
                answered=self._appends_answered,
                calls_max=math.inf,
                size_of=SIZE,
            )
            for name in (controller, "")
        )
        self._releases = Gather[ServedPull, Release](
            "release",
            flush_soon=self._flush_soon,
            request=GrantedPull.release,
            call=partial(store.release_soon, credit=credit),
            answered=self._releases_answered,
            retry=lambda pull, _: self._act(pull, pull.release_failed()),
        )

    def __len__(self) -> int:
        return len(self._granted)

    @property
    def releasing(self) -> bool:
        """Whether a release is queued or under way."""
        return not self._releases.idle

    # -- pulls

    def take(self, pull: ServedPull) -> None:
        """Serve a granted pull. Of two pulls for one live only the later is served: the store refuses the other."""
        before = self._granted.get(pull.live)
        if before is not None:
            if before.later_than(pull):
                return
            self.drop(before)
            if before.epoch != pull.epoch:
                before.peer.outbox.put(messages.Stale(before.live, before.epoch))
        self._granted[pull.live] = pull
        self._act(pull, RELEASE_STEP)

    def find(self, peer: Peer, live: str, epoch: int) -> ServedPull | None:
        pull = self._granted.get(live)
        return pull if pull is not None and pull.peer is peer and pull.epoch == epoch else None

    def drop(self, pull: ServedPull) -> None:
        """Stop serving the pull."""
        pull.dropped()
        if self._granted.get(pull.live) is pull:
            del self._granted[pull.live]
        pull.peer.waiting.discard(pull)

    def drop_all(self, peer: Peer) -> None:
        """Stop serving all pulls of a connection that is gone."""
        for pull in [each for each in self._granted.values() if each.peer is peer]:
            self.drop(pull)
        peer.waiting.clear()

    # -- events

    def append(self, row: Append) -> asyncio.Future[o.AppendOutcome]:
        """Store a checked item as `append_soon` does; return the future of its outcome."""
        answered: asyncio.Future[o.AppendOutcome] = self._loop.create_future()
        self.append_soon(row, partial(tell, answered))
        return answered

    def on_hint(self, _channel: bytes, live: bytes) -> None:
        """Make the live's pull due: input was appended, a hold was lifted, or the live ended."""
        pull = self._granted.get(live.decode())
        if pull is not None:
            self._act(pull, pull.due())

    def append_soon(self, row: Append, done: Appended) -> None:
        """Store a checked item in this tick's call, then release to its live's pull, if this controller serves it.

        `done` is never called before this returns: a `done` that appends the next item would otherwise recurse.
        """
        if self._appending >= APPENDS_MAX:
            reason = f"{self._appending} items are on their way to the store, as many as this controller lets wait"
            refused = StoreOverloaded(f"{reason}; slow down, or find out why the store is slow")
            self._loop.call_soon(done, refused)
            return
        self._appending += 1
        self._pushed.append((row, done, len(row.item), None))
        self._flush_soon()

    def ack_soon(
        self, pull: ServedPull, n: int, mark: bytes, saved: bytes | None, journal: Change | None = None
    ) -> None:
        """Send the ack in this tick's call. Only the latest ack of a live is kept: it includes the earlier ones."""
        self._act(pull, pull.ack(n, mark, saved, journal))

    def drained(self, peer: Peer) -> None:
        """Continue the blocked pulls of a connection that takes messages again."""
        if peer.waiting and not peer.outbox.full:
            waiting, peer.waiting = peer.waiting, set()
            for pull in waiting:
                self._act(pull, pull.drained())

    def reconnected(self) -> None:
        """Make every pull due, because the store link was lost, and maybe hints with it."""
        for pull in self._granted.values():
            self._act(pull, pull.due())

    # -- answers of the store

    def _appends_answered(
        self, rows: list[ToAppend], _: list[Append], outcomes: Sequence[o.AppendOutcome | StoreError]
    ) -> None:
        self._appending -= len(rows)
        for (append, done, _size, through), outcome in zip(rows, outcomes, strict=True):
            # Whoever pulls the live by now: its pull may have been granted since.
            pull = self._granted.get(append.live)
            if pull is not None:
                answered = pull is through
                step = pull.through_answered(append.item, outcome) if answered else pull.append_answered(outcome)
                if step is not NO_STEP:
                    self._act(pull, step)
            try:
                done(outcome)
            except Exception:
                log.exception("nobody heard what became of an item", live=append.live)

    def _releases_answered(
        self, pulls: list[ServedPull], _: list[Release], outcomes: Sequence[o.ReleaseOutcome]
    ) -> None:
        self._act_all(pulls, map(GrantedPull.release_answered, pulls, outcomes))
        self.stale_releases += [*map(type, outcomes)].count(o.Stale)

    def _acks_answered(self, pulls: list[ServedPull], acks: list[Ack], outcomes: Sequence[o.AckOutcome]) -> None:
        self._act_all(pulls, map(GrantedPull.ack_answered, pulls, acks, outcomes))
        if self.traces is not None:
            self.traces.acked(acks, outcomes)
        self.stale_acks += [*map(type, outcomes)].count(o.Stale)

    # -- what is done

    def _act(self, pull: ServedPull, step: Step) -> None:
        """Send the message of an event's step, and do the step."""
        self._act_all((pull,), (step,))

    def _act_all(self, pulls: Sequence[ServedPull], steps: Iterable[Step]) -> None:
        """Do the steps of many pulls, one step for each: an iterator's next step is made after the last one is done."""
        for pull, (do, message) in zip(pulls, steps, strict=True):
            if isinstance(message, messages.Items):
                self.released += len(message.items)
                if self.traces is not None:
                    self.traces.delivered(pull.worker, message)
                if not pull.peer.takes_traces:
                    message.items = [*map(without_trace, message.items)]
                pull.peer.outbox.put(message, sum(map(len, message.items)))
            elif message is not None:
                pull.peer.outbox.put(message)
            if do is NOTHING:
                continue
            if do is DROP:
                self.drop(pull)
            elif do is ACK:
                self._acks.add(pull)
                self._flush_soon()
            elif pull.peer.outbox.full:
                pull.full()
                pull.peer.waiting.add(pull)
            else:
                self._releases.add(pull)
                self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send the rows of this tick: acks first, which open windows; releases last, which find the pushed items."""
        pushed, self._pushed = self._pushed, []
        # Under load a release hands out what several appends have stored, which costs everybody less.
        quiet = self._appends_here.idle
        for row in pushed:
            pull = self._granted.get(row[0].live)
            if pull is None:
                self._appends_elsewhere.add(row)
            elif quiet and not pull.peer.outbox.full and (through := pull.through()):
                append, done, size, _ = row
                live, item, producer, n, request, _ = append
                self._appends_here.add((Append(live, item, producer, n, request, through), done, size, pull))
            else:
                self._appends_here.add(row)
                if (step := pull.due()) is not NO_STEP:
                    self._act(pull, step)
        # What was due above goes with the releases below.
        self._flush_due = False
        for gather in (self._acks, self._appends_here, self._appends_elsewhere, self._releases):
            if gather.waiting:
                gather.flush()


class Gather(Generic[Row, Request]):
    """The calls of one kind, each with the rows of many lives. When a row is sent, `request` makes the store's argument
    from it. At most `calls_max` calls are under way, so under load calls grow instead of queueing.

        add ──> waiting ──flush──> under way ──┬── outcomes ────────> `answered`, with the outcome of each row
                                               ├── ended half-way ──> under way again, each row in a call of its own
                                               └── failed ──────────> `retry`, for each row, after RETRY_S; without
                                                                      `retry` the error is what each row is answered

    A call ends half-way when one live's keys are damaged: the rows before that live have run, the rows behind it have
    not. Damage to one live must not affect others, so each row is then sent alone. A row may therefore run twice, as
    after a lost answer: every step that is called here recognizes a repetition.
    """

    def __init__(
        self,
        name: str,
        *,
        flush_soon: Callable[[], None],
        request: Callable[[Row], Request],
        call: Callable[[list[Request]], asyncio.Future[Any]],
        answered: Callable[[list[Row], list[Request], Sequence[Any]], None],
        retry: Callable[[Row, Request], None] | None = None,
        calls_max: float = CALLS_MAX,
        size_of: Callable[[Row], int] | None = None,
    ) -> None:
        self._name = name
        self._flush_soon = flush_soon
        self._request = request
        self._call = call
        self._answered = answered
        self._retry = retry
        self._calls_max = calls_max
        self._size_of = size_of
        self.waiting: list[Row] = []
        self.add = self.waiting.append
        """Add a row. The caller must flush soon: this runs for every item, and does nothing else."""
        self._calls = 0
        self._loop = asyncio.get_running_loop()

    @property
    def idle(self) -> bool:
        """Whether no row waits and no call is under way."""
        return not self.waiting and not self._calls

    def flush(self) -> None:
        """Send the waiting rows, as far as the limit of calls allows."""
        while self.waiting and self._calls < self._calls_max:
            rows = self._next_rows()
            self._send(rows, map(self._request, rows))

    def _next_rows(self) -> list[Row]:
        """Remove and return the rows of the next call, in their order."""
        rows = self.waiting[:ROWS_MAX]
        if self._size_of is not None:
            for count, size_bytes in enumerate(accumulate(map(self._size_of, rows)), 1):
                if size_bytes >= BYTES_FULL:
                    del rows[count:]
                    break
        del self.waiting[: len(rows)]
        return rows

    def _send(self, rows: list[Row], made: Iterable[Request]) -> None:
        self._calls += 1
        requests = [*made]
        answer = self._call(requests)
        answer.add_done_callback(lambda done: self._returned(rows, requests, done))

    def _returned(self, rows: list[Row], requests: list[Request], answer: asyncio.Future[Any]) -> None:
        self._calls -= 1
        outcomes = self._read(answer)
        if len(rows) > 1 and isinstance(outcomes, StoreRefused) and outcomes.half_way:
            for row, request in zip(rows, requests, strict=True):
                self._send([row], [request])
            return
        if not isinstance(outcomes, StoreError):
            self._answered(rows, requests, outcomes)
        elif self._retry is None:
            self._answered(rows, requests, [outcomes] * len(rows))
        else:
            log.warning(f"cannot {self._name}", lives=len(rows), reason=str(outcomes))
            self._loop.call_later(RETRY_S, self._retry_all, rows, requests)
        if self.waiting:
            # Rows that waited for this call to come back: nobody else may be about to flush.
            self._flush_soon()

    def _read(self, answer: asyncio.Future[Any]) -> Sequence[Any] | StoreError:
        """Return a call's outcomes, or its error."""
        try:
            outcomes: Sequence[Any] = answer.result()
            return outcomes
        except StoreError as error:
            return error

    def _retry_all(self, rows: list[Row], requests: list[Request]) -> None:
        assert self._retry is not None
        for row, request in zip(rows, requests, strict=True):
            self._retry(row, request)


def tell(answered: asyncio.Future[o.AppendOutcome], outcome: o.AppendOutcome | DhschedError) -> None:
    """Pass an item's outcome, or the error, to the caller that waits for it."""
    if answered.done():
        return  # The caller has gone.
    if isinstance(outcome, DhschedError):
        answered.set_exception(outcome)
    else:
        answered.set_result(outcome)

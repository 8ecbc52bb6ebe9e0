"""One stream of pushes, as a state machine without a socket, a loop or a store. `StreamPeer` (stream.py) acts for it.

A language model writes a few letters at a time, and a runtime speaks sentences: so tokens are joined into items. Items
with a number go to the store as they come, many at once, because the store keeps their order by number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from dhsched.client.models.input import Answer, Push
from dhsched.errors import DhschedError, StoreUnavailable
from dhsched.infer.append_rules import RETRY_S, Attempts, payload_of, problem_of, refusal
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import unmarked
from dhsched.store.steps.redis import Append
from dhsched.types import Kind, live_key
from dhsched.web.problems import Problem

LINES_MAX = 10_000  # Lives of one stream; a push for one more is refused as BUSY.
JOINED_BYTES_MAX = 4_096  # A token that would make a joined item longer begins the next item.
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "\n")


class Reading(Enum):
    """Whether the client is read from; see PushStream."""

    OPEN = "the client is read from, unless too much is in flight"
    FULL = "the connection has too many answers that the client did not read"
    ENDING = "a frame was too large: what was answered is sent, and the connection ends"
    GONE = "the connection is gone, or the controller stops"


class Sending(Enum):
    """How the items of one live go to the store; see PushStream."""

    DIRECT = "each at once: all of them had numbers so far"
    EMPTY = "one at a time, and none is there"
    JOINING = "the first item is open to more tokens"
    STORING = "the first item is on its way to the store"
    PAUSED = "the first item was sent, its outcome is unknown, and it is sent again soon"


OPEN, FULL, ENDING, GONE = Reading
DIRECT, EMPTY, JOINING, STORING, PAUSED = Sending


class Line:
    """One live on one stream: the answers that are owed, in order, and the items that go to the store one at a time."""

    __slots__ = ("live", "live_id", "owed", "queue", "resume_at", "sending", "timer_at", "tokens")

    def __init__(self, live_id: str, live: str) -> None:
        self.live_id = live_id
        self.live = live
        self.owed: deque[Item] = deque()
        self.queue: deque[QueuedItem] = deque()
        self.sending = DIRECT
        self.tokens = 0  # That were taken.
        self.resume_at = 0.0  # While PAUSED: when the first item is sent again.
        self.timer_at = 0.0  # When the timer fires that was asked for; 0 without one.


NO_ROW = Append("", b"")


class Item(msgspec.Struct, eq=False):
    """One item, from its push to its answer. As an action: append `row` and call `append_answered` with the outcome."""

    line: Line
    answer: Answer
    began: float
    row: Append = NO_ROW
    done: bool = False


class QueuedItem(Item, eq=False, kw_only=True):
    """An item of a live whose items go one at a time. It takes tokens until it is `closed`, or `closes_at`."""

    kind: Kind
    boundary: bool = False
    parts: list[bytes]
    size_bytes: int = 0
    closed: bool = False
    closes_at: float = 0.0
    tokens: int  # Of this live that are stored when this item is.
    attempts: Attempts | None = None


class ArmTimer(NamedTuple):
    """Call `timer_fired` with this line, at this time or later."""

    line: Line
    at: float


class End(NamedTuple):
    """Send what was answered, and close the connection because of this problem."""

    problem: Problem


Action = Answer | Item | ArmTimer | End
"""What an event leads to. An Answer is to be sent, an Item to be appended."""
Actions = list[Action]
"""A new list for each event: whoever gets it may add to it."""


class PushStream:
    """One stream: which item goes to the store when, what is joined, and which answer comes after which.

    Each method is an event and returns the actions that its caller does, in their order. Times are seconds of one clock
    that the caller chooses.

    Reading:

                 full                        frame_refused, TOO_LARGE, End
        OPEN <─────────> FULL          OPEN, FULL ─────────────────────────> ENDING
               drained                 any state, closed ──> GONE: no event leads to an action any more

    Each live that is pushed to has a line, with a state of its own (`sending`):

        DIRECT ── item with a number ──> DIRECT, append      DIRECT ── anything else ──> as from EMPTY, for good

                 token, ArmTimer             the item is closed, append
        EMPTY ─────────────────────> JOINING ──────────────────────────> STORING <───────────┐
          │                                                              ^ │  │ unknown,     │ timer, append
          └───────── a sentence, or an item that is no token, append ────┘ │  v ArmTimer     │ (the same row)
                                                                           │ PAUSED ─────────┘
               EMPTY, JOINING or STORING, by what is behind it <───────────┘ answered, Answer

    What may be joined: tokens with tokens, of one live, without an item between them. A joined item is closed by the
    end of a sentence, which is a boundary; by its age, `join_s`; by a token that would make it longer than
    JOINED_BYTES_MAX; by an item that is no token. While the first item of a line is STORING or PAUSED, those behind it
    wait, so that order needs no numbers; a numbered item waits there too, so that it overtakes no token.

    Answers of one line have the order of its pushes, whatever is answered first: an answer waits in `owed` for those
    before it. A push that is refused here is answered in its place too.

    After a failure nothing is refused here. A numbered item is sent once, and its client repeats it. What was sent
    behind it is refused by the store, as GAP, because it knows the last number; a repetition of what was stored is
    answered `duplicate`. An item without a number has a request id from here: while its outcome is unknown, the same
    row is sent again for at most `deadline_s`. The item behind one that failed goes on.

    Limits: LINES_MAX lives, JOINED_BYTES_MAX and `text_bytes_max` bytes of an item. `held_back` says when not to read:
    `in_flight_max` answers are owed, or the connection is full.
    """

    def __init__(
        self,
        *,
        tenant: str,
        live_id: str,
        producer: str,
        text_bytes_max: int,
        in_flight_max: int,
        join_s: float,
        deadline_s: float,
        new_request: Callable[[], str],
    ) -> None:
        self.reading = OPEN
        self.in_flight = 0  # Answers that are owed.
        self._tenant = tenant
        self._live_id = live_id  # The live whose own stream this is; empty on one of many lives.
        self._producer = producer
        self._text_bytes_max = text_bytes_max
        self._in_flight_max = in_flight_max
        self._join_s = join_s
        self._deadline_s = deadline_s
        self._new_request = new_request
        self._lines: dict[str, Line] = {}

    # -- the connection

    @property
    def held_back(self) -> bool:
        """Whether the client must not be read from now."""
        return self.reading is FULL or (self.reading is OPEN and self.in_flight >= self._in_flight_max)

    def full(self) -> None:
        """The connection holds as many answers as it may."""
        if self.reading is OPEN:
            self.reading = FULL

    def drained(self) -> None:
        """The connection takes more answers."""
        if self.reading is FULL:
            self.reading = OPEN

    def closed(self) -> None:
        """The connection is gone. What was being joined is lost, as its client can see from its answers."""
        self.reading = GONE

    # -- pushes

    def frame_refused(self, problem: Problem) -> Actions:
        """A frame came that cannot be read."""
        if self.reading in (ENDING, GONE):
            return []
        answer = Answer(self._live_id, problem=problem.document())
        if problem.code != "TOO_LARGE":
            return [answer]
        self.reading = ENDING
        return [answer, End(problem)]

    def push(self, pushes: Sequence[Push], now: float, store_full: Problem | None = None) -> Actions:
        """A frame came, or a part of one. While the store is full, `store_full` is what each item is refused with."""
        actions: Actions = []
        if self.reading is ENDING or self.reading is GONE:
            return actions
        for push in pushes:
            live_id = push.live if isinstance(push.live, str) else self._live_id
            line = self._lines.get(live_id)
            try:
                if line is None:
                    line = self._new_line(live_id)
                if store_full is not None:
                    self._refuse(line, live_id, push.n, store_full, now, actions)
                elif isinstance(push.token, str):
                    self._token(line, push.token, now, actions)
                else:
                    self._item(line, push, now, actions)
            except DhschedError as error:
                self._refuse(line, live_id, push.n, problem_of(error), now, actions)
        return actions

    def _new_line(self, live_id: str) -> Line:
        if not live_id or (self._live_id and live_id != self._live_id):
            raise Problem("BAD_REQUEST", "name the live: `live` on /v1/stream, nothing else on a live's own stream")
        if len(self._lines) >= LINES_MAX:
            raise Problem("BUSY", f"one socket serves {LINES_MAX} lives; open another one")
        line = self._lines[live_id] = Line(live_id, live_key(self._tenant, live_id))
        return line

    def _item(self, line: Line, push: Push, now: float, actions: Actions) -> None:
        n = push.n
        payload = payload_of(push.kind, push.text, push.config, self._text_bytes_max)
        if n and not self._producer:
            raise Problem("BAD_REQUEST", "numbered items need ?producer=NAME on the socket's URL", field="$.n")
        if n and line.sending is DIRECT:
            row = Append(line.live, unmarked(push.kind, payload, push.boundary), self._producer, n)
            item = Item(line, Answer(line.live_id, n), now, row)
            line.owed.append(item)
            self.in_flight += 1
            actions.append(item)
            return
        answer = Answer(line.live_id, n)
        self._queue(
            QueuedItem(
                line,
                answer,
                now,
                kind=push.kind,
                boundary=push.boundary,
                parts=[payload],
                closed=True,
                tokens=line.tokens,
            )
        )
        self._advance(line, now, actions)

    def _token(self, line: Line, token: str, now: float, actions: Actions) -> None:
        payload = token.encode()
        last = line.queue[-1] if line.queue else None
        if last is None or last.closed or now >= last.closes_at or last.size_bytes + len(payload) > JOINED_BYTES_MAX:
            answer = Answer(line.live_id)
            last = QueuedItem(line, answer, now, kind="text", parts=[], closes_at=now + self._join_s, tokens=0)
            self._queue(last)
        last.parts.append(payload)
        last.size_bytes += len(payload)
        line.tokens += 1
        last.tokens = line.tokens
        if token.rstrip(" ").endswith(SENTENCE_ENDS):
            last.closed = last.boundary = True
        self._advance(line, now, actions)

    def _queue(self, item: QueuedItem) -> None:
        """Put an item behind those of its line; the last of them takes no more tokens."""
        line = item.line
        if line.queue:
            line.queue[-1].closed = True
        line.queue.append(item)
        line.owed.append(item)
        self.in_flight += 1

    def _refuse(self, line: Line | None, live_id: str, n: int, problem: Problem, now: float, actions: Actions) -> None:
        """Answer a push with a problem, in its place; at once where the live has no line."""
        answer = Answer(live_id, n=n, problem=problem.document())
        if line is None:
            actions.append(answer)
            return
        line.owed.append(Item(line, answer, now, done=True))
        self.in_flight += 1
        self._answer(line, actions)

    # -- the store

    def append_answered(self, item: Item, outcome: o.AppendOutcome | DhschedError, now: float) -> Actions:
        """What became of an item."""
        actions: Actions = []
        if self.reading is GONE:
            return actions
        line, answer = item.line, item.answer
        if isinstance(outcome, o.Appended):
            answer.seq = outcome.seq
        elif isinstance(outcome, o.Duplicate):
            answer.duplicate = True
        elif not isinstance(outcome, DhschedError):
            problem = refusal(line.live_id, outcome)
            answer.problem = problem.document() if problem else None
        else:
            error: DhschedError | None = outcome
            if isinstance(outcome, StoreUnavailable) and isinstance(item, QueuedItem) and item.attempts is not None:
                error = item.attempts.failed(outcome, now)
            if error is None:
                line.sending, line.resume_at = PAUSED, now + RETRY_S
                self._wake_at(line, line.resume_at, actions)
                return actions
            answer.problem = problem_of(error).document()
        item.done = True
        if line.queue and item is (first := line.queue[0]):
            if not isinstance(outcome, DhschedError):
                answer.tokens = first.tokens
            line.queue.popleft()
            line.sending = EMPTY
            self._answer(line, actions)
            self._advance(line, now, actions)
        else:
            self._answer(line, actions)
        return actions

    def timer_fired(self, line: Line, now: float) -> Actions:
        """A timer fired. It may be one that nobody waits for any more, or fire a little early."""
        actions: Actions = []
        line.timer_at = 0.0
        if self.reading is GONE:
            return actions
        if line.sending is JOINING:
            self._advance(line, now, actions)
        elif line.sending is PAUSED and now < line.resume_at:
            self._wake_at(line, line.resume_at, actions)
        elif line.sending is PAUSED:
            line.sending = STORING
            actions.append(line.queue[0])
        return actions

    def _advance(self, line: Line, now: float, actions: Actions) -> None:
        """Send the first item of the queue, unless one is under way, or wait until it is closed by its age."""
        if line.sending is STORING or line.sending is PAUSED or not line.queue:
            return
        first = line.queue[0]
        if not first.closed and now < first.closes_at:
            line.sending = JOINING
            self._wake_at(line, first.closes_at, actions)
            return
        first.closed = True
        line.sending = STORING
        payload = unmarked(first.kind, b"".join(first.parts), first.boundary)
        if n := first.answer.n:
            first.row = Append(line.live, payload, self._producer, n)
        else:
            first.row = Append(line.live, payload, request=self._new_request())
            first.attempts = Attempts(now + self._deadline_s)
        actions.append(first)

    def _wake_at(self, line: Line, at: float, actions: Actions) -> None:
        """Ask for a timer, unless one fires before: that one asks again. So a line rarely has more than one."""
        if not line.timer_at or line.timer_at > at:
            line.timer_at = at
            actions.append(ArmTimer(line, at))

    def _answer(self, line: Line, actions: Actions) -> None:
        """Answer everything at the front that is done."""
        owed = line.owed
        while owed and owed[0].done:
            actions.append(owed.popleft().answer)
            self.in_flight -= 1

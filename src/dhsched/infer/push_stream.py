"""One stream of pushes: a state machine without a socket, a loop or a store. `StreamPeer` (stream.py) does its actions.

A language model writes a few letters at a time, and a runtime speaks sentences: so tokens are joined into items. Items
with a number go to the store as they arrive, many at once, because the store keeps their order by number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from dhsched.client.models.input import Answer, Push
from dhsched.errors import DhschedError, StoreUnavailable
from dhsched.infer.append_rules import RETRY_S, Attempts, payload_of, refusal
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import unmarked
from dhsched.store.steps.redis import Append
from dhsched.types import check_id
from dhsched.web.problems import Problem, problem_of

LINES_MAX = 10_000  # Lives of one stream with items in flight, or with tokens; a push for one more is refused as BUSY.
JOINED_BYTES_MAX = 4_096  # A token that would make a joined item longer begins the next item.
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "\n")


class Reading(Enum):
    """Whether the client's connection is read; see PushStream."""

    OPEN = "the connection is read, unless too much is in flight"
    FULL = "the connection has too many answers that the client did not read"
    ENDING = "a frame was too large: the answers so far are sent, and the connection ends"
    GONE = "the connection is gone, or the controller stops"


class Sending(Enum):
    """How the items of one live go to the store; see PushStream."""

    DIRECT = "each at once: only items with numbers are in flight"
    JOINING = "the first item is open to more tokens"
    STORING = "the first item is on its way to the store"
    PAUSED = "the first item was sent, its outcome is unknown, and it is sent again soon"


OPEN, FULL, ENDING, GONE = Reading
DIRECT, JOINING, STORING, PAUSED = Sending


class Line(msgspec.Struct, eq=False):
    """One live with something in flight. Its items are a chain, in the order of their pushes (`Item.behind`).

    From `first` to `last` are all items whose answers are still to send; from `head` to `tail` are those of them that
    go to the store one at a time. No deque: an empty one takes 760 bytes, and a line is made for most pushes.
    """

    live_id: str
    live: str
    sending: Sending = DIRECT
    first: Item | None = None
    last: Item | None = None
    head: Item | None = None
    tail: Item | None = None
    resume_at: float = 0.0  # While PAUSED: when the first item is sent again.
    timer_at: float = 0.0  # When the requested timer fires; 0 without a timer.


NO_ROW = Append("", b"")


class Item(msgspec.Struct, eq=False):
    """One item, from its push to its answer. As an action: append `row` and call `append_answered` with the outcome."""

    line: Line
    answer: Answer
    began: float
    tokens: int = 0  # Tokens of this live that are stored once this item is.
    payload: bytes = b""
    row: Append = NO_ROW
    behind: Item | None = None  # The item that was pushed next.
    closed: bool = True
    attempts: Attempts | None = None
    done: bool = False


class JoinedItem(Item, eq=False, kw_only=True):
    """An item that is joined from tokens until it is `closed`, or until `closes_at`."""

    parts: list[bytes]
    size_bytes: int = 0
    boundary: bool = False
    closes_at: float


class ArmTimer(NamedTuple):
    """Call `timer_fired` with this line, at this time or later."""

    line: Line
    at: float


class End(NamedTuple):
    """Send the answers so far, and close the connection because of this problem."""

    problem: Problem


Action = Answer | Item | ArmTimer | End
"""What the caller of an event must do: send an Answer, append an Item, arm a timer, or end the connection."""
Actions = list[Action]
"""A new list for each event, which the caller may extend."""


class PushStream:
    """One stream: decides when each item goes to the store, which tokens are joined, and the order of answers.

    Each method is an event and returns the actions that its caller must do, in this order. Times are seconds of one
    clock that the caller chooses.

    Reading:

                 full                        frame_refused, TOO_LARGE, End
        OPEN <─────────> FULL          OPEN, FULL ─────────────────────────> ENDING
               drained                 any state, closed ──> GONE: no event leads to an action any more

    Each live with something in flight has a line, with a state of its own (`sending`); a new line is DIRECT:

        DIRECT ── item with a number ──> DIRECT, append

                  token, ArmTimer             the item is closed, append
        DIRECT ─────────────────────> JOINING ──────────────────────────> STORING <───────────┐
          │                                                               ^ │  │ unknown,     │ timer, append
          └───────── a sentence, or an item without a number, append ─────┘ │  v ArmTimer     │ (the same row)
                                                                            │ PAUSED ─────────┘
               DIRECT, JOINING or STORING, by what is behind it <───────────┘ answered, Answer

    Only tokens of one live, without an item between them, are joined. A joined item is closed by the
    end of a sentence, which is a boundary; by its age, `join_s`; by a token that would make it longer than
    JOINED_BYTES_MAX; by an item that is no token. While the first item of a line is STORING or PAUSED, the items behind
    it wait, so that their order needs no numbers; a numbered item waits there too, so that it overtakes no token.
    A line is dropped when its last answer was sent and no timer is armed: a live without anything in flight costs
    nothing. Only the number of its tokens is kept, which later answers continue.

    Answers of one line have the order of its pushes, whatever the store answers first: an answer waits for the
    answers before it. A push that is refused here is answered in its place too.

    After a failure nothing is refused here. A numbered item is sent once, and its client repeats it. The store refuses
    later items as GAP, because it knows the last number, and answers `duplicate` to an item that it has stored already.
    An item without a number gets a request id here: while its outcome is unknown, the same row is sent again for at
    most `deadline_s`. After an item that failed, the line goes on with the next.

    Limits: LINES_MAX lives, JOINED_BYTES_MAX and `text_bytes_max` bytes of an item. `held_back` is true while the
    connection must not be read: `in_flight_max` answers are still to send, or the connection is full.
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
        self.in_flight = 0  # Answers that are still to send.
        self._tenant = check_id(tenant, "tenant")
        self._live_id = live_id  # The only live of this stream; empty on a stream of many lives.
        self._producer = producer
        self._text_bytes_max = text_bytes_max
        self._in_flight_max = in_flight_max
        self._join_s = join_s
        self._deadline_s = deadline_s
        self._new_request = new_request
        self._lines: dict[str, Line] = {}
        self._refusal: dict[str, Any] = {}  # The document of the last refusal.
        self._tokens: dict[str, int] = {}  # Tokens accepted so far, of each live that had any.

    # -- the connection

    @property
    def held_back(self) -> bool:
        """Whether the connection must not be read now."""
        return self.reading is FULL or (self.reading is OPEN and self.in_flight >= self._in_flight_max)

    def full(self) -> None:
        """Note that the connection holds as many unread answers as it may."""
        if self.reading is OPEN:
            self.reading = FULL

    def drained(self) -> None:
        """Note that the connection takes answers again."""
        if self.reading is FULL:
            self.reading = OPEN

    def closed(self) -> None:
        """Note that the connection is gone. Tokens being joined are lost, as the client can tell by its answers."""
        self.reading = GONE

    # -- pushes

    def frame_refused(self, problem: Problem) -> Actions:
        """Answer a frame that cannot be read; a frame that is too large ends the stream."""
        if self.reading in (ENDING, GONE):
            return []
        answer = Answer(self._live_id, problem=problem.document())
        if problem.code != "TOO_LARGE":
            return [answer]
        self.reading = ENDING
        return [answer, End(problem)]

    def push(
        self, pushes: Sequence[Push], now: float, store_full: Problem | None = None, over_quota: Problem | None = None
    ) -> Actions:
        """Handle the pushes of a frame, or of a part of it. While the store is full, refuse each with `store_full`;
        while the tenant has too much input pending, refuse each that is no interrupt with `over_quota`."""
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
                elif over_quota is not None and push.kind != "interrupt":
                    self._refuse(line, live_id, push.n, over_quota, now, actions)
                elif isinstance(push.token, str):
                    self._token(line, push.token, now, actions)
                else:
                    self._item(line, push, now, actions)
            except DhschedError as error:
                self._refuse(line, live_id, push.n, problem_of(error), now, actions)
        return actions

    def _new_line(self, live_id: str) -> Line:
        if not live_id or (self._live_id and live_id != self._live_id):
            raise Problem("BAD_REQUEST", "name the live: in `live` on /v1/stream, no other live on a live's own stream")
        if len(self._lines) >= LINES_MAX:
            raise Problem("BUSY", f"one socket serves at most {LINES_MAX} lives at once; open another socket")
        line = self._lines[live_id] = Line(live_id, f"{self._tenant}/{check_id(live_id, 'live_id')}")
        return line

    def _item(self, line: Line, push: Push, now: float, actions: Actions) -> None:
        n = push.n
        payload = payload_of(push.kind, push.text, push.config, self._text_bytes_max)
        if n and not self._producer:
            raise Problem("BAD_REQUEST", "numbered items need ?producer=NAME on the socket's URL", field="$.n")
        payload = unmarked(push.kind, payload, push.boundary)
        tokens = self._tokens.get(line.live_id, 0)
        item = Item(line, Answer(line.live_id, n), now, tokens, payload)
        if line.sending is not DIRECT:
            self._queue(item)
            self._advance(line, now, actions)
            return
        self._await_answer(item)
        if not n:
            line.head = line.tail = item
            line.sending = STORING
        self._send(item, now, actions)

    def _token(self, line: Line, token: str, now: float, actions: Actions) -> None:
        payload = token.encode()
        tokens = self._tokens.get(line.live_id, 0) + 1
        if tokens == 1 and len(self._tokens) >= LINES_MAX:
            raise Problem("BUSY", f"one socket takes tokens of at most {LINES_MAX} lives; open another socket")
        self._tokens[line.live_id] = tokens
        last = line.tail
        if (
            not isinstance(last, JoinedItem)
            or last.closed
            or now >= last.closes_at
            or last.size_bytes + len(payload) > JOINED_BYTES_MAX
        ):
            answer = Answer(line.live_id)
            last = JoinedItem(line, answer, now, tokens, closed=False, parts=[], closes_at=now + self._join_s)
            self._queue(last)
        last.parts.append(payload)
        last.size_bytes += len(payload)
        last.tokens = tokens
        if token.rstrip(" ").endswith(SENTENCE_ENDS):
            last.closed = last.boundary = True
        self._advance(line, now, actions)

    def _queue(self, item: Item) -> None:
        """Put an item behind those that go one at a time; the item before it takes no more tokens."""
        line = item.line
        if line.tail is None:
            line.head = item
        else:
            line.tail.closed = True
        line.tail = item
        self._await_answer(item)

    def _await_answer(self, item: Item) -> None:
        """Put an item at the end of its line: its answer is sent after those of the items before it."""
        line = item.line
        if line.last is None:
            line.first = item
        else:
            line.last.behind = item
        line.last = item
        self.in_flight += 1

    def _refuse(self, line: Line | None, live_id: str, n: int, problem: Problem, now: float, actions: Actions) -> None:
        """Answer a push with a problem, in the order of its line; at once when the live has no line."""
        document = problem.document()
        if document == self._refusal:
            document = self._refusal  # Pushes of one frame are often refused alike: their answers share the document.
        else:
            self._refusal = document
        answer = Answer(live_id, n=n, problem=document)
        if line is None:
            actions.append(answer)
            return
        self._await_answer(Item(line, answer, now, done=True))
        self._answer(line, actions)

    # -- the store

    def append_answered(self, item: Item, outcome: o.AppendOutcome | DhschedError, now: float) -> Actions:
        """Handle the outcome of an item's append."""
        actions: Actions = []
        if self.reading is GONE:
            return actions
        line, answer = item.line, item.answer
        if isinstance(outcome, o.Appended):
            answer.seq, answer.dropped = outcome.seq, outcome.dropped
        elif isinstance(outcome, o.Duplicate):
            answer.duplicate, answer.seq = True, outcome.seq
        elif not isinstance(outcome, DhschedError):
            problem = refusal(line.live_id, outcome)
            answer.problem = problem.document() if problem else None
        else:
            error: DhschedError | None = outcome
            if isinstance(outcome, StoreUnavailable) and item.attempts is not None:
                error = item.attempts.failed(outcome, now)
            if error is None:
                line.sending, line.resume_at = PAUSED, now + RETRY_S
                self._wake_at(line, line.resume_at, actions)
                return actions
            answer.problem = problem_of(error).document()
        item.done = True
        if not isinstance(outcome, DhschedError):
            answer.tokens = item.tokens
        if item is line.head:
            following = item.behind
            while following is not None and following.done:  # A push that was refused.
                following = following.behind
            line.head = following
            if following is None:
                line.tail = None
            line.sending = DIRECT
            self._answer(line, actions)
            if following is not None:
                self._advance(line, now, actions)
        else:
            self._answer(line, actions)
        return actions

    def timer_fired(self, line: Line, now: float) -> Actions:
        """Handle a timer of this line. A timer that is no longer needed, or fires a little early, does no harm."""
        actions: Actions = []
        line.timer_at = 0.0
        if self.reading is GONE:
            return actions
        if line.sending is JOINING:
            self._advance(line, now, actions)
        elif line.sending is PAUSED and now < line.resume_at:
            self._wake_at(line, line.resume_at, actions)
        elif line.sending is PAUSED and line.head is not None:
            line.sending = STORING
            actions.append(line.head)
        elif line.first is None and self._lines.get(line.live_id) is line:
            del self._lines[line.live_id]
        return actions

    def _advance(self, line: Line, now: float, actions: Actions) -> None:
        """Send the first item of the queue, unless one is under way; or wait until the item is closed by its age."""
        first = line.head
        if line.sending is STORING or line.sending is PAUSED or first is None:
            return
        if isinstance(first, JoinedItem):
            if not first.closed and now < first.closes_at:
                line.sending = JOINING
                self._wake_at(line, first.closes_at, actions)
                return
            first.closed = True
            first.payload = unmarked("text", b"".join(first.parts), first.boundary)
        line.sending = STORING
        self._send(first, now, actions)

    def _send(self, item: Item, now: float, actions: Actions) -> None:
        """Give the item its row, and have it appended."""
        if n := item.answer.n:
            item.row = Append(item.line.live, item.payload, self._producer, n)
        else:
            item.row = Append(item.line.live, item.payload, "", 0, self._new_request())
            item.attempts = Attempts(now + self._deadline_s)
        actions.append(item)

    def _wake_at(self, line: Line, at: float, actions: Actions) -> None:
        """Request a timer, unless one fires before `at` and then requests the next. So a line rarely has two timers."""
        if not line.timer_at or line.timer_at > at:
            line.timer_at = at
            actions.append(ArmTimer(line, at))

    def _answer(self, line: Line, actions: Actions) -> None:
        """Send the answers at the front of the line whose items are done."""
        first = line.first
        while first is not None and first.done:
            actions.append(first.answer)
            self.in_flight -= 1
            first = first.behind
        line.first = first
        if first is None:
            line.last = None  # Also on a line that is dropped: line and item would refer to each other.
            if not line.timer_at:
                del self._lines[line.live_id]

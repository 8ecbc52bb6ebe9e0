"""One granted pull, as a state machine without a store, a loop or a connection. `Pulls` (pulls.py) does its steps."""

from __future__ import annotations

from enum import Enum
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from dhsched.errors import StoreError
from dhsched.links import messages
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import MARK, PULL_TEXT, marked
from dhsched.ownership.journal import Change, joined
from dhsched.store.steps.redis import Ack, Release
from dhsched.types import Generation

P = TypeVar("P")
FIRST = attrgetter("first", "last")


class Serving(Enum):
    """The state of a pull's next release; see GrantedPull."""

    IDLE = "no release is due"
    BLOCKED = "a release is due when the connection has drained"
    QUEUED = "a release is due, and will be sent after whatever made it due"
    SENT = "a release is under way, or an append that may release its item"
    AGAIN = "a release is under way, and one more is due when its answer is here"
    GONE = "the pull is served no more"


class Do(Enum):
    """What the caller of an event must do, after sending the message."""

    NOTHING = "nothing"
    RELEASE = "have `release` called for the next call to the store, or call `full`"
    ACK = "have `ack_sent` called for the next call to the store"
    DROP = "forget the pull"


IDLE, BLOCKED, QUEUED, SENT, AGAIN, GONE = Serving
NOTHING, RELEASE, ACK, DROP = Do

Message = messages.Items | messages.Ended | messages.Stale | messages.Problem
Step = tuple[Do, Message | None]
"""What an event leads to: at most one thing to do, and at most one message to the Worker."""
NO_STEP: Step = (NOTHING, None)
RELEASE_STEP: Step = (RELEASE, None)
ACK_STEP: Step = (ACK, None)
DROP_STEP: Step = (DROP, None)


class GrantedPull(msgspec.Struct, Generic[P], eq=False, gc=False):
    """One granted pull: decides when a release is due, what is acked, and what is sent to the Worker.

    Each method is an event, and returns the step that its caller must do. `peer` belongs to the caller, to find the
    connection again; nothing here reads it.

    The next release (`serving`) is QUEUED by the grant: the first step of a new pull is RELEASE. `due` is a hint, an
    own append, a reconnect, or an ack that opened the window. An own append that finds the pull IDLE goes *through*:
    its call releases the item as well, and counts as the release. If the store did not release it, or did not answer, a
    release follows:

                due, RELEASE             sent                answered
        IDLE ─────────────────> QUEUED ────────> SENT ──────────────────────> IDLE
                                │    ^           │  │ answered, and `expects` was not among what came, RELEASE
                           full │    │ drained,  │  └─────────────────────────────────────────> QUEUED
                                v    │ RELEASE   │ due
                               BLOCKED           v    answered, or failed, RELEASE
                                               AGAIN ───────────────────────────────────────────> QUEUED

        IDLE, through ──> SENT                  SENT, failed, or the item was only stored ──> QUEUED, RELEASE
        any state, dropped, or the live is over ──> GONE, for good

    `due` changes nothing in BLOCKED, QUEUED and AGAIN: a release is still to be sent, so it will find what made it due.
    `expects` is for an append that is answered while a release is SENT: it is unknown which of the two ran first.
    GONE asks for no release; answers that are still under way are passed on, and acks are carried to their end.

    The ack: at most one is queued. A later ack replaces the queued one, which it includes. An ack that was sent is
    forgotten; if its call fails, it is merged with the ack that is queued. Two calls may be under way and both fail, so
    what is queued may be the earlier one: the newest state goes on, and the journal in its order.

    A controller has one of these per live, and the garbage collector does not look at them (`gc=False`): a full
    collection takes 0.3 ms with 5,000 lives or none, and took 4 ms. If `peer` refers to its pulls, it must stop when
    the connection ends (`Pulls.drop_all`): the collector cannot find such a circle.
    """

    peer: P
    live: str
    worker: str
    epoch: int
    pull_no: int
    after: int  # The last item that was passed on,
    mark: bytes  # and its mark.
    home: str = ""  # The store's home that granted it.
    serving: Serving = QUEUED
    expects: int = 0  # While SENT: the last item that was stored through this controller meanwhile.
    acked: int = 0  # At least this much is acked. Too low is safe: it costs a release that finds nothing.
    at_window: bool = False  # The last release stopped at the window, or may have: not at the end of the queue.
    ack_queued: bool = False
    ack_n: int = 0
    ack_mark: bytes = b""
    ack_saved: bytes | None = None
    ack_calls: int = 0  # Acks that were sent and not answered yet. Until then the newest state is kept,
    newest: bytes | None = None
    newest_n: int = 0  # and the ack that brought it.
    ack_journal: Change | None = None
    ack_bytes: int = 0  # Of the queued ack: its state and its journal.

    def later_than(self, other: GrantedPull[P]) -> bool:
        """Return whether `other` was granted before this pull. Numbers of two homes have no order: there the last one
        to be answered is the later."""
        return self.home == other.home and (self.epoch, self.pull_no) > (other.epoch, other.pull_no)

    # -- release

    def due(self) -> Step:
        """Note that there may be items to release."""
        if self.serving is IDLE:
            self.serving = QUEUED
            return RELEASE_STEP
        if self.serving is SENT:
            self.serving = AGAIN
        return NO_STEP

    def full(self) -> None:
        """Note that the connection is full: the release waits for `drained`. A slow reader delays only itself."""
        if self.serving is QUEUED:
            self.serving = BLOCKED

    def drained(self) -> Step:
        """Note that the connection takes messages again."""
        if self.serving is BLOCKED:
            self.serving = QUEUED
            return RELEASE_STEP
        return NO_STEP

    def release(self) -> Release:
        """Return the release's row, which goes to the store now."""
        if self.serving is QUEUED:
            self.serving = SENT
        return Release(self.live, self._text())

    def through(self) -> bytes:
        """Return this pull for an append that goes to the store now and may release its item, as text; empty if it may
        not. The first item of a generation is released by a release."""
        if self.serving is not IDLE or self.at_window or not self.after:
            return b""
        self.serving = SENT
        return self._text()

    def _text(self) -> bytes:
        return PULL_TEXT % (self.worker.encode(), self.epoch, self.pull_no, self.after, self.mark)

    def through_answered(self, item: bytes, outcome: o.AppendOutcome | StoreError) -> Step:
        """Handle the outcome of an append of this item, without its mark, that `through` was asked for."""
        if isinstance(outcome, o.Appended) and outcome.mark:
            return self.release_answered(o.Items(outcome.seq, (marked(item, outcome.mark),), more=False))
        return self.release_failed()

    def release_answered(self, outcome: o.ReleaseOutcome) -> Step:
        message: Message | None = None
        if isinstance(outcome, o.Items):
            items = outcome.items
            self.after, self.mark = outcome.first + len(items) - 1, items[-1][MARK]
            self.at_window = outcome.more
            message = messages.Items(self.live, self.epoch, self.pull_no, outcome.first, [*items])
        elif isinstance(outcome, o.Nothing):
            # Nothing new, or a window that is full: as long as something is unacked, it may be the window.
            self.at_window = self.after > self.acked
        elif isinstance(outcome, o.Ended):
            return self._over(messages.Ended(self.live, self.epoch))
        elif outcome.current != Generation(self.worker, self.epoch):
            return self._over(messages.Stale(self.live, self.epoch))
        else:
            # The same generation with another pull: its Worker has gone to another socket, which serves it now.
            self.serving = GONE
            return DROP_STEP
        # An expected item is requested once at most: a hold may keep it back, and a hint comes when the hold is lifted.
        expected, self.expects = self.expects, 0
        if self.serving is GONE:
            return NOTHING, message
        if self.serving is AGAIN or expected > self.after:
            self.serving = QUEUED
            return RELEASE, message
        self.serving = IDLE
        return NOTHING, message

    def release_failed(self) -> Step:
        """Make the release due again from the same cursor, because it is unknown whether it ran."""
        self.expects = 0
        if self.serving is GONE:
            return NO_STEP
        self.serving = QUEUED
        return RELEASE_STEP

    def append_answered(self, outcome: o.AppendOutcome | StoreError) -> Step:
        """Handle the outcome of an item that was pushed through this controller."""
        if isinstance(outcome, o.Appended):
            if self.serving is SENT:
                self.expects = max(self.expects, outcome.seq)
            elif self.serving is IDLE and outcome.seq > self.after:
                # The release behind the append ran before it. (One that is still to be sent finds the item.)
                return self.due()
        elif isinstance(outcome, StoreError):
            return self.due()
        return NO_STEP

    # -- ack

    def ack(self, n: int, mark: bytes, saved: bytes | None, journal: Change | None = None) -> Step:
        """Queue the Worker's ack of everything up to `n`, with the state and the journal entries that it brings, if
        any."""
        if n > self.after:
            return NOTHING, self._ahead(n, self.after)
        if n >= self.ack_n:
            self.ack_n, self.ack_mark = n, mark
        if saved is not None:
            self.ack_saved = saved
            if n >= self.newest_n:
                self.newest, self.newest_n = saved, n
            self.ack_bytes += len(saved)
        if journal is not None:
            self.ack_journal = journal if self.ack_journal is None else joined(self.ack_journal, journal)
            self.ack_bytes += journal.bytes
        if self.ack_queued:
            return NO_STEP
        self.ack_queued = True
        return ACK_STEP

    def ack_sent(self) -> Ack:
        """Return the ack's row, which goes to the store now."""
        ack = Ack(self.live, self.worker, self.epoch, self.ack_n, self.ack_saved, self.ack_mark, self.ack_journal)
        # Forget the ack that is sent: if the store refuses it, later acks must not be merged with it.
        self.ack_queued, self.ack_n, self.ack_saved, self.ack_journal, self.ack_bytes = False, 0, None, None, 0
        self.ack_calls += 1
        return ack

    def ack_answered(self, ack: Ack, outcome: o.AckOutcome) -> Step:
        self.ack_calls -= 1
        if not self.ack_calls:
            self.newest = None
        if isinstance(outcome, o.Acked) and not outcome.ended:
            self.acked = max(self.acked, outcome.acked)
            return self.due() if self.at_window else NO_STEP
        if isinstance(outcome, o.Ahead):
            return NOTHING, self._ahead(ack.n, outcome.released)
        if isinstance(outcome, o.Gap | o.JournalFull):
            return NOTHING, self._journal_refused(outcome)
        if isinstance(outcome, o.Stale):
            return self._over(messages.Stale(self.live, self.epoch))
        return self._over(messages.Ended(self.live, self.epoch))

    def ack_failed(self, ack: Ack) -> Step:
        """Queue the ack again, because it is unknown whether it ran. Alone it is what it was: the store keeps no older
        state. Merged with the queued one, which may be the later or the earlier of both, it has the newest state of the
        items up to there, which may be on its way in another call."""
        self.ack_calls -= 1
        saved = ack.saved
        if self.ack_queued:
            if self.newest is not None and self.newest_n <= max(ack.n, self.ack_n):
                saved = self.newest
            elif self.ack_saved is not None and ack.n < self.ack_n:
                saved = None
        queued, self.ack_journal = self.ack_journal, None
        step = self.ack(ack.n, ack.mark, saved, ack.journal)
        if queued is not None:
            again = self.ack_journal
            self.ack_journal = queued if again is None else joined(*sorted((again, queued), key=FIRST))
        return step

    def _ahead(self, n: int, released: int) -> messages.Problem:
        """Return the problem for an ack of an item that was never released; such an ack has no effect."""
        detail = (
            f"{self.live} acked {n}, but only items up to {released} are released to generation {self.epoch} "
            f"({self.worker}); pull again"
        )
        return messages.Problem("AHEAD", detail, self.live, self.epoch)

    def _journal_refused(self, outcome: o.Gap | o.JournalFull) -> messages.Problem:
        """Return the problem for an ack whose journal the store did not take; such an ack has no effect."""
        if isinstance(outcome, o.Gap):
            detail = (
                f"the journal of {self.live} ends at entry {outcome.last}, and later entries are missing; pull again"
            )
            return messages.Problem("GAP", detail, self.live, self.epoch)
        detail = f"the journal of {self.live} would have {outcome.bytes} bytes or too many entries; write a shorter one"
        return messages.Problem("JOURNAL_FULL", detail, self.live, self.epoch)

    # -- the end

    def dropped(self) -> None:
        """Note that the Worker left, its connection is gone, or a later pull of the live was granted."""
        self.serving = GONE

    def _over(self, say: messages.Ended | messages.Stale) -> Step:
        self.serving = GONE
        return DROP, say

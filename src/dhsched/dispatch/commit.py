"""Committing: the one place from which a live gets its next generation.

Create, reassign, recover, drain, rebalance and forced moves differ in how they choose and in what they do afterwards.
Each of them builds an `Intent` and calls `commit`, which asks the store and then does the same for all of them:

- it counts the outcome and every candidate that was passed over,
- it corrects the fleet view by what the store answered,
- it remembers the choice, so that `why` explains it as it was made,
- it follows the new generation, so that its phases are measured.

A commit that must wait for a boundary and was asked too early (NOT_YET) decided nothing, and leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass

from dhsched.dispatch.context import DispatchContext, Remembered, retry_unknown
from dhsched.ownership import outcomes as o
from dhsched.ownership.steps.place import Create
from dhsched.placement import CANDIDATES_LIMIT, Choice, Won
from dhsched.types import Cause, Equals

NoFreeSlot = o.Full | o.Starting | o.Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One request to give a live its next generation.

    `choice` names the candidates; None where nobody may take the live, which the store then takes out of every line.
    `leave` is the Worker that the live is asked to leave, `holder` one that holds a slot for the live already: it has
    room for it even when it is full, and the live takes no other slot there.
    """

    live: str
    cause: Cause
    point: str  # Names the fail points around the store call.
    operation: str
    choice: Choice | None
    expected: int = 0
    create: Create | None = None
    leave: str = ""
    holder: str = ""
    at_boundary: bool = False

    @property
    def candidates(self) -> list[str | Equals]:
        """Whom the store asks, in this order. A holder is among them: the store's own search looks only for a free
        slot."""
        if self.choice is None:
            return []
        left_out = [self.leave]
        missing = bool(self.holder) and self.holder not in self.choice.candidates and self.holder != self.leave
        if missing and len(self.choice.candidates) == CANDIDATES_LIMIT:
            left_out.append(self.choice.candidates[-1])
        return [*self.choice.without(*left_out), *([self.holder] if missing else [])]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the store answered to an intent."""

    intent: Intent
    outcome: o.PlaceOutcome
    won: Won | None = None


async def commit(context: DispatchContext, intent: Intent) -> Attempt:
    """Ask the store for the live's next generation, until the outcome is known; then count, learn, remember, follow."""
    candidates, choice = intent.candidates, intent.choice
    pools = () if choice is None else choice.pools
    sent_rev = context.fleet.view.rev
    outcome = await retry_unknown(
        intent.point,
        lambda: context.store.place(
            live=intent.live,
            operation=intent.operation,
            cause=intent.cause,
            expected=intent.expected,
            create=intent.create,
            candidates=candidates,
            pools=pools,
            at_boundary=intent.at_boundary,
        ),
        until=context.until(),
    )
    if isinstance(outcome, o.NotYet):
        return Attempt(intent, outcome)
    took_slot = isinstance(outcome, o.Committed) and outcome.generation.worker != intent.holder
    context.fleet.learn(outcome, sent_rev=sent_rev, took_slot=took_slot)
    won = won_by(outcome, took_slot)
    context.metrics.count_place(intent.cause, type(outcome).__name__)
    if isinstance(outcome, o.Committed | NoFreeSlot):
        for refusal in outcome.refusals:
            context.metrics.refusals.labels(refusal.reason).inc()
        remember(context, intent, outcome, won)
    if isinstance(outcome, o.Committed) and not outcome.again:
        context.handoffs.follow(intent.live, outcome.generation.epoch, intent.cause)
    return Attempt(intent, outcome, won)


def won_by(outcome: o.PlaceOutcome, took_slot: bool) -> Won | None:
    """Where it was placed now; nobody knows any more what decided when it had been placed before."""
    if not isinstance(outcome, o.Committed) or outcome.again:
        return None
    return Won(outcome.generation.worker, outcome.load, took_slot)


def remember(context: DispatchContext, intent: Intent, outcome: o.Committed | NoFreeSlot, won: Won | None) -> None:
    """Keep the choice for `why`. One that was refused explains the generation in which the live stays."""
    if intent.choice is None or (isinstance(outcome, o.Committed) and outcome.again):
        return
    epoch = outcome.generation.epoch if isinstance(outcome, o.Committed) else intent.expected
    kept = Remembered(intent.choice, type(outcome).__name__, epoch, outcome.refusals, won)
    context.remember(intent.live, kept)

"""Recovery: look at the lives that are due on the agenda, and place anew those that need it (paper, 6.1 and 7.5).

The step `look` decides; this loop only carries its decision out. The live's score on the agenda is the lease: when a
replica dies after `look`, the live stays on the agenda, and another replica gets it when the lease runs out. The live's
Worker takes no part in the recovery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

import structlog
from msgspec import structs

from dhsched.blame_limits import Trouble
from dhsched.dispatch.commit import Intent, choose_candidates, commit
from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery.blame import blame
from dhsched.dispatch.recovery.silences import Silences
from dhsched.errors import StoreRefused
from dhsched.ownership import outcomes as o
from dhsched.ownership.items import read_dead_letter
from dhsched.placement import Choice
from dhsched.store.records.events import Value
from dhsched.store.records.lives import BeforeRecovery
from dhsched.types import Generation
from dhsched.web import Problem

log = structlog.get_logger(__name__)

DUE_MAX = 256  # Lives read from the agenda in one round; further ones wait for the next round.
STAGGER_S = 0.01  # A replica that is told of due lives waits up to this long, at random.
LOOKS_MAX = 16  # Lives in one call of `look`: the store serves nobody else meanwhile. Further ones go in another call.
CALLS_AT_ONCE = 3  # Calls whose lives are worked on at the same time; further ones of the round wait.
HERE_FIRST = ("vacant", "floor")
"""Needs for which the Worker itself is healthy: it has what the live needs, so it is the first candidate."""
BLAMES: Mapping[str, Trouble] = {"vacant": "crash", "stalled": "stall"}
"""Needs that count as a trouble of the Worker. A lost Worker was blamed when it was called lost."""


class Recovery:
    """The recovery loop of one replica."""

    def __init__(self, context: DispatchContext, silences: Silences) -> None:
        self._context = context
        self._silences = silences
        self._turns = asyncio.Semaphore(CALLS_AT_ONCE)
        self._one_round = asyncio.Lock()
        self._told = asyncio.Event()
        self._subscribed = False

    async def follow(self) -> None:
        """Wait until a step has made a live due, and do a round then, not after the period of rounds."""
        if not self._subscribed:
            store = self._context.store
            await store.link.subscribe(store.keys.of("due"), lambda _channel, _message: self._told.set())
            self._subscribed = True
        await self._told.wait()
        # Every replica is told: whoever comes a little later finds fewer lives that another one has begun with.
        await asyncio.sleep(self._context.rng.uniform(0.0, STAGGER_S))
        self._told.clear()
        await self.round()

    async def round(self) -> None:
        async with self._one_round:
            lives = await self._context.records.lives.due(DUE_MAX)
            # Every replica reads the same list; a random order lets them find fewer lives leased by another replica.
            self._context.rng.shuffle(lives)
            await self.look(lives)

    async def look(self, lives: Sequence[str]) -> None:
        """Look at lives, and recover those of which the store answers that they need to be placed anew."""
        await asyncio.gather(*(self._look(lives[n : n + LOOKS_MAX]) for n in range(0, len(lives), LOOKS_MAX)))

    async def _look(self, lives: Sequence[str]) -> None:
        """Look at the lives of one call. A live whose keys are damaged must not affect others: then each is alone."""
        async with self._turns:
            try:
                outcomes = await self._context.store.look_soon(lives)
            except StoreRefused as error:
                if len(lives) == 1 or not error.half_way:
                    raise
                outcomes = await asyncio.gather(*(self._look_alone(live) for live in lives))
            await asyncio.gather(*(map(self._carry_out, lives, outcomes)))

    async def _look_alone(self, live: str) -> o.LookOutcome:
        try:
            [outcome] = await self._context.store.look_soon([live])
        except StoreRefused as error:
            log.error("cannot look at a live whose keys are damaged", live=live, reason=str(error))
            return o.Nothing()
        return cast(o.LookOutcome, outcome)

    async def _carry_out(self, live: str, outcome: o.LookOutcome) -> None:
        self._context.metrics.looks.labels(type(outcome).__name__).inc()
        if isinstance(outcome, o.Recover):
            await self.recover(live, outcome)
        elif isinstance(outcome, o.LifetimeOver):
            self._context.events.say("live_expired", live=live, reason=outcome.reason, state=outcome.state)

    async def recover(self, live: str, work: o.Recover) -> o.PlaceOutcome:
        """Place one live anew: on another Worker, or on its own again if that Worker is healthy. Return the outcome."""
        context = self._context
        before = await context.records.lives.before_recovery(live, work.worker)
        reason = await context.fleet.unplaceable(work.digital_id)
        request = await context.fleet.request(work.digital_id)
        if reason or request is None:
            return await self._unplaceable(live, work, before, reason)
        here_first = work.need in HERE_FIRST
        if (trouble := BLAMES.get(work.need)) is not None and work.tries == 1:
            # A live that had this trouble here before, within the window, is placed elsewhere: it may be the machine.
            again = await blame(context, work.worker, trouble, live)
            here_first = here_first and not again
        asking = structs.replace(
            request,
            first=work.worker if here_first else None,
            last=None if here_first else work.worker,
            avoid=request.avoid | self._silences.overdue,
        )
        try:
            choice = choose_candidates(context, asking)
        except Problem as problem:
            return await self._unplaceable(live, work, before, problem.detail)
        intent = self._intent(live, work, choice)
        outcome = (await commit(context, intent)).outcome
        match outcome:
            case o.Committed(generation=generation, again=False):
                if before.forgot:
                    context.events.say("live_repaired", live=live, worker=generation.worker, source=work.worker)
                self._say_recovered(live, work, generation, intent.operation, before)
            case o.Full() | o.Starting() if not before.waited_in:
                pools = list(choice.pools)
                context.events.say("live_waiting", live=live, worker=work.worker, need=work.need, pools=pools)
            case _:
                pass  # Another replica was faster, or the need is gone: the agenda has what is left to do.
        if before.suspect and isinstance(outcome, o.Committed | o.Ended):
            await self._say_poison(live, work, before)
        return outcome

    def _intent(self, live: str, work: o.Recover, choice: Choice | None) -> Intent:
        return Intent(
            live=live,
            cause="recover",
            point="recover",
            operation=self._context.operation(),
            choice=choice,
            expected=work.epoch,
            holder=work.worker,
        )

    async def _unplaceable(self, live: str, work: o.Recover, before: BeforeRecovery, reason: str) -> o.PlaceOutcome:
        """Commit without candidates, because the configuration lets no Worker take the live. The live stays on the
        agenda, and the store removes it from every waiting line, where it would only keep others waiting."""
        context = self._context
        outcome = (await commit(context, self._intent(live, work, None))).outcome
        if isinstance(outcome, o.Full) and (work.tries == 1 or before.waited_in):
            context.events.say("live_unplaceable", live=live, worker=work.worker, reason=reason)
        if before.suspect and isinstance(outcome, o.Ended):
            await self._say_poison(live, work, before)
        return outcome

    # -- events

    def _say_recovered(
        self, live: str, work: o.Recover, generation: Generation, operation: str, before: BeforeRecovery
    ) -> None:
        numbers: dict[str, Value] = {
            "need": work.need,
            "source": work.worker,
            "epoch": generation.epoch,
            "operation": operation,
            "tries": work.tries,
        }
        if before.lost_at_ms and work.need == "lost":
            numbers["lost_at_ms"] = before.lost_at_ms
        if not before.waited_in:
            self._context.events.say("live_recovered", live=live, worker=generation.worker, **numbers)
            return
        if before.waits_since_ms:
            numbers["waiting_since_ms"] = before.waits_since_ms
        self._context.events.say("live_recovered_after_waiting", live=live, worker=generation.worker, **numbers)

    async def _say_poison(self, live: str, work: o.Recover, before: BeforeRecovery) -> None:
        dropped, last = await self._context.records.lives.poison(live)
        if dropped > before.poisoned:
            numbers: dict[str, Value] = {"items": dropped - before.poisoned, "dropped": dropped}
            if last:
                numbers["reason"] = read_dead_letter(last)[1]
            self._context.events.say("poison_dropped", live=live, worker=work.worker, **numbers)

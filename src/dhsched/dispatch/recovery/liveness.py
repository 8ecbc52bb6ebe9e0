"""Liveness: a Worker whose beat stands still is called lost (docs/internals/protocol.md, table c; paper, 7.5).

Every report of a Worker moves its beat. A replica that has read the same beat for `worker_ttl_s` of its own monotonic
clock, without a gap between reads, calls `expire_worker`, which the store refuses if the beat has moved since. No clock
of the store or of another machine is compared, so no Worker is lost because the store was paused, a clock was set or a
replica stood still: after a gap, every wait starts anew. Waits also start anew when the store refuses a report (a full
disk). A Worker that closed its link without Exit has `HUNG_UP_S` instead of `worker_ttl_s`; its beat is read at once,
and again exactly then. Beats cannot be read while the cell's slot is being moved, when reports wait or are refused.

When many Workers fall silent together, a fault between them and the replica is more likely. Then the brake is on: the
replica waits one more `worker_ttl_s`, and after that expires a few Workers at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery.blame import blame
from dhsched.dispatch.recovery.silences import Silences
from dhsched.errors import StoreError
from dhsched.ownership import outcomes as o
from dhsched.store.records.workers import Beat
from dhsched.tasks import is_set_within

GAP_S = 1.0  # When two reads are further apart, every wait starts anew: nothing is known of the time in between.
TOGETHER_SHARE = 0.1  # When more than this share of the fleet, and more than one Worker, is overdue, the brake is on.
BRAKE_MARK_MS = 60_000  # A mark of the brake that no replica renews for this long is deleted.
TOLD_S = 0.02  # Between two readings that were asked for because Workers closed their links.
MARGIN_S = 0.002  # A timer may go off this much too early.
HUNG_UP_S = 1.0  # A Worker that closed its link and does not report for this long is overdue.


@dataclass(frozen=True, slots=True)
class Silence:
    """The beat that was last read of a Worker, and since when the Worker has had this beat."""

    beat: int
    since: float


@dataclass(frozen=True, slots=True)
class Watch:
    """The readings of a replica so far. All times are of its own monotonic clock."""

    read_at: float | None = None
    silent: Mapping[str, Silence] = field(default_factory=dict)
    braked_since: float | None = None
    last_expired: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The Workers to call lost now, with their beats; and how many are overdue while the brake is on."""

    expire: tuple[tuple[str, int], ...]
    braked: int = 0
    silent: frozenset[str] = frozenset()
    """Workers that would be lost by now without the brake: they should get no new lives."""


def judge(
    watch: Watch, beats: Mapping[str, Beat], *, now: float, ttl_s: float, hung_up: Mapping[str, int] | None = None
) -> tuple[Watch, Verdict]:
    """Take one reading of all beats; return the new watch, and which Workers have been silent for too long.

    `hung_up` has the Workers that closed their link, with their beat at that time.
    """
    away = hung_up or {}
    gap = watch.read_at is None or now - watch.read_at > GAP_S
    silences = {
        worker: known if known is not None and known.beat == seen.beat and not gap else Silence(seen.beat, now)
        for worker, seen in beats.items()
        if not seen.lost
        for known in (watch.silent.get(worker),)
    }
    watch = replace(watch, read_at=now, silent=silences)
    overdue = sorted(
        (worker, silence.beat)
        for worker, silence in silences.items()
        if now - silence.since >= (min(ttl_s, HUNG_UP_S) if silence.beat <= away.get(worker, -1) else ttl_s)
    )
    few = max(1, int(len(silences) * TOGETHER_SHARE))
    if len(overdue) <= few:
        return replace(watch, braked_since=None), Verdict(tuple(overdue))
    silent = frozenset(worker for worker, _ in overdue)
    since = watch.braked_since if watch.braked_since is not None else now
    watch = replace(watch, braked_since=since)
    if now - since < ttl_s or now - watch.last_expired < 1.0:
        return watch, Verdict((), len(overdue), silent)
    return replace(watch, last_expired=now), Verdict(tuple(overdue[:few]), len(overdue), silent)


def next_overdue(watch: Watch, hung_up: Mapping[str, int]) -> float | None:
    """Return when the next Worker that closed its link will be overdue; None if the last reading judged them all."""
    silences = [(watch.silent.get(worker), beat) for worker, beat in hung_up.items()]
    times = [known.since + HUNG_UP_S for known, beat in silences if known is not None and known.beat <= beat]
    return min((at for at in times if watch.read_at is not None and at > watch.read_at), default=None)


class Liveness:
    """The liveness loop of one replica: read all beats, judge, expire the Workers that are lost."""

    def __init__(self, context: DispatchContext, silences: Silences) -> None:
        self._context = context
        self._silences = silences
        self._watch = Watch()
        self._braked = False
        self._one_round = asyncio.Lock()

    async def follow(self) -> None:
        """Wait until a Worker closes its link; read beats then, and once more when the Worker is overdue."""
        silences, now = self._silences, self._context.loop_time
        await silences.told.wait()
        at: float | None = now()
        while at is not None:
            # Not at once: Workers that come and go all the time must not make this replica read all the time.
            await asyncio.sleep(TOLD_S)
            # If another one closes its link, the beat of that Worker is read at once.
            await is_set_within(min(max(0.0, at - now() + MARGIN_S), GAP_S / 2), silences.told)
            silences.told.clear()
            await self.round()
            at = next_overdue(self._watch, silences.hung_up)

    async def round(self) -> None:
        async with self._one_round:
            await self._round()

    async def _round(self) -> None:
        context, silences = self._context, self._silences
        beats = await context.records.workers.beats()
        now = context.loop_time()
        if silences.refused_at > (self._watch.read_at or now):
            self._watch = Watch()
        self._watch, verdict = judge(
            self._watch, beats, now=now, ttl_s=context.settings.worker_ttl_s, hung_up=silences.hung_up
        )
        silences.overdue = verdict.silent
        await self._brake(verdict.braked, len(beats))
        for worker, beat in verdict.expire:
            try:
                outcome = await context.store.expire_worker(worker=worker, beat=beat)
            except StoreError:
                self._watch = Watch()
                raise
            if isinstance(outcome, o.Expired):
                context.metrics.lost.inc()
                silent_s = round(now - self._watch.silent[worker].since, 3)
                context.events.say("worker_lost", worker=worker, beat=beat, silent_s=silent_s, lives=outcome.lives)
                await blame(context, worker, "loss", f"{worker} {beat}")
        for worker, beat in list(silences.hung_up.items()):
            if (known := self._watch.silent.get(worker)) is None or known.beat > beat:
                del silences.hung_up[worker]  # The Worker has reported through another replica since, or is gone.

    async def _brake(self, silent: int, workers: int) -> None:
        """Write one event when the brake goes on and one when it goes off, although each replica has its own brake."""
        context, fleet, before = self._context, self._context.records.fleet, self._braked
        self._braked = bool(silent)
        context.metrics.braked.set(silent)
        if silent and before:
            await fleet.keep_brake_marked(BRAKE_MARK_MS)
        elif silent:
            if await fleet.mark_brake(context.replica, BRAKE_MARK_MS):
                context.events.say("brake_on", silent=silent, workers=workers)
        elif before and await fleet.unmark_brake():
            context.events.say("brake_off", workers=workers)

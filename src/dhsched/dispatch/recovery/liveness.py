"""Liveness: a Worker whose beat stands still is called lost (docs/internals/protocol.md, table c; paper, 7.5).

Every report of a Worker moves its beat. A replica that has read the same beat for `worker_ttl_s` of its own monotonic
clock, through reads without a gap, says so to the store, which refuses if the beat has moved since. No clock of the
store or of another machine is compared, so a store that was paused, a clock that was set and a replica that stood
still kill nobody: after a gap, every wait starts anew. The same holds while the store refuses to write, with a full
disk or a slot that is being moved for instance: it answers our reads, and takes nobody's report.

When many Workers fall silent together it is more likely that something between us and them broke. Then the brake is
on: one more `worker_ttl_s`, and after that a few at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dhsched.dispatch.context import DispatchContext
from dhsched.dispatch.recovery.blame import blame
from dhsched.dispatch.recovery.silences import Silences
from dhsched.errors import StoreError
from dhsched.ownership import outcomes as o
from dhsched.store.records.workers import Beat

GAP_S = 1.0  # Between two reads; past it nothing is known of the time in between.
TOGETHER_SHARE = 0.1  # More than this share of the fleet, and more than one, at once: the brake.
BRAKE_MARK_MS = 60_000  # For which the brake counts as on after the last word of a replica that has it on.
HUNG_UP_S = 1.0  # A Worker that closed its link and says nothing is given this long.


@dataclass(frozen=True, slots=True)
class Silence:
    """The beat we last read of a Worker, and since when it has been that."""

    beat: int
    since: float


@dataclass(frozen=True, slots=True)
class Watch:
    """What a replica has seen so far. All times are of its own monotonic clock."""

    read_at: float | None = None
    silent: Mapping[str, Silence] = field(default_factory=dict)
    braked_since: float | None = None
    last_expired: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whom to call lost now, and whether the brake is on."""

    expire: tuple[tuple[str, int], ...]
    braked: int = 0
    silent: frozenset[str] = frozenset()
    """Who would be lost by now, but for the brake: nothing new should go there."""


def judge(
    watch: Watch, beats: Mapping[str, Beat], *, now: float, ttl_s: float, hung_up: Mapping[str, int] | None = None
) -> tuple[Watch, Verdict]:
    """Take one reading of all beats; who has been silent for too long? `hung_up` has the beat at which they did."""
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


class Liveness:
    """The loop: read, judge, say so."""

    def __init__(self, context: DispatchContext, silences: Silences) -> None:
        self._context = context
        self._silences = silences
        self._watch = Watch()
        self._braked = False

    async def round(self) -> None:
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
            known = self._watch.silent.get(worker)
            if known is None or known.beat > beat:
                del silences.hung_up[worker]  # It has reported since, through another replica, or it is gone.

    async def _brake(self, silent: int, workers: int) -> None:
        """Say once that the brake is on, and once that it is off, although every replica has a brake of its own."""
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

"""Safety checks on the store's records: a Worker with more slots than its capacity, a live with two owners. The steps
make both impossible; the check proves it in production, and its metrics must stay 0."""

from __future__ import annotations

from dataclasses import dataclass

from dhsched.store.records import Records
from dhsched.store.records.replicas import SafetyCounts
from dhsched.types import WITH_RUNTIME, slot_tag, split_tag


@dataclass(frozen=True, slots=True)
class Violations:
    """The violations found on one Worker; false when there are none."""

    overshoot: int = 0  # Slots beyond the capacity.
    dual_owners: tuple[str, ...] = ()  # Tags of slots with a runtime, of lives whose current generation is another.

    def __bool__(self) -> bool:
        return bool(self.overshoot or self.dual_owners)


async def violations(records: Records, worker: str) -> Violations:
    """Return the violations of one Worker. The reads are not one step, so only a tag that is owned both before and
    after its live was read counts: a number is never used twice, hence such a tag was owned in between."""
    if (before := await records.workers.get(worker)) is None:
        return Violations()
    record, slots = before
    owned = {tag for tag, state in slots.items() if state in WITH_RUNTIME}
    overshoot = max(0, len(slots) - record.capacity)
    current = await records.lives.generations(sorted({split_tag(tag)[0] for tag in owned}))
    elsewhere = owned - {slot_tag(live, each.epoch) for live, each in current.items() if each.worker == worker}
    if not elsewhere:
        return Violations(overshoot)
    after = await records.workers.get(worker)
    still = {} if after is None else after[1]
    return Violations(overshoot, tuple(sorted(tag for tag in elsewhere if still.get(tag) in WITH_RUNTIME)))


@dataclass(slots=True)
class SafetyTotals:
    """What this replica has found since it started. `checked_at` is when it last looked, by its own clock."""

    drift: int = 0
    overshoots: int = 0
    dual_owners: int = 0
    workers: int = 0
    checked_at: float | None = None

    def counts(self, now: float) -> SafetyCounts:
        """Return the totals as a report has them."""
        ago_ms = None if self.checked_at is None else round(1000 * max(0.0, now - self.checked_at))
        return SafetyCounts(self.drift, self.overshoots, self.dual_owners, self.workers, ago_ms)

"""What must never be, looked for in the store itself: a Worker with more slots than it can hold, a live with two
owners. The steps make both impossible; a figure that is always 0 is worth more when somebody looks."""

from __future__ import annotations

from dataclasses import dataclass

from dhsched.store.records import Records
from dhsched.store.records.lives import LiveRow
from dhsched.types import WITH_RUNTIME, split_tag


@dataclass(frozen=True, slots=True)
class Violations:
    """What one look at one Worker found."""

    overshoot: int = 0  # Slots beyond the capacity.
    dual_owners: tuple[str, ...] = ()  # Tags that it owns, of lives whose generation is another one.

    def __bool__(self) -> bool:
        return bool(self.overshoot or self.dual_owners)


async def violations(records: Records, worker: str) -> Violations:
    """Look at one Worker. The reads are not one step, so only what stood before and after the live was read counts:
    a number is never used twice, hence a tag that is owned at both ends was owned in between."""
    before = await records.workers.get(worker)
    if before is None:
        return Violations()
    record, slots = before
    owned = {tag for tag, state in slots.items() if state in WITH_RUNTIME}
    overshoot = max(0, len(slots) - record.capacity)
    rows = {row.live: row for row in await records.lives.rows(sorted({split_tag(tag)[0] for tag in owned}))}
    elsewhere = {tag for tag in owned if _elsewhere(tag, worker, rows)}
    if not elsewhere:
        return Violations(overshoot)
    after = await records.workers.get(worker)
    still = {} if after is None else after[1]
    return Violations(overshoot, tuple(sorted(tag for tag in elsewhere if still.get(tag) in WITH_RUNTIME)))


def _elsewhere(tag: str, worker: str, rows: dict[str, LiveRow]) -> bool:
    live, number = split_tag(tag)
    row = rows.get(live)
    return row is None or (row.worker, row.epoch) != (worker, number)

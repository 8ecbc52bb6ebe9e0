"""Counts what a generation's death is blamed on: the item at the head, or the configuration.

docs/internals/protocol.md, table d. Both are counted at the commit of the next generation, by a recovery only, and only
where the store itself is not at fault. A dropped item or configuration is kept among the dead letters.
"""

from __future__ import annotations

from dhsched.ownership import items
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import Limits
from dhsched.ownership.needs import needs
from dhsched.ownership.state import Live
from dhsched.types import Cause


def blames(s: Draft, live: str, cause: Cause) -> bool:
    """Return whether this commit counts against the input: it is a recovery, and not the store's fault."""
    return cause == "recover" and needs(s, live) != "floor" and not s.lives[live].forgot


def deaths(record: Live) -> int:
    """Return how many generations have died so far while they had the item at the head."""
    return record.suspect[1] if record.suspect and record.suspect[0] == record.acked + 1 else 0


def poisoned(record: Live, limits: Limits) -> bool:
    """Return whether one more generation that dies with the item at the head gets the item dropped."""
    return record.released > record.acked and deaths(record) + 1 >= limits.poison_max


def closes_with(record: Live) -> bool:
    """Return whether the item at the head is all that a closing live still waits for."""
    return record.state == "closing" and record.appended == record.acked + 1


def died_of(s: Draft, live: str) -> str:
    """Return what the current generation died of: its Worker's reason, else why it needs a new one."""
    return s.lives[live].current.reason or needs(s, live) or ""


def blame_head(s: Draft, live: str, reason: str, lost: str) -> None:
    """Count a generation that was lost with input against its first item, which is dropped at `poison_max`.

    `lost` names the generation if its Worker is only silent: if that Worker reports again, the count is taken back.
    """
    record = s.lives[live]
    if poisoned(record, s.limits):
        drop_poison(s, live, reason)
        return
    before = record.blamed if deaths(record) else ()
    s.set_live(live, suspect=(record.acked + 1, deaths(record) + 1), blamed=(*before, *([lost] if lost else [])))


def take_back(s: Draft, worker: str) -> None:
    """Take back the counts of generations that were taken from this Worker: it was only silent, so none has died."""
    for live, number, slot in s.table(worker):
        record = s.lives.get(live)
        own = f"{worker}@{number}"
        if slot == "departing" and record is not None and own in record.blamed:
            head, count = record.suspect or (0, 1)
            kept = tuple(each for each in record.blamed if each != own)
            s.set_live(live, blamed=kept, suspect=(head, count - 1) if count > 1 else None)


def drop_poison(s: Draft, live: str, reason: str) -> None:
    record = s.lives[live]
    s.set_live(
        live,
        acked=record.acked + 1,
        acked_mark=items.mark_of(record.pending[0]),
        pending=record.pending[1:],
        dropped_poison=record.dropped_poison + 1,
        suspect=None,
        dead=(*record.dead, items.dead_letter(record.pending[0], reason))[-s.limits.dead_max :],
    )


def fall_back(s: Draft, live: str, reason: str) -> None:
    """Replace a configuration with which generation after generation died before its first ack by the one before.

    The replaced configuration is kept among the dead letters.
    """
    record = s.lives[live]
    if record.fallback is None:
        return
    letter = items.dead_letter(items.stored("config", record.config, False), reason)
    s.set_live(live, config=record.fallback, fallback=None, dead=(*record.dead, letter)[-s.limits.dead_max :])

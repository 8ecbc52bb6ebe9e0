"""The judge of a run with a hostile Worker and a hostile viewer: what is not their own does not change by their doing.

`Judge` looks at every step that the store ran; `of_others` is what must be the same before and after the hostile side
was alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dhsched.ownership.state import Live, State, Worker
from dhsched.types import name_of
from tests.chaos.hostile_values import EVIL, is_hostile, is_lent
from tests.chaos.trace import Taken
from tests.harness.hammer import as_text

WORKERS_OWN = frozenset({"report", "depart", "pull", "release_input", "ack_input", "emit"})
"""Steps that are made for the Worker that they name, because it asked for them."""


class HostileJudge:
    """`said_to` is the one live that the hostile viewer may type into."""

    def __init__(self, said_to: str = "") -> None:
        self.steps = 0
        self._said_to = said_to

    def take(self, taken: Taken, before: State, after: State) -> Iterator[str]:
        """Complaints about one step."""
        worker, live = str(taken.arguments.get("worker", "")), str(taken.arguments.get("live", ""))
        if is_hostile(worker) and taken.step in WORKERS_OWN:
            self.steps += 1
            yield from changed_of_others(taken.step, worker, before, after)
        elif marked(taken) and not self._rightful(taken, worker, live):
            yield f"what the hostile side sent was taken as another's: {taken.step} {taken.arguments}"
        if taken.step == "register_worker" and is_hostile(str(getattr(taken.answer, "worker", ""))):
            self.steps += 1
            yield from changed_of_others(taken.step, taken.answer.worker, before, after, same_name=True)
        if live and not is_lent(live):
            record = after.lives.get(live)
            if record is not None and is_hostile(record.selected):
                yield f"{live} is on {record.selected}, where it must never be"

    def _rightful(self, taken: Taken, worker: str, live: str) -> bool:
        """Whether a mark of the hostile side may be in this step: the viewer's text in its own live, a name that is
        registered in vain, what a place or a look repeats of a live that is lent."""
        if taken.step == "append_input":
            return live == self._said_to
        if taken.step == "register_worker":
            return is_hostile(f"{taken.arguments['name']}#1")
        return not worker and is_lent(live)


def marked(taken: Taken) -> bool:
    said = {name: value for name, value in taken.arguments.items() if name not in ("live", "through")}
    return EVIL in str(as_text(said))


def changed_of_others(step: str, worker: str, before: State, after: State, *, same_name: bool = False) -> Iterator[str]:
    """What a step of this Worker has changed of others: their lives, their slots, themselves. `same_name`: a new boot
    ends earlier ones of its name."""

    def own(other: str) -> bool:
        return other == worker or (same_name and name_of(other) == name_of(worker))

    if before.lives is not after.lives:
        for live, record in after.lives.items():
            was = before.lives.get(live)
            if record is was or record == was:
                continue
            if was is None or not (woken(was, record) or has(before, live, own)):
                yield f"{step} of {worker} changed {live}, which is on {record.selected}"
    lives = {live for live, record in before.lives.items() if own(record.selected)}
    given_back = set[str]()  # Workers with a slot that was reserved for a live of this Worker.
    for other in before.slots.keys() | after.slots.keys():
        old, new = before.slots.get(other, {}), after.slots.get(other, {})
        if not own(other) and old != new:
            changed = {tag for tag in old.keys() | new.keys() if old.get(tag) != new.get(tag)}
            given_back.add(other)
            if any(tag.rpartition("@")[0] not in lives for tag in changed):
                yield f"{step} of {worker} changed the slots of {other}"
    sources = Counter(record.selected for record in before.lives.values() if record.move and own(record.move.target))
    for other in before.workers.keys() | after.workers.keys():
        boot, now = before.workers.get(other), after.workers.get(other)
        if own(other) or boot == now:
            continue
        if boot is not None and now is not None and 0 < boot.cutovers - now.cutovers <= sources[other]:
            # What was reserved on this Worker is given back, and the source has so many moves less.
            boot = replace(boot, cutovers=now.cutovers)
            if boot == now:
                continue
        if other not in given_back or boot is None or now is None or standing(boot) != standing(now):
            yield f"{step} of {worker} changed the workers of {other}"


def standing(record: Worker) -> tuple[Any, ...]:
    """What does not follow from a Worker's slots."""
    return record.boot, record.pool, record.capacity, record.mode, record.lost, record.gone, record.beat


def woken(was: Live, record: Live) -> bool:
    """Whether the live waits for a free slot, and was told to try again: a Worker that takes lives or gives them back
    makes place for others, in its own Pool and in those that its lives waited for."""
    return bool(was.waits) and record == replace(was, tries=0)


def has(before: State, live: str, own: Any) -> bool:
    """Whether the live is on the Worker, or has a slot there."""
    slots = (tag for each, table in before.slots.items() if own(each) for tag in table)
    return own(before.lives[live].selected) or any(tag.rpartition("@")[0] == live for tag in slots)


# -- alone


def of_others(state: State, viewed: str) -> dict[str, Any]:
    """All that belongs to others: what is the same before and after, if only the hostile side did something. Into the
    live `viewed` the hostile viewer may type: of this live it is the generation."""
    found: dict[str, Any] = {}
    for live, record in state.lives.items():
        if not is_lent(live) and record.state != "ended":
            # A look notes by itself what it has seen of the input.
            found[live] = replace(record, seen=(0, 0)) if live != viewed else record.generation
    for worker, boot in state.workers.items():
        if not is_hostile(worker) and not boot.gone:
            found[worker] = (boot.boot, boot.pool, boot.capacity, boot.mode)
            for tag, slot in state.slots.get(worker, {}).items():
                if not is_lent(tag.rpartition("@")[0]):
                    found[f"{worker} {tag}"] = slot
    return found


def compare(before: dict[str, Any], after: dict[str, Any], lost: set[str]) -> Iterator[str]:
    """What has changed, but for what follows from the loss of Workers that were too slow for their own sake."""
    moved = {name for name, was in before.items() if isinstance(was, Live) and was.selected in lost}
    for name in sorted(before.keys() | after.keys()):
        of_lost = name in moved or name.partition(" ")[0] in lost or name.partition(" ")[2].rpartition("@")[0] in moved
        if before.get(name) != after.get(name) and not of_lost:
            yield f"{name} changed while the hostile side was alone: {before.get(name)} became {after.get(name)}"

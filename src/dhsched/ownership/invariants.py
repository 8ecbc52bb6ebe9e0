"""I0-I8 of docs/internals/protocol.md as predicates. Each returns the violations it sees, as sentences; none is good.

`of_state` checks one state, `of_step` a step, `of_agents` the runtimes, `Releases` a recorded trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from dhsched.ownership.agent import Agent
from dhsched.ownership.draft import Draft
from dhsched.ownership.limits import DEFAULT_LIMITS
from dhsched.ownership.needs import needs
from dhsched.ownership.state import State
from dhsched.ownership.steps.emit import read_emit
from dhsched.types import slot_tag


def of_state(state: State) -> list[str]:
    """Return every violation that one state shows by itself."""
    return [
        *capacity(state),
        *current_slot(state),
        *cursors(state),
        *nothing_forgotten(state),
        *counters(state),
        *moves(state),
        *messages(state),
    ]


def capacity(state: State) -> Iterator[str]:
    for worker, table in state.slots.items():
        if len(table) > state.workers[worker].capacity:
            yield f"I4: {worker} holds {len(table)} slots of {state.workers[worker].capacity}"


def current_slot(state: State) -> Iterator[str]:
    owned = set()
    for live, record in state.lives.items():
        if record.state == "ended":
            continue
        slot = state.slots.get(record.selected, {}).get(slot_tag(live, record.epoch))
        owned.add((record.selected, slot_tag(live, record.epoch)))
        if slot not in ("starting", "running", "vacant"):
            yield f"I5: {live} is at {record.generation}, whose slot is {slot}"
        if (slot == "running") != (record.active is not None):
            yield f"I5: {live} is active on {record.active} with slot {slot}"
        if record.active not in (None, record.selected):
            yield f"I2: {live} is active on {record.active}, selected {record.selected}"
    for worker, table in state.slots.items():
        for tag, slot in table.items():
            if slot in ("starting", "running", "vacant") and (worker, tag) not in owned:
                yield f"I5: {worker} has {tag} {slot}, which no live owns"


def cursors(state: State) -> Iterator[str]:
    for live, record in state.lives.items():
        if not 0 <= record.acked <= record.released <= record.appended:
            yield f"I6: {live} acked {record.acked}, released {record.released}, appended {record.appended}"
        if len(record.pending) != record.appended - record.acked:
            yield f"I6: {live} has {len(record.pending)} pending, {record.appended} - {record.acked} expected"
        slot = state.slots.get(record.selected, {}).get(slot_tag(live, record.epoch))
        if slot == "starting" and record.released > record.acked:
            yield f"I6: {live} is unclaimed, acked {record.acked} and released {record.released}"
        if record.dropped > record.acked:
            yield f"I6: {live} dropped {record.dropped} of {record.acked} settled"


def nothing_forgotten(state: State) -> Iterator[str]:
    s = Draft(state, 0, DEFAULT_LIMITS)
    for live, record in state.lives.items():
        need = needs(s, live)
        due = (
            "is ended"
            if record.state == "ended"
            else f"needs recovery ({need})"
            if need not in (None, "floor")
            else "is unclaimed"
            if record.active is None
            else "has a move"
            if record.move
            else "has pending input"
            if record.pending
            else "has a lifetime"
            if record.state == "open" and (record.idle_ms or record.max_ms)
            else None
        )
        if due and live not in state.agenda.get(record.priority, {}) and need != "floor":
            yield f"I7: {live} {due} and is on no agenda"
    for live in sorted(state.listed ^ state.lives.keys()):
        yield f"I7: {live} {'is not listed' if live in state.lives else 'is listed and does not exist'}"
    for live in sorted(state.ended ^ {live for live, record in state.lives.items() if record.state == "ended"}):
        yield f"I7: {live} {'is listed as ended and has not' if live in state.ended else 'ended and is not listed so'}"
    for number, entries in state.agenda.items():
        for live in entries:
            if live not in state.lives or state.lives[live].priority != number:
                yield f"I7: agenda {number} names {live}, which is not of that class"


def counters(state: State) -> Iterator[str]:
    """Recount every difference that the writers keep from the raw tables, and yield what differs."""
    for worker, record in state.workers.items():
        table = state.slots.get(worker, {})
        starting = sum(slot == "starting" for slot in table.values())
        cutovers = sum(1 for live in state.lives.values() if live.move and live.selected == worker)
        if (record.load, record.starting, record.cutovers) != (len(table), starting, cutovers):
            yield (
                f"{worker} counts load {record.load}, starting {record.starting}, cutovers {record.cutovers};"
                f" recounted {len(table)}, {starting}, {cutovers}"
            )
        if state.free.get(record.pool, {}).get(worker) != record.free_score:
            yield f"free:{record.pool} is wrong about {worker}"
    for worker in state.slots:
        if worker not in state.workers:
            yield f"slots of unknown Worker {worker}"
    waits = {(pool, live) for live, record in state.lives.items() for pool in record.waits}
    listed = {(pool, live) for pool, entries in state.waiting.items() for live in entries}
    if waits != listed:
        yield f"waiting and lives disagree: {sorted(waits ^ listed)}"


def moves(state: State) -> Iterator[str]:
    """Check that each move has its one reserved slot, and each reserved slot its move."""
    wanted = {
        (record.move.target, slot_tag(live, record.move.number)) for live, record in state.lives.items() if record.move
    }
    found = {(w, tag) for w, table in state.slots.items() for tag, slot in table.items() if slot == "reserved"}
    if wanted != found:
        yield f"moves and reserved slots disagree: {sorted(wanted ^ found)}"


def messages(state: State) -> Iterator[str]:
    """Check I8: the messages that are kept are in order, and none is of a generation that was never current."""
    for live, record in state.lives.items():
        kept = [read_emit(each)[:2] for each in record.emits]
        if any(one >= other for one, other in pairwise(kept)) or (kept and kept[-1] != record.emitted):
            yield f"I8: {live} has messages {kept}, the last of which is {record.emitted}"
        if record.emitted[0] > record.epoch:
            yield f"I8: {live} has a message of {record.emitted[0]}, and is at {record.epoch}"


def of_step(before: State, after: State) -> list[str]:
    """Check I0, I1, I6 and I8 across one step: numbers only grow, an epoch has one Worker, its cursors never go back,
    and messages are of the current generation."""
    found = []
    for live, old in before.lives.items():
        new = after.lives.get(live)
        if new is None:
            if after.cell.epoch_base < old.issued:
                found.append(f"I0: {live} was swept at {old.issued}, base {after.cell.epoch_base}")
            continue
        if new.epoch < old.epoch or new.issued < old.issued or new.epoch > new.issued:
            found.append(f"I0: {live} went from {old.epoch}/{old.issued} to {new.epoch}/{new.issued}")
        if new.epoch == old.epoch and new.selected != old.selected:
            found.append(f"I1: {live} epoch {new.epoch} is of {old.selected} and {new.selected}")
        if new.epoch == old.epoch and (new.released < old.released or new.acked < old.acked):
            cursors_then, cursors_now = (old.released, old.acked), (new.released, new.acked)
            found.append(f"I6: {live} epoch {new.epoch} went back from {cursors_then} to {cursors_now}")
        if new.emitted < old.emitted or (new.emitted != old.emitted and new.emitted[0] != old.epoch):
            found.append(f"I8: {live} at {old.epoch} went from message {old.emitted} to {new.emitted}")
    for live, new in after.lives.items():
        if live not in before.lives and new.epoch <= before.cell.epoch_base:
            found.append(f"I0: {live} was created at {new.epoch}, base {before.cell.epoch_base}")
    return found


def old_work(before: State, after: State, live: str, epoch: int) -> list[str]:
    """Check I3 and I8: a step that carries an old epoch changes no ownership and stores no message."""
    old, new = before.lives.get(live), after.lives.get(live)
    if old is None or new is None or epoch >= old.epoch:
        return []
    if (old.epoch, old.selected, old.active) != (new.epoch, new.selected, new.active):
        return [f"I3: work of epoch {epoch} moved {live} from {old.generation} to {new.generation}"]
    if old.emits != new.emits:
        return [f"I8: a message of epoch {epoch} was stored, and {live} is at {old.generation}"]
    return []


def of_agents(agents: Mapping[str, Agent]) -> list[str]:
    """Check I4, the half that matters to a GPU: runtimes, stopping ones included, against capacity."""
    return [
        f"I4: {worker} runs {len(agent.runs)} of {agent.capacity}: {sorted(agent.runs)}"
        for worker, agent in agents.items()
        if len(agent.runs) > agent.capacity
    ]


@dataclass
class Releases:
    """Checks I2 on a recorded trace: the releases, in the order of the store."""

    latest: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    def release(self, live: str, worker: str, epoch: int, pull_no: int) -> list[str]:
        epoch_then, pull_then, worker_then = self.latest.get(live, (0, 0, worker))
        self.latest[live] = max(self.latest.get(live, (0, 0, "")), (epoch, pull_no, worker))
        if epoch == epoch_then and worker != worker_then:
            return [f"I2: {live} epoch {epoch} released to {worker_then} and {worker}"]
        if (epoch, pull_no) < (epoch_then, pull_then):
            return [f"I2: {live} released to {worker}@{epoch} pull {pull_no} after {epoch_then} pull {pull_then}"]
        return []

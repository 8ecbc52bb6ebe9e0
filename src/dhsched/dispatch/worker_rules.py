"""What Dispatch accepts from a Worker, and how a Worker that may not go on is made gone.

A Worker registers within the bounds of its key, and changes only what is its own: everything after the registration is
about the boot of its token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from dhsched.access.callers import Caller
from dhsched.access.ring import KeyRing
from dhsched.dispatch.context import DispatchContext, retry_unknown
from dhsched.errors import BadValue, Forbidden
from dhsched.links.messages import REPEATS_MAX, Depart, FromWorker, Register, Report
from dhsched.ownership import outcomes as o
from dhsched.tokens import Boot

SLOTS_SPARE = 64  # A report may name this many slots beyond twice the Worker's capacity; one with more ends the link.


def bounded(said: Register, *, caller: Caller, linked: Boot | None, ring: KeyRing) -> Register:
    """Return the registration, with what it leaves out taken from a machine key; raise Forbidden if the caller may not
    register this Worker.

    `linked` is the boot that the link belongs to, if any. A boot token registers nothing.
    """
    if linked is not None and linked.boot != said.boot:
        raise Forbidden(f"this link belongs to boot {linked.worker}; register another boot on a link of its own")
    if caller.worker:
        raise Forbidden(f"this link was opened by boot {caller.worker}, which does not register others; use a key")
    bounds = caller.bounds
    if bounds.machine:
        said = structs.replace(
            said,
            name=said.name or bounds.names,
            pool=said.pool or bounds.pool,
            capacity=said.capacity or bounds.capacity_max,
            labels=said.labels or bounds.labels,
        )
    refused = bounds.refusal(
        name=said.name, pool=said.pool, capacity=said.capacity, labels=said.labels, replaces=said.replaces
    )
    if refused:
        raise Forbidden(f"{refused}; use another key, or another name, Pool, capacity or labels")
    if ended := ring.refusal_of(key=caller.key, name=said.name):
        raise Forbidden(ended)
    own = ring.machine_keys.get(said.name)
    if own is not None and caller.key not in ("", own.id):
        raise Forbidden(
            f"the Worker name {said.name} belongs to a machine with a key of its own, {own.id}; register with that "
            "key, or use another name"
        )
    return said


def check_slots(boot: Boot, said: Report) -> None:
    """Refuse a report with too many slots: a Worker has those of its table, and earlier ones whose runtimes stop."""
    slots_max = 2 * boot.capacity + SLOTS_SPARE
    for what, tags in (("busy", said.busy), ("prepared", said.prepared)):
        if len(tags) > slots_max:
            raise BadValue(
                f"a report of {boot.worker} names {len(tags)} {what} slots; a Worker with capacity {boot.capacity} may "
                f"name at most {slots_max}"
            )


async def force_out(context: DispatchContext, worker: str, reason: str) -> bool:
    """Make a Worker gone, as if it had exited: its lives are placed elsewhere at once. Return whether it was not gone
    before."""
    outcome = await retry_unknown(
        "set_worker", lambda: context.store.set_worker(worker=worker, verb="exit"), until=context.until()
    )
    if not isinstance(outcome, o.WorkerSet):
        return False
    context.events.say("worker_gone", worker=worker, reason=reason)
    return True


def refuse_repeats(said_all: Sequence[FromWorker]) -> None:
    """Raise BadValue if a frame has one kind of message too often. Departs are many: each is of another slot."""
    if len(said_all) <= REPEATS_MAX:
        return
    for kind, count in Counter(map(type, said_all)).items():
        if count > REPEATS_MAX and kind is not Depart:
            name = kind.__name__.lower()
            raise BadValue(f"a frame has {count} messages {name}; send at most {REPEATS_MAX} in one frame")

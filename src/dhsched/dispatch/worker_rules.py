"""What Dispatch accepts from a Worker, and how a Worker that may not go on is made gone.

A Worker registers within the bounds of its key, and changes only what is its own: everything after the registration is
about the boot of its token.
"""

from __future__ import annotations

from msgspec import structs

from dhsched.access.callers import Caller
from dhsched.access.ring import KeyRing
from dhsched.dispatch.commit import retry_unknown
from dhsched.dispatch.context import DispatchContext
from dhsched.errors import BadValue, Forbidden
from dhsched.links.messages import Register, Report
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
    if (bounds := caller.bounds).machine:
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
    if (own := ring.machine_keys.get(said.name)) is not None and caller.key not in ("", own.id):
        raise Forbidden(
            f"the Worker name {said.name} belongs to a machine with a key of its own, {own.id}; register with that "
            "key, or use another name"
        )
    return said


def slots_max(boot: Boot) -> int:
    """Return how many slots a report may name: those of the Worker's table, and earlier ones whose runtimes stop."""
    return 2 * boot.capacity + SLOTS_SPARE


def too_many_slots(boot: Boot, said: Report) -> BadValue:
    """Return the error for a report that names more slots than `slots_max`."""
    what, tags = max((("busy", said.busy), ("prepared", said.prepared)), key=lambda row: len(row[1]))
    return BadValue(
        f"a report of {boot.worker} names {len(tags)} {what} slots; a Worker with capacity {boot.capacity} may name at "
        f"most {slots_max(boot)}"
    )


async def force_out(context: DispatchContext, worker: str, reason: str) -> bool:
    """Make a Worker gone, as if it had exited: its lives are placed elsewhere at once. Return whether it was not gone
    before."""
    outcome = await retry_unknown(context, "set_worker", lambda: context.store.set_worker(worker=worker, verb="exit"))
    if not isinstance(outcome, o.WorkerSet):
        return False
    context.events.say("worker_gone", worker=worker, reason=reason)
    return True

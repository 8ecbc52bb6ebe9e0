"""Note a Worker's troubles in the store, and cordon the Worker when there are too many (blame_limits.py decides).

The replica whose store call found a trouble records it, so each trouble counts once. A trouble that cannot be written
is logged and not counted; recovery goes on. When an operator uncordons a Worker, its troubles are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from dhsched.blame_limits import Blamed, BlameLimits, Trouble, judge_blame, may_cordon
from dhsched.errors import StoreError
from dhsched.ownership import outcomes as o
from dhsched.settings import DispatchSettings
from dhsched.store.records.events import Value
from dhsched.types import name_of

if TYPE_CHECKING:
    from dhsched.dispatch.context import DispatchContext

log = structlog.get_logger(__name__)

HOW_TO_UNDO = "dhsched worker uncordon"


async def blame(context: DispatchContext, worker: str, trouble: Trouble, what: str) -> bool:
    """Record one trouble, and cordon the Worker if there are too many now. Return whether this one was there before."""
    try:
        new, members = await _note(context, worker, f"{trouble} {what}")
        await _cordon_if_blamed(context, worker, members)
    except StoreError as error:
        log.warning("could not blame a Worker", worker=worker, trouble=trouble, what=what, reason=str(error))
        return False
    return not new


async def blame_of_name(context: DispatchContext, worker: str) -> None:
    """Cordon a new boot of a Worker whose name has had too many troubles already."""
    try:
        _, members = await _note(context, worker, "")
        await _cordon_if_blamed(context, worker, members)
    except StoreError as error:
        log.warning("could not look up a Worker's troubles", worker=worker, reason=str(error))


async def forgive(context: DispatchContext, worker: str) -> None:
    """Delete the Worker's troubles, after an operator has uncordoned it."""
    try:
        await context.store.records.workers.forget_troubles(name_of(worker))
    except StoreError as error:
        log.warning("could not forget a Worker's troubles", worker=worker, reason=str(error))


async def cordon(context: DispatchContext, worker: str, reason: str, numbers: Mapping[str, Value]) -> None:
    """Cordon the Worker, and write one event although several replicas may decide the same at the same time."""
    outcome = await context.store.set_worker(worker=worker, verb="cordon")
    if not isinstance(outcome, o.WorkerSet) or outcome.mode != "cordoned":
        return  # The Worker is gone or draining, and gets no new lives anyway.
    new, _ = await _note(context, worker, f"cordon {worker}")
    if new:
        undo = f"{HOW_TO_UNDO} {worker}"
        said: dict[str, Value] = {"cordoned_by": "dhsched", "reason": reason, "undo": undo, **numbers}
        context.events.say("worker_cordoned", worker=worker, live="", **said)


async def _cordon_if_blamed(context: DispatchContext, worker: str, members: list[str]) -> None:
    settings = context.settings
    limits = limits_of(settings)
    if (found := judge_blame(members, limits)) is None or f"cordon {worker}" in members:
        return
    workers = context.fleet.view.workers
    pool = workers[worker].pool if worker in workers else ""
    barred = {each: row.barred for each, row in workers.items() if row.pool == pool}
    numbers: dict[str, Value] = {
        "trouble": found.trouble,
        "count": found.count,
        "count_max": found.limit,
        "window_s": settings.blame_window_s,
    }
    if may_cordon(barred, worker, limits.cordon_share):
        await cordon(context, worker, reason_of(found), numbers)
        return
    new, _ = await _note(context, worker, f"blamed {worker}")
    if new:
        out = sum(1 for reason in barred.values() if reason)
        numbers |= {"reason": reason_of(found), "out": out, "workers": len(barred)}
        context.events.say("worker_blamed", worker=worker, live="", **numbers)


def limits_of(settings: DispatchSettings) -> BlameLimits:
    """Return the limits of blame that a replica has by its settings."""
    return BlameLimits(
        loss=settings.losses_max,
        stall=settings.stalls_max,
        crash=settings.crashes_max,
        cordon_share=settings.cordon_share,
    )


async def _note(context: DispatchContext, worker: str, member: str) -> tuple[bool, list[str]]:
    window_ms = int(context.settings.blame_window_s * 1000)
    return await context.store.records.workers.trouble(name_of(worker), member, window_ms)


def reason_of(found: Blamed) -> str:
    what = {"loss": "times lost", "stall": "lives stalled on it", "crash": "lives whose runtime ended on it"}
    return f"{found.count} {what[found.trouble]}, more than {found.limit}"

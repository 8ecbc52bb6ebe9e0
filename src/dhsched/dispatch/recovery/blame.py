"""Note a Worker's troubles in the store, and cordon the Worker when there are too many (blame_limits.py decides).

A trouble is noted by the replica whose store call found it, so each counts once. Noting is never in the way: while it
cannot be written, the Worker is not blamed, and recovery goes on. What an operator uncordons starts with a clean sheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from dhsched.dispatch.recovery.blame_limits import Blamed, BlameLimits, Trouble, judge_blame, may_cordon
from dhsched.errors import StoreError
from dhsched.ownership import outcomes as o
from dhsched.store.records.events import Value

if TYPE_CHECKING:
    from dhsched.dispatch.context import DispatchContext

log = structlog.get_logger(__name__)

HOW_TO_UNDO = "dhsched worker uncordon"


async def blame(context: DispatchContext, worker: str, trouble: Trouble, what: str) -> bool:
    """Note one trouble, and cordon the Worker if that was one too many. Whether it had this very one before."""
    try:
        new, members = await _note(context, worker, f"{trouble} {what}")
        await _cordon_if_blamed(context, worker, members)
    except StoreError as error:
        log.warning("could not blame a Worker", worker=worker, trouble=trouble, what=what, reason=str(error))
        return False
    return not new


async def blame_of_name(context: DispatchContext, worker: str) -> None:
    """A new boot: its name may have had too much trouble already."""
    try:
        _, members = await _note(context, worker, "")
        await _cordon_if_blamed(context, worker, members)
    except StoreError as error:
        log.warning("could not look up a Worker's troubles", worker=worker, reason=str(error))


async def forgive(context: DispatchContext, worker: str) -> None:
    """An operator trusts it again."""
    try:
        await context.records.workers.forget_troubles(name_of(worker))
    except StoreError as error:
        log.warning("could not forget a Worker's troubles", worker=worker, reason=str(error))


async def cordon(context: DispatchContext, worker: str, reason: str, numbers: Mapping[str, Value]) -> None:
    """Cordon it, and say so once although several replicas may find the same at the same time."""
    outcome = await context.store.set_worker(worker=worker, verb="cordon")
    if not isinstance(outcome, o.WorkerSet) or outcome.mode != "cordoned":
        return  # It is gone, or draining, and gets nothing new anyway.
    new, _ = await _note(context, worker, f"cordon {worker}")
    if new:
        undo = f"{HOW_TO_UNDO} {worker}"
        said: dict[str, Value] = {"cordoned_by": "dhsched", "reason": reason, "undo": undo, **numbers}
        context.events.say("worker_cordoned", worker=worker, live="", **said)


async def _cordon_if_blamed(context: DispatchContext, worker: str, members: list[str]) -> None:
    settings = context.settings
    limits = BlameLimits(
        loss=settings.losses_max,
        stall=settings.stalls_max,
        crash=settings.crashes_max,
        cordon_share=settings.cordon_share,
    )
    found = judge_blame(members, limits)
    if found is None or f"cordon {worker}" in members:
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


async def _note(context: DispatchContext, worker: str, member: str) -> tuple[bool, list[str]]:
    window_ms = int(context.settings.blame_window_s * 1000)
    return await context.records.workers.trouble(name_of(worker), member, window_ms)


def reason_of(found: Blamed) -> str:
    what = {"loss": "times lost", "stall": "lives stalled on it", "crash": "lives whose runtime ended on it"}
    return f"{found.count} {what[found.trouble]}, more than {found.limit}"


def name_of(worker: str) -> str:
    return worker.rpartition("#")[0]

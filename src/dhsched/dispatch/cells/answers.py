"""One answer of what several cells have answered. Pure.

A list has one order in all cells, so one cursor fits all of them: a page of all is the beginning of their pages, up to
where the first of them breaks off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

from msgspec import Struct, structs

from dhsched.client.models import audit, fleet, lives, pools, summary, tenants, workers
from dhsched.client.models.base import UNSET, Optional

Row = TypeVar("Row")
T = TypeVar("T", bound=Struct)


def one_page(
    pages: Sequence[tuple[Sequence[Row], str | None]], key: Callable[[Row], str], limit: int
) -> tuple[list[Row], str | None]:
    """Return one page, and the cursor to go on after it, of the pages of all cells: rows in the order of `key`, and the
    cursor of each, None after its last page."""
    ends = [after for _, after in pages if after is not None]
    until = min(ends, default=None)
    rows = sorted((row for page, _ in pages for row in page), key=key)
    if until is not None:
        rows = [row for row in rows if key(row) <= until]
    if len(rows) <= limit:
        return rows, until
    last = key(rows[limit - 1])
    # Two cells may have a row of one name: those of the last name stay together, because a cursor cannot part them.
    return [row for row in rows if key(row) <= last], last


def left_out(names: Iterable[str]) -> list[str] | Optional:
    return [*names] or UNSET


def lacking(answer: T, without: Sequence[str]) -> T:
    """Return the answer, with the cells that it lacks."""
    return structs.replace(answer, cells_left_out=[*without]) if without else answer


def live_list(found: Mapping[str, lives.LiveList], limit: int, without: Sequence[str]) -> lives.LiveList:
    rows = [([in_cell(row, cell) for row in one.lives], one.next) for cell, one in found.items()]
    page, after = one_page(rows, lambda row: row.live_id, limit)
    return lives.LiveList(page, after, left_out(without))


def ended_lives(found: Sequence[lives.EndedLives]) -> lives.EndedLives:
    """Each cell has ended some: the next call begins where the first of them broke off."""
    ids = sorted(live_id for one in found for live_id in one.live_ids)
    return lives.EndedLives(
        ids,
        any(one.more for one in found),
        min((one.next for one in found if one.next is not None), default=None),
    )


def worker_list(found: Mapping[str, workers.WorkerList], limit: int, without: Sequence[str]) -> workers.WorkerList:
    rows = [([in_cell(row, cell) for row in one.workers], one.next) for cell, one in found.items()]
    page, after = one_page(rows, lambda row: row.worker, limit)
    return workers.WorkerList(page, after, left_out(without))


def recovery_list(found: Mapping[str, fleet.RecoveryList], limit: int, without: Sequence[str]) -> fleet.RecoveryList:
    rows = [([in_cell(row, cell) for row in one.recoveries], one.next) for cell, one in found.items()]
    page, after = one_page(rows, lambda row: f"{row.tenant}/{row.live_id}", limit)
    return fleet.RecoveryList(page, added_up(one.waiting for one in found.values()), after, left_out(without))


def audit_list(found: Sequence[audit.AuditList], limit: int) -> audit.AuditList:
    """Entries are written in the first cell, or in another one while that is away. The latest come first."""
    rows = sorted((row for one in found for row in one.entries), key=lambda row: id_order(row.id), reverse=True)
    shown, more = rows[:limit], len(rows) > limit or any(one.next is not None for one in found)
    return audit.AuditList(shown, shown[-1].id if shown and more else None)


def id_order(event_id: str) -> tuple[int, int]:
    at_ms, _, n = event_id.partition("-")
    return int(at_ms), int(n or 0)


def pool(found: Sequence[pools.NamedPool]) -> pools.NamedPool:
    """Return a Pool with its Workers of all cells. `found` may not be empty; the first one has the configuration."""
    barred: defaultdict[str, list[pools.BarredWorkers]] = defaultdict(list)
    for one in found:
        for status, some in one.barred.items():
            barred[status].append(some)
    first = next((one for one in found if one.configured), found[0])
    counted = ("workers", "placeable", "load", "capacity", "free")
    return structs.replace(
        first,
        **{name: sum(getattr(one, name) for one in found) for name in counted},
        barred={status: add_fields(some) for status, some in sorted(barred.items())},
    )


def pool_list(found: Sequence[pools.PoolList], without: Sequence[str]) -> pools.PoolList:
    by_name: defaultdict[str, list[pools.NamedPool]] = defaultdict(list)
    for one in found:
        for each in one.pools:
            by_name[each.name].append(each)
    return pools.PoolList([pool(some) for _, some in sorted(by_name.items())], left_out(without))


def rebalance(found: Sequence[pools.RebalanceOut]) -> pools.RebalanceOut:
    return structs.replace(
        found[0],
        mode="act" if any(one.mode == "act" for one in found) else found[0].mode,
        lives=sum(one.lives for one in found),
        advice=[each for one in found for each in one.advice],
        workers=sorted((each for one in found for each in one.workers), key=lambda each: each.worker),
    )


def usage(found: Sequence[tenants.UsageOut]) -> tenants.UsageOut:
    pending = [one.pending_bytes for one in found if one.pending_bytes is not None]
    return structs.replace(
        found[0],
        lives=sum(one.lives for one in found),
        live_seconds=sum(one.live_seconds for one in found),
        items=sum(one.items for one in found),
        pending_bytes=sum(pending) if pending else None,
        pending_measured_at_ms=max((one.pending_measured_at_ms or 0 for one in found), default=0) or None,
    )


# -- the whole deployment


def whole(found: Mapping[str, summary.Summary], cells: Mapping[str, str]) -> summary.Summary:
    """Return the summary of all cells. `cells` has every cell by name, and why it fails; `found` may not be empty."""
    ones = [*found.values()]
    first = ones[0]
    every = defaultdict[str, list[summary.PoolSummary]](list)
    for one in ones:
        for each in one.pools:
            every[each.name].append(each)
    checked = [one.safety.checked_ms_ago for one in ones if one.safety.checked_ms_ago is not None]
    return structs.replace(
        first,
        cell=", ".join(cells),
        at_ms=max(one.at_ms for one in ones),
        view_age_s=max(one.view_age_s for one in ones),
        workers=sum(one.workers for one in ones),
        workers_by_status=added_up(one.workers_by_status for one in ones),
        lives=add_fields([one.lives for one in ones]),
        slots=add_fields([one.slots for one in ones]),
        brake=summary.Brake(
            any(one.brake.on for one in ones),
            next((one.brake.by for one in ones if one.brake.on), ""),
            sum(one.brake.silent for one in ones),
        ),
        store=stores([one.store for one in ones]),
        safety=structs.replace(
            add_fields([structs.replace(one.safety, checked_ms_ago=0) for one in ones]),
            replicas=max(one.safety.replicas for one in ones),
            checked_ms_ago=max(checked, default=None) if len(checked) == len(ones) else None,
        ),
        pools=[pool_summary(some) for _, some in sorted(every.items())],
        pools_left_out=max(one.pools_left_out for one in ones),
        cells=[
            summary.CellOut(name, not trouble, trouble, *(() if name not in found else of_cell(found[name])))
            for name, trouble in cells.items()
        ],
    )


def of_cell(one: summary.Summary) -> tuple[int, int, int, int, str]:
    return one.workers, one.lives.open, one.slots.free, one.slots.capacity, one.store.home


def stores(ones: Sequence[summary.StoreSummary]) -> summary.StoreSummary:
    """Return the worst of each figure; the home and the term are those of the first cell."""
    return structs.replace(
        ones[0],
        answered_ms=max(one.answered_ms for one in ones),
        replicas=min(one.replicas for one in ones),
        behind_bytes=max(one.behind_bytes for one in ones),
        lost_calls=sum(one.lost_calls for one in ones),
        memory_share=max(one.memory_share for one in ones),
        unsettled=next((one.unsettled for one in ones if one.unsettled), ""),
    )


def pool_summary(ones: Sequence[summary.PoolSummary]) -> summary.PoolSummary:
    counted = ("workers", "placeable", "load", "capacity", "free", "waiting", "advised_lives")
    total = {name: sum(getattr(one, name) for one in ones) for name in counted}
    barred: defaultdict[str, list[pools.BarredWorkers]] = defaultdict(list)
    for one in ones:
        for status, some in one.barred.items():
            barred[status].append(some)
    return structs.replace(
        ones[0],
        **total,
        waterline=min(1.0, total["load"] / total["capacity"]) if total["capacity"] else 1.0,
        barred={status: add_fields(some) for status, some in sorted(barred.items())},
        spread_pct=max(one.spread_pct for one in ones),  # Lives move within their cell only.
        advice=[each for one in ones for each in one.advice],
    )


def replica_list(found: Sequence[summary.ReplicaList]) -> summary.ReplicaList:
    """A replica tells of itself in every cell: it is ready where it is ready in all of them."""
    by_name: defaultdict[tuple[str, str], list[summary.ReplicaOut]] = defaultdict(list)
    for one in found:
        for each in one.replicas:
            by_name[each.role, each.name].append(each)
    return summary.ReplicaList([replica(some) for _, some in sorted(by_name.items())])


def replica(told: Sequence[summary.ReplicaOut]) -> summary.ReplicaOut:
    safety = [one.safety for one in told if one.safety is not None]
    checked = [one.checked_ms_ago for one in safety if one.checked_ms_ago is not None]
    return structs.replace(
        told[0],
        ready=all(one.ready for one in told),
        missing=[*dict.fromkeys(each for one in told for each in one.missing)],
        told_ms_ago=max(one.told_ms_ago for one in told),
        creates_waiting=sum(one.creates_waiting for one in told),
        safety=structs.replace(
            add_fields([structs.replace(one, checked_ms_ago=0) for one in safety]),
            checked_ms_ago=max(checked, default=None),
        )
        if safety
        else None,
    )


# -- parts


def in_cell(row: Any, cell: str) -> Any:
    return structs.replace(row, cell=cell)


def added_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: defaultdict[str, int] = defaultdict(int)
    for one in counts:
        for name, count in one.items():
            total[name] += count
    return dict(sorted(total.items()))


def add_fields(ones: Sequence[T]) -> T:
    """Return a struct of numbers with the sum of each field."""
    return reduce(lambda a, b: type(a)(*map(sum, zip(structs.astuple(a), structs.astuple(b), strict=True))), ones)

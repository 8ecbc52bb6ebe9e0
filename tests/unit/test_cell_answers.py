"""One answer of what several cells have answered: pages that lose nothing, sums, and the worst of what is bad."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dhsched.access.tenants import TenantLimits
from dhsched.client.models import audit, fleet, lives, pools, summary, tenants, workers
from dhsched.client.models.base import UNSET
from dhsched.dispatch.cells import answers

# -- pages


def read_page(names: list[str], after: str, limit: int, scan_max: int) -> tuple[list[str], str | None]:
    """A page as one cell answers it (api/selection.py): it may be short, or empty, where few names match. A name with
    an x matches no filter."""
    rest = names[bisect_right(names, after) :]
    found: list[str] = []
    for n, name in enumerate(rest[:scan_max]):
        if "x" not in name:
            found.append(name)
        if len(found) == limit:
            return found, name if n + 1 < len(rest) else None
    return found, rest[scan_max - 1] if len(rest) > scan_max else None


NAME = st.builds("{:03}{}".format, st.integers(0, 60), st.sampled_from(["", "", "x"]))
CELLS = st.lists(st.sets(NAME, max_size=25), min_size=1, max_size=4)
CHURN = st.lists(st.tuples(st.integers(0, 3), NAME, st.booleans()), max_size=60)


@given(stable=CELLS, churn=CHURN, limit=st.integers(1, 7), scan_max=st.integers(1, 9), pace=st.integers(0, 4))
def test_a_walk_over_cells_meets_each_stable_row_once_and_in_order(
    stable: list[set[str]], churn: list[tuple[int, str, bool]], limit: int, scan_max: int, pace: int
) -> None:
    """Other rows come and go between the pages. A name may be in several cells."""
    cells, left = [{*names} for names in stable], [*churn]
    met: list[tuple[str, int]] = []
    after: str | None = ""
    while after is not None:
        pages = []
        for n, names in enumerate(cells):
            page, end = read_page(sorted(names), after, limit, scan_max)
            pages.append(([(name, n) for name in page], end))
        rows, following = answers.one_page(pages, lambda row: row[0], limit)
        assert len({name for name, _ in rows}) <= limit, "more rows only where one name is in several cells"
        assert following is None or following > after, "each page goes on"
        met, after = met + rows, following
        for _ in range(min(pace, len(left))):
            cell, name, comes = left.pop()
            if name not in stable[cell % len(cells)]:
                (cells[cell % len(cells)].add if comes else cells[cell % len(cells)].discard)(name)
    wanted = {(name, n) for n, names in enumerate(stable) for name in names if "x" not in name}
    counted = Counter(met)
    assert {row for row in wanted if counted[row] != 1} == set()
    assert max(counted.values(), default=1) == 1
    assert [name for name, _ in met] == sorted(name for name, _ in met)


def live(live_id: str) -> lives.LiveSummary:
    values: list[Any] = [live_id, "demo", live_id, "open", "w#1", 1, True, 1]
    values += [0, "create", 1, "", False, False, [], 1, None, ""]
    return lives.LiveSummary(*values)


def test_a_list_says_the_cell_of_each_row_and_which_cells_it_lacks() -> None:
    found = {
        "a": lives.LiveList([live("L1"), live("L4")], "L4"),
        "b": lives.LiveList([live("L2"), live("L3"), live("L5")], None),
    }
    page = answers.live_list(found, 10, ["c"])
    assert [(row.live_id, row.cell) for row in page.lives] == [("L1", "a"), ("L2", "b"), ("L3", "b"), ("L4", "a")]
    assert (page.next, page.cells_left_out) == ("L4", ["c"])
    whole = answers.live_list({name: structs.replace(each, next=None) for name, each in found.items()}, 10, [])
    assert (len(whole.lives), whole.next, whole.cells_left_out) == (5, None, UNSET)


def test_two_boots_with_one_worker_id_are_both_listed() -> None:
    row = workers.WorkerSummary("w#1", "gpu", "ready", 0, 4, 0, "", 1, [])
    other = structs.replace(row, worker="w#2")
    found = {"a": workers.WorkerList([row], "w#1"), "b": workers.WorkerList([row, other], None)}
    page = answers.worker_list(found, 1, [])
    assert [(each.worker, each.cell) for each in page.workers] == [("w#1", "a"), ("w#1", "b")]
    assert page.next == "w#1", "w#2 is on the next page"


def test_recoveries_are_ordered_by_tenant_and_live_and_their_lines_added_up() -> None:
    def row(tenant: str, live_id: str) -> fleet.RecoveryOut:
        return fleet.RecoveryOut(tenant, live_id, "demo", 1, "w#1", 1, "lost", 1, 1, 1, 0, [], "")

    found = {
        "x": fleet.RecoveryList([row("a", "L9"), row("b", "L1")], {"gpu": 2}, None),
        "y": fleet.RecoveryList([row("a", "L2"), row("c", "L0")], {"cpu": 1, "gpu": 1}, "c/L0"),
    }
    page = answers.recovery_list(found, 3, ["c"])
    assert [f"{each.tenant}/{each.live_id}" for each in page.recoveries] == ["a/L2", "a/L9", "b/L1"]
    assert [each.cell for each in page.recoveries] == ["y", "x", "x"]
    assert (page.waiting, page.next, page.cells_left_out) == ({"cpu": 1, "gpu": 3}, "b/L1", ["c"])


def entry(event_id: str) -> audit.AuditOut:
    return audit.AuditOut(event_id, 1, "put_pool", "/v1/pools/gpu", 200, "", "", "", "", "", "", "", "d1")


def test_the_audit_trail_has_the_latest_of_all_cells_first() -> None:
    found = [
        audit.AuditList([entry("100-0"), entry("99-10"), entry("99-9")], None),
        audit.AuditList([entry("101-0"), entry("9-0")], "9-0"),
    ]
    page = answers.audit_list(found, 3)
    assert ([each.id for each in page.entries], page.next) == (["101-0", "100-0", "99-10"], "99-10")
    last = answers.audit_list([audit.AuditList([entry("9-0")], None), audit.AuditList([], None)], 3)
    assert ([each.id for each in last.entries], last.next) == (["9-0"], None)


# -- sums


def test_a_pool_has_the_workers_of_all_cells_and_one_configuration() -> None:
    barred = pools.BarredWorkers
    one = pools.NamedPool("gpu", pools.PoolConfig(priority=3), True, 2, 1, 3, 4, 1, {"lost": barred(1, 2, 4)})
    others = {"lost": barred(1, 1, 8), "new": barred(1, 0, 8)}
    two = pools.NamedPool("gpu", pools.PoolConfig(), False, 3, 1, 0, 8, 8, others)
    for found in ([one, two], [two, one]):
        made = answers.pool(found)
        assert (made.configured, made.config.priority) == (True, 3)
        assert (made.workers, made.placeable, made.load, made.capacity, made.free) == (5, 2, 3, 12, 9)
        assert made.barred == {"lost": barred(2, 3, 12), "new": barred(1, 0, 8)}
    assert one.barred == {"lost": barred(1, 2, 4)}, "what was merged stays as it was"
    lists = [pools.PoolList([one]), pools.PoolList([structs.replace(two, name="cpu"), two])]
    listed = answers.pool_list(lists, ["c"])
    assert [(each.name, each.workers) for each in listed.pools] == [("cpu", 3), ("gpu", 5)]
    assert listed.cells_left_out == ["c"]


def test_usage_is_added_up_and_pending_input_only_where_it_was_measured() -> None:
    one = tenants.UsageOut("acme", 2, 10.5, 7, TenantLimits(lives_max=9))
    made = answers.usage([one, structs.replace(one, lives=3, live_seconds=1.5, items=1)])
    assert (made.lives, made.live_seconds, made.items, made.limits.lives_max) == (5, 12.0, 8, 9)
    assert made.pending_bytes is None and made.pending_measured_at_ms is None
    measured = structs.replace(one, pending_bytes=100, pending_measured_at_ms=5)
    both = answers.usage([measured, structs.replace(measured, pending_bytes=1, pending_measured_at_ms=7), one])
    assert (both.pending_bytes, both.pending_measured_at_ms) == (101, 7)


def test_advice_of_all_cells_is_one_list() -> None:
    one = pools.RebalanceOut(
        *("gpu", "advise", 20, 2, 1, [pools.AdviceOut("w#1", "w#2", 1)], [pools.HoldingOut("w#2", 1, 4)])
    )
    acts = structs.replace(one, mode="act", lives=3, workers=[pools.HoldingOut("w#1", 3, 4)])
    made = answers.rebalance([one, acts])
    assert (made.mode, made.lives, len(made.advice)) == ("act", 4, 2)
    assert [each.worker for each in made.workers] == ["w#1", "w#2"]


# -- the whole deployment


def one_cell(name: str, **other: Any) -> summary.Summary:
    store = summary.StoreSummary(f"home-{name}", 1, 0.5, 1, 0, 0, 0.1)
    made = summary.Summary(
        by="d1",
        cell=name,
        at_ms=1_000,
        view_age_s=0.1,
        workers=1,
        workers_by_status={"ready": 1},
        lives=summary.LiveCounts(2, 0, 0, 1),
        slots=summary.SlotCounts(2, 4, 2),
        brake=summary.Brake(False, "", 0),
        store=store,
        safety=summary.Safety(0, 0, 0, 5, 2, 100),
        pools=[pool_of("gpu", load=2, capacity=4)],
    )
    return structs.replace(made, **other)


def pool_of(name: str, *, load: int, capacity: int, spread: int = 0) -> summary.PoolSummary:
    return summary.PoolSummary(name, 1, 1, load, capacity, capacity - load, 0.5, {}, 0, spread, "off", 0, [])


def test_the_summary_adds_up_what_is_counted_and_shows_the_worst_of_the_stores() -> None:
    a = one_cell("a")
    b = one_cell(
        "b",
        at_ms=1_500,
        view_age_s=4.0,
        workers=3,
        workers_by_status={"lost": 1, "ready": 2},
        lives=summary.LiveCounts(5, 1, 2, 0),
        slots=summary.SlotCounts(8, 8, 0),
        brake=summary.Brake(True, "d2", 3),
        store=summary.StoreSummary("home-b", 7, 9.0, 0, 50, 4, 0.8, "no replica settles"),
        safety=summary.Safety(1, 0, 2, 6, 3, None),
        pools=[pool_of("cpu", load=0, capacity=0), pool_of("gpu", load=8, capacity=8, spread=40)],
        pools_left_out=2,
    )
    made = answers.whole({"a": a, "b": b}, {"a": "", "b": "", "c": "it is away"})
    assert (made.cell, made.at_ms, made.view_age_s, made.workers) == ("a, b, c", 1_500, 4.0, 4)
    assert made.workers_by_status == {"lost": 1, "ready": 3}
    assert made.lives == summary.LiveCounts(7, 1, 2, 1) and made.slots == summary.SlotCounts(10, 12, 2)
    assert made.brake == summary.Brake(True, "d2", 3)
    assert made.store == summary.StoreSummary("home-a", 1, 9.0, 0, 50, 4, 0.8, "no replica settles")
    assert made.safety == summary.Safety(1, 0, 2, 11, 3, None), "a cell without a check yet leaves the age open"
    cpu, gpu = made.pools
    assert (cpu.name, cpu.waterline, made.pools_left_out) == ("cpu", 1.0, 2)
    assert (gpu.workers, gpu.load, gpu.capacity, gpu.free, gpu.spread_pct) == (2, 10, 12, 2, 40)
    assert gpu.waterline == 10 / 12
    assert made.cells == [
        summary.CellOut("a", True, "", 1, 2, 2, 4, "home-a"),
        summary.CellOut("b", True, "", 3, 5, 0, 8, "home-b"),
        summary.CellOut("c", False, "it is away"),
    ]


def test_the_latest_check_of_any_cell_is_shown_once_all_have_checked() -> None:
    both = answers.whole(
        {"a": one_cell("a"), "b": one_cell("b", safety=summary.Safety(0, 0, 0, 1, 1, 700))}, {"a": "", "b": ""}
    )
    assert both.safety.checked_ms_ago == 700, "the older one: nobody shall read that all was just checked"


def test_a_replica_is_ready_where_it_is_ready_in_every_cell() -> None:
    def told(name: str, *missing: str, ago: int = 10, waiting: int = 0, safety: bool = True) -> summary.ReplicaOut:
        checks = summary.SafetyOut(1, 0, 0, 4, 200 + ago) if safety else None
        return summary.ReplicaOut("dispatch", name, "1", "", not missing, [*missing], 60, ago, waiting, checks)

    infer = summary.ReplicaOut("infer", "i1", "1", "http://i", True, [], 60, 5)
    found = [
        summary.ReplicaList([told("d1", waiting=2), told("d2"), infer]),
        summary.ReplicaList([told("d1", "view", ago=30, waiting=1), infer]),
    ]
    d1, d2, i1 = answers.replica_list(found).replicas
    assert (d1.ready, d1.missing, d1.told_ms_ago, d1.creates_waiting) == (False, ["view"], 30, 3)
    assert d1.safety == summary.SafetyOut(2, 0, 0, 8, 230)
    assert (d2.ready, d2.safety) == (True, summary.SafetyOut(1, 0, 0, 4, 210))
    assert (i1.name, i1.ready, i1.safety) == ("i1", True, None)


def test_no_row_of_a_page_is_lost_where_only_one_cell_has_more() -> None:
    rows, after = answers.one_page([(["1", "2"], "2"), ([], None), (["9"], None)], lambda row: row, 5)
    assert (rows, after) == (["1", "2"], "2"), "9 comes with a later page"
    assert answers.one_page([([], "4"), (["3", "5"], None)], lambda row: row, 5) == (["3"], "4")
    assert answers.one_page([([], None), ([], None)], lambda row: row, 5) == ([], None)

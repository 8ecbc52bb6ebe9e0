"""Half a minute of storm, and that its judges see what they are there to see."""

from __future__ import annotations

import ast
import os
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from dhsched import types
from dhsched.ownership import outcomes as o
from tests.chaos.cluster import NODES, WAYS, way_of
from tests.chaos.deployment import ROOT, Size
from tests.chaos.faults import KINDS, LOSSES, draw_faults, kinds_of, old_side
from tests.chaos.ledger import Consumed, Records, TakenBack, check, one_runtime, stored
from tests.chaos.load import Told
from tests.chaos.replay import Account, Generation, Numbers
from tests.chaos.store import StoreKind
from tests.chaos.storm import run
from tests.chaos.trace import Taken
from tests.harness.servers import SERVERS

SEED = int(os.environ.get("DHSCHED_SEED", "1"))
STORM_S = 9.0


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: the faults are Linux's (prlimit, PR_SET_PDEATHSIG)")
async def test_a_short_storm_breaks_nothing() -> None:
    report = await run(seed=SEED, storm_s=STORM_S)
    assert report.violations == [], again()
    assert report.faults.keys() == kinds_of("all").keys()
    # A storm in which little happened would show little.
    assert report.moved["recover"] > 0 and report.consumed > report.lives > 20 and report.steps > 500


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: the faults are Linux's (prlimit, PR_SET_PDEATHSIG)")
@pytest.mark.parametrize("server", SERVERS)
async def test_a_short_storm_over_a_cluster_whose_slot_moves_breaks_nothing(server: str) -> None:
    report = await run(seed=SEED, storm_s=STORM_S, store="cluster", server=server)
    assert report.violations == [], f"{again()} --store cluster --server {server}"
    assert report.faults.keys() == kinds_of("all", "cluster").keys()
    assert sum(report.resharded.values()) > 0 and report.consumed > report.lives > 20 and report.steps > 500


def again() -> str:
    return f"DHSCHED_SEED={SEED} makes the same faults; python -m tests.chaos --seed {SEED} --minutes {STORM_S / 60:g}"


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: the faults are Linux's (prlimit, PR_SET_PDEATHSIG)")
async def test_a_storm_over_a_fence_that_is_down_turns_red() -> None:
    small = Size(workers=3, lives=12)
    report = await run(seed=SEED, storm_s=30.0, size=small, mutant="release-guard-off", until_red=True)
    assert report.red_after_s is not None
    assert any("I2" in violation or "release_input" in violation for violation in report.violations)


def test_the_seed_alone_decides_the_faults() -> None:
    assert draw_faults(7, 60.0, Size()) == draw_faults(7, 60.0, Size()) != draw_faults(8, 60.0, Size())
    for store in get_args(StoreKind):
        drawn = draw_faults(7, 10.0, Size(), store=store)
        assert Counter(fault.kind for fault in drawn).keys() == kinds_of("all", store).keys()


def test_a_storm_over_a_cluster_aims_at_each_node_and_moves_the_slot_in_each_way() -> None:
    drawn = draw_faults(7, 600.0, Size(), store="cluster")
    for kind in ("store-kill", "store-pause", "store-restart"):
        assert {fault.target for fault in drawn if fault.kind == kind} == {*NODES}
    assert {f"to-{node}" for node in NODES} < {fault.target for fault in drawn if fault.kind == "cut"}
    assert {way_of(fault.size) for fault in drawn if fault.kind == "reshard"} == WAYS.keys()
    assert sum(WAYS.values()) == pytest.approx(1.0)


# -- the ledger

LIVE = "default/L"


def books(**changes: object) -> tuple[Records, dict[str, Told], dict[str, Account]]:
    """Two items, consumed and acked by one generation; `changes` break it."""
    given: dict[str, object] = {
        "consumed": [(1.0, "A", 1, 1, "text", "one"), (2.0, "A", 1, 2, "text", "two")],
        "accepted": ["one", "two"],
        "content": {1: "one", 2: "two"},
        "acked_by": {1: ("A", 1), 2: ("A", 1)},
        "dropped": {},
        "generations": {1: Generation("A", "create", 0, planned=False)},
        "running": 1,
        **changes,
    }
    rows = [Consumed(t, LIVE, *rest) for t, *rest in given["consumed"]]  # type: ignore[attr-defined]
    account = Account(given["content"], given["acked_by"], given["dropped"], given["generations"])  # type: ignore[arg-type]
    told = Told("L", accepted=given["accepted"])  # type: ignore[arg-type]
    return Records(rows, {"1": given["running"]}, {}), {"L": told}, {LIVE: account}  # type: ignore[dict-item]


TWO = {1: Generation("A", "create", 0, planned=False), 2: Generation("B", "recover", 1, planned=False)}
PLANNED = {1: Generation("A", "create", 0, planned=False), 2: Generation("B", "drain", 1, planned=True)}
CRASHED_THEN_PLANNED = {
    1: Generation("A", "create", 0, planned=False),
    2: Generation("B", "recover", 0, planned=False),
    3: Generation("C", "drain", 1, planned=True),
}
LATE = [(0.0, "B", 2, 2, "text", "two"), *((float(n), "A", 1, n, "text", str(n)) for n in range(3, 13))]


def test_an_item_that_was_lost_and_stored_again_by_a_late_repeat_is_in_no_order() -> None:
    told = {"L": Told("L", accepted=["one", "two"])}
    accounts = {LIVE: Account({1: "two", 2: "one"})}
    before = TakenBack(0.0, 1.0, {LIVE: Account({1: "one"})}, said=True, silent=())
    assert [*stored(told, accounts)] == ["I6: L: stored in another order than accepted"]
    assert [*stored(told, accounts, [before])] == []
    elsewhere = before._replace(accounts={LIVE: Account({2: "one"})})
    assert [*stored(told, accounts, [elsewhere])] == ["I6: L: stored in another order than accepted"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"running": 9}, "ran 9 runtimes"),
        ({"accepted": ["one", "two", "three"]}, "accepted and not stored: ['three']"),
        ({"accepted": ["one"]}, "nobody was told so: ['two']"),
        ({"accepted": ["two", "one"]}, "another order"),
        ({"content": {1: "one", 2: "one"}}, "stored twice: ['one']"),
        ({"consumed": [(2.0, "A", 1, 2, "text", "two")]}, "acked 1 (one) and never consumed it"),
        ({"acked_by": {2: ("A", 1)}}, "1 (one) was passed over"),
        ({"consumed": [(1.0, "A", 1, 1, "text", "other"), (2.0, "A", 1, 2, "text", "two")]}, "'other' was consumed"),
        ({"consumed": [(1.0, "C", 1, 1, "text", "one"), (2.0, "A", 1, 2, "text", "two")]}, "I1: default/L@1"),
        ({"consumed": [(2.0, "A", 1, 2, "text", "two"), (3.0, "A", 1, 1, "text", "one")]}, "consumed 1 after 2"),
        ({"consumed": [(1.0, "B", 2, 1, "text", "one")], "generations": TWO}, "settled up to 1 before it began"),
        (
            {"consumed": [(1.0, "A", 1, 2, "text", "two"), (2.0, "B", 2, 2, "text", "two")], "generations": PLANNED},
            "a planned move repeated [2]",
        ),
        ({"consumed": LATE, "generations": TWO}, "10 items after it was superseded"),
    ],
)
def test_the_ledger_sees_broken_books(changes: dict[str, object], complaint: str) -> None:
    assert check(*books(), 8) == []
    assert complaint in "\n".join(check(*books(**changes), 8))


def test_what_a_dead_generation_took_along_may_come_again_after_a_planned_move() -> None:
    """Both items were A's when it died; B got the first, and was left by a plan before it got the second."""
    rows = [(1.0, "A", 1, 1, "text", "one"), (1.1, "A", 1, 2, "text", "two"), (2.0, "B", 2, 1, "text", "one")]
    acked_by = {1: ("B", 2), 2: ("C", 3)}
    given = {"consumed": [*rows, (3.0, "C", 3, 2, "text", "two")], "acked_by": acked_by}
    assert check(*books(**given, generations=CRASHED_THEN_PLANNED), 8) == []
    twice = [*rows, (2.1, "B", 2, 2, "text", "two"), (3.0, "C", 3, 2, "text", "two")]
    broken = check(*books(consumed=twice, acked_by=acked_by, generations=CRASHED_THEN_PLANNED), 8)
    assert "a planned move repeated [2]" in "\n".join(broken), "what B had in hand must not"


# -- a store that was set back

PULLING = o.Pulling(1, 0, "demo", "", b"", b"", b"")


def set_back(*, said: bool = True, silent: set[int] | None = None, **changes: object) -> list[str]:
    """Item two was accepted and consumed in a history that is lost; the other one has another item in its place."""
    lost_accounts = books()[2]
    for account in lost_accounts.values():
        account.released.update({(1, 1), (1, 2)})
    rows = [(1.0, "A", 1, 1, "text", "one"), (2.0, "A", 1, 2, "text", "two"), (9.0, "B", 7, 2, "text", "three")]
    given = {
        "consumed": rows,
        "accepted": ["one", "two", "three"],
        "content": {1: "one", 2: "three"},
        "acked_by": {1: ("A", 1), 2: ("B", 7)},
        "generations": {
            1: Generation("A", "create", 0, planned=False),
            7: Generation("B", "recover", 1, planned=False),
        },
        **changes,
    }
    records, told, accounts = books(**given)
    accounts[LIVE].released.update({(1, 1), (7, 2)})
    told["L"].accepted_by = {"two": 42}
    lost = TakenBack(since=5.0, until=6.0, accounts=lost_accounts, said=said, silent=silent or set())
    return check(records, told, accounts, 8, [lost])


def test_what_was_accepted_may_be_lost_if_somebody_says_so_or_nobody_was_left_to() -> None:
    assert set_back() == set_back(said=False, silent={42}) == []
    assert "accepted and lost, and nobody said so: ['two']" in "\n".join(set_back(said=False, silent={43}))
    assert "accepted and not stored: ['four']" in "\n".join(set_back(accepted=["one", "two", "three", "four"]))


def test_an_ack_counts_only_for_the_item_of_its_own_history() -> None:
    """A consumed item two of the lost history; that is not what has this number now."""
    assert "A@1 acked 2 (three) and never consumed it" in "\n".join(set_back(acked_by={1: ("A", 1), 2: ("A", 1)}))


def test_a_generation_has_a_second_runtime_only_after_the_store_was_set_back() -> None:
    lost = TakenBack(since=5.0, until=6.0, accounts={}, said=True, silent=())
    for times, complaints in (([1.0], 0), ([1.0, 7.0], 0), ([1.0, 2.0], 1), ([7.0, 8.0], 1)):
        assert len([*one_runtime(Records([], {}, {(LIVE, "A", 1): times}), [lost])]) == complaints
    assert [*one_runtime(Records([], {}, {}, ["A@1"]), [lost])]


def test_numbers_are_given_out_once_over_all_histories() -> None:
    def taken(tick: int, now: int, answer: object, **arguments: object) -> Taken:
        return Taken(tick, now, "step", {"live": LIVE, **arguments}, answer)

    def committed(worker: str, epoch: int, *, again: bool = False) -> o.Committed:
        return o.Committed(types.Generation(worker, epoch), rev=1, load=1, again=again)

    numbers = Numbers()
    first = [taken(1, 100, committed("A", 1)), taken(2, 101, PULLING, epoch=1)]
    assert [*map(list, map(numbers.take, first))] == [[], []]
    assert [*map(list, map(numbers.take, first))] == [[], []], "the common past of two histories"
    assert [*numbers.take(taken(3, 102, committed("A", 1, again=True)))] == []
    for again in (committed("A", 1), committed("B", 1, again=True)):
        assert len([*numbers.take(taken(2, 200, again))]) == 1
    assert len([*numbers.take(taken(3, 201, PULLING, epoch=1))]) == 1


def test_a_storm_may_have_some_kinds_of_faults_only() -> None:
    assert kinds_of("kill,forget") == {"kill": KINDS["kill"], "forget": KINDS["forget"]}
    assert kinds_of("all").keys() == KINDS.keys() - {"reshard"}
    assert kinds_of("lossless").keys() == KINDS.keys() - {*LOSSES, "reshard"}
    assert kinds_of("all", "cluster") == kinds_of("lossless", "cluster")
    assert kinds_of("all", "cluster").keys() == KINDS.keys() - {*LOSSES, "disk-full"}
    with pytest.raises(ValueError, match="no such fault: rain"):
        kinds_of("kill,rain")


def test_a_kind_of_fault_that_this_store_cannot_have_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="reshard needs --store cluster: with --store replicated there are kill, "):
        kinds_of("kill,reshard")
    for kind in (*LOSSES, "disk-full"):
        with pytest.raises(ValueError, match=f"{kind} needs --store replicated"):
            kinds_of(f"{kind},reshard", "cluster")


def test_some_controllers_of_each_kind_are_on_each_side_of_two_primaries() -> None:
    for fault in [each for each in draw_faults(7, 600.0, Size()) if each.kind == "two-primaries"]:
        stay = Counter(name.partition("-")[0] for name in old_side(fault, Size()))
        assert 0 < stay["dispatch"] < Size().dispatch and 0 < stay["infer"] < Size().infer


# -- clocks


def test_a_worker_reads_no_wall_clock() -> None:
    """A clock that jumps cannot matter to who never looks at it. (Log lines have their times from structlog.)"""
    package = ROOT / "src" / "dhsched"
    files = [*package.glob("worker/*.py"), *package.rglob("ownership/**/*.py"), *package.glob("links/*.py")]
    assert len(files) > 15
    assert [f"{file.name}: {name}" for file in files for name in wall_clocks(file)] == []
    # The replicas' own, which these tests leave alone.
    assert [*wall_clocks(package / "tokens.py")] == ["time.time"]


def wall_clocks(file: Path) -> list[str]:
    names = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "time.localtime", "time.gmtime"}
    found = [ast.unparse(node) for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)]
    return [name for name in found if name in names]

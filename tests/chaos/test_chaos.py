"""Half a minute of storm, and that its judges see what they are there to see."""

from __future__ import annotations

import ast
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.deployment import ROOT, Size
from tests.chaos.faults import KINDS, draw_faults
from tests.chaos.ledger import Consumed, Records, check
from tests.chaos.load import Told
from tests.chaos.replay import Account, Generation
from tests.chaos.storm import run

SEED = int(os.environ.get("DHSCHED_SEED", "1"))
STORM_S = 9.0


@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: the faults are Linux's (prlimit, PR_SET_PDEATHSIG)")
async def test_a_short_storm_breaks_nothing() -> None:
    report = await run(seed=SEED, storm_s=STORM_S)
    again = f"DHSCHED_SEED={SEED} makes the same faults; python -m tests.chaos --seed {SEED} --minutes {STORM_S / 60:g}"
    assert report.violations == [], again
    assert report.faults.keys() == KINDS.keys()
    # A storm in which little happened would show little.
    assert report.moved["recover"] > 0 and report.consumed > report.lives > 20 and report.steps > 500


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: the faults are Linux's (prlimit, PR_SET_PDEATHSIG)")
async def test_a_storm_over_a_fence_that_is_down_turns_red() -> None:
    small = Size(workers=3, lives=12)
    report = await run(seed=SEED, storm_s=30.0, size=small, mutant="release-guard-off", until_red=True)
    assert report.red_after_s is not None
    assert any("I2" in violation or "release_input" in violation for violation in report.violations)


def test_the_seed_alone_decides_the_faults() -> None:
    assert draw_faults(7, 60.0, Size()) == draw_faults(7, 60.0, Size()) != draw_faults(8, 60.0, Size())
    assert Counter(fault.kind for fault in draw_faults(7, 10.0, Size())).keys() == KINDS.keys()


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
    return Records(rows, {"1": given["running"]}, 1), {"L": told}, {LIVE: account}  # type: ignore[dict-item]


TWO = {1: Generation("A", "create", 0, planned=False), 2: Generation("B", "recover", 1, planned=False)}
PLANNED = {1: Generation("A", "create", 0, planned=False), 2: Generation("B", "drain", 1, planned=True)}
CRASHED_THEN_PLANNED = {
    1: Generation("A", "create", 0, planned=False),
    2: Generation("B", "recover", 0, planned=False),
    3: Generation("C", "drain", 1, planned=True),
}
LATE = [(0.0, "B", 2, 2, "text", "two"), *((float(n), "A", 1, n, "text", str(n)) for n in range(3, 13))]


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

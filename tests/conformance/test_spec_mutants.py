"""Every rule that the specification checks is broken once, on purpose, and somebody notices (spec/mutants.py).

Here the explorer runs the product's functions with one of them broken; `make spec` has TLC find the same mutants.
"""

from __future__ import annotations

import re

import pytest

from spec.checks import CHECKS, module_of, source_of, text_of, world
from spec.explore import explore
from spec.mutant import Mutant
from spec.mutants import MUTANTS

EXPLORED = [mutant for mutant in MUTANTS if mutant.explorer]
WANTED = """
    no-epoch-in-guard no-source-epoch-guard read-check-write-admission commit-keeps-active untagged-cleanup
    ack-without-fence no-pull-no ack-above-released interrupt-spares-released epoch-restart-after-sweep
    release-from-released agent-restarts-departed revival-clears-agenda recover-without-needs hold-survives-move
    producer-repeat-accepted
"""


@pytest.mark.parametrize("mutant", EXPLORED, ids=lambda mutant: mutant.name)
def test_the_explorer_catches(mutant: Mutant) -> None:
    assert mutant.explorer is not None and mutant.patch is not None
    name, invariant = mutant.explorer
    with mutant.patch():
        found = explore(world(name), states_max=50_000).violation
    assert found is not None, f"nobody noticed: {mutant.breaks}"
    assert invariant in found.invariants, str(found)


def test_a_violation_shows_the_shortest_way_there() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "no-pull-no")
    assert mutant.patch is not None
    with mutant.patch():
        found = explore(world("Fence")).violation
    assert str(found) == (
        "I2: t/L1 may be released to ['w1#1@1 0', 'w1#1@1 1', 'w1#1@1 2', 'w1#1@1 3']\n"
        "after 2 steps\n"
        "    1 create t/L1 on w1#1\n"
        "    2 pull t/L1 w1#1@1"
    )


def test_a_patch_leaves_nothing_behind() -> None:
    for mutant in EXPLORED:
        assert mutant.patch is not None
        with mutant.patch():
            pass
    assert explore(world("Poison")).violation is None


def test_the_registry_is_whole() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert set(WANTED.split()) <= set(names)
    for mutant in MUTANTS:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", mutant.name)
        assert mutant.tlc or mutant.explorer, f"nobody is asked to catch {mutant.name}"
        assert (mutant.explorer is None) == (mutant.patch is None), mutant.name


def test_the_modules_know_the_mutants_that_tlc_is_to_catch() -> None:
    """And no others: a name that is misspelt breaks nothing, and only `make spec` would say that nobody caught it."""
    for module in sorted({check.module for check in CHECKS}):
        known = set(re.findall(r'Broken\("([\w-]+)"\)', source_of(module)))
        asked = {mutant.name for mutant in MUTANTS if mutant.tlc and module_of(mutant.tlc[0]) == module}
        assert asked <= known, asked - known
        assert known <= {mutant.name for mutant in MUTANTS}
    for mutant in MUTANTS:
        if mutant.tlc and mutant.tlc[1] != "temporal":
            assert re.search(rf"\b{mutant.tlc[1]}\b", text_of(mutant.tlc[0])), mutant.name

"""A virtual run finds a rule that is broken on purpose, and shrinks the schedule that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.virtual.__main__ import shrunk
from tests.virtual.apart import run_apart
from tests.virtual.cases import CASES
from tests.virtual.mutants import BROKEN
from tests.virtual.schedule import Fault
from tests.virtual.shrink import kind_of

PAGE = Path(__file__).parents[2] / "docs/internals/virtual-runs.md"
QUICK = ("watchdog-is-not-heard", "room-forgets-the-highest", "scripts-run-on-a-moving-slot", "pull-begins-a-term")
"""Mutants that `make test` tries; the others need more CPU time."""


def test_every_mutant_has_a_run_that_finds_it_and_a_row_in_the_documentation() -> None:
    assert CASES.keys() == BROKEN.keys()
    page = PAGE.read_text()
    assert [name for name in BROKEN if f"`{name}`" not in page] == []


def assert_found(mutant: str) -> None:
    case = CASES[mutant]
    found = run_apart(case.seed, case.hours, case.faults, mutant=mutant, swarm=case.swarm, first=True)
    assert [kind_of(violation) for violation in found.violations[:1]] == [case.judge]


@pytest.mark.timeout(300)  # A process of a few CPU seconds.
@pytest.mark.parametrize("mutant", QUICK)
def test_a_broken_rule_is_found_soon(mutant: str) -> None:
    assert_found(mutant)


@pytest.mark.release
@pytest.mark.timeout(600)  # A process of up to a dozen CPU seconds.
@pytest.mark.parametrize("mutant", sorted({*CASES} - {*QUICK}))
def test_a_broken_rule_is_found(mutant: str) -> None:
    assert_found(mutant)


@pytest.mark.release
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", sorted(CASES))
def test_the_product_passes_what_finds_a_broken_rule(mutant: str) -> None:
    case = CASES[mutant]
    assert run_apart(case.seed, case.hours, case.faults, swarm=case.swarm).violations == ()


@pytest.mark.release
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", ["", "request-id-ignored"])
def test_what_is_asked_twice_because_its_answer_was_lost_is_done_once(mutant: str) -> None:
    applications_lose_answers = (Fault(8.0, "duplicate", 0, 0, 30.0),)
    found = run_apart(40, 0.02, applications_lose_answers, mutant=mutant).violations
    assert {kind_of(violation) for violation in found} == ({"ledger"} if mutant else set())


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_schedule_that_finds_a_broken_rule_is_shrunk_to_the_faults_that_it_needs() -> None:
    mutant = "request-id-ignored"
    case = CASES[mutant]
    found = run_apart(case.seed, case.hours, case.faults, mutant=mutant, swarm=case.swarm)
    _, left = shrunk(case.seed, case.hours, case.faults, found, mutant=mutant, swarm=case.swarm)
    assert len(left) == 1
    assert left[0] in case.faults

"""A random walk over all eighteen steps, every invariant checked after each of them.

The callers of the walk are mostly sensible and sometimes not: late, repeated, made up. A failure prints the seed and
the command that repeats it. Over all seeds the walk must meet every outcome of every step, and a list of rarer sights,
so that none of them goes unchecked because nobody gets there any more.
"""

from __future__ import annotations

import os

import pytest

from dhsched.ownership.steps import STEPS
from tests.harness.walk import (
    SEED_VARIABLE,
    SEEDS,
    SIGHTS,
    walk,
)
from tests.scenarios.language import answers, outcome_word

SEEDS_LONG = 4_000


def test_no_walk_breaks_an_invariant_and_together_they_meet_every_outcome() -> None:
    repeated = os.environ.get(SEED_VARIABLE)
    if repeated:
        walk(int(repeated))
        return
    met = set().union(*(walk(seed) for seed in range(SEEDS)))
    wanted = {(step, outcome_word(kind)) for step in STEPS for kind in answers(step)}
    assert (wanted | {("saw", sight) for sight in SIGHTS}) - met == set()


@pytest.mark.long
def test_no_longer_walk_breaks_an_invariant() -> None:
    for seed in range(SEEDS, SEEDS + SEEDS_LONG):
        walk(seed)

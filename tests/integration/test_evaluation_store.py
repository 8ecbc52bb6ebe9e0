"""The evaluation's experiments on a real store, in small: what they say of the product, and of its mutants."""

from __future__ import annotations

import asyncio

import pytest

from evaluation import admission, validation


async def test_a_lost_response_is_answered_with_the_generation_it_committed() -> None:
    (row,) = await asyncio.to_thread(validation.run_lost, 1, 12)
    assert row == dict.fromkeys(("failures", "same_generation", "no_second_successor", "no_duplicate_charge"), 12)


@pytest.mark.release
async def test_the_generation_guard_lets_no_old_runtime_through_and_the_mutant_does() -> None:
    fenced, mutant = await asyncio.gather(
        asyncio.to_thread(validation.run_returns, "generation", 800.0, 1, 16),
        asyncio.to_thread(validation.run_returns, "worker-id", 800.0, 1, 16),
    )
    assert fenced[0]["late_asked"] > 16 and fenced[0]["stale"] == 0
    assert mutant[0]["stale"] > 0


async def test_only_atomic_admission_keeps_to_the_capacity() -> None:
    atomic, weak = await asyncio.gather(
        asyncio.to_thread(admission.run_store, 8, True, 0.0, 1, 5),
        asyncio.to_thread(admission.run_store, 8, False, 0.0, 1, 5),
    )
    assert (atomic[0]["overshoots"], atomic[0]["full"]) == (0, 5 * 7)
    assert weak[0]["overshoots"] > 0
